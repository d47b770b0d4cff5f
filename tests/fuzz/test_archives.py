"""Any bytes are understood or refused with a declared error, within bounded memory (P2): archives of real servers."""

from __future__ import annotations

import pytest

from tests.fuzz.archive_parsers import PARSERS
from tests.fuzz.harness import Parser
from tests.fuzz.suite import holds_at_length, understands_or_refuses

each = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


@each
def test_whatever_is_read_is_understood_or_refused(parser: Parser) -> None:
    understands_or_refuses(parser)


@pytest.mark.long
@pytest.mark.timeout(7200)
@each
def test_a_million_times_in_bounded_memory(parser: Parser) -> None:
    holds_at_length(parser)
