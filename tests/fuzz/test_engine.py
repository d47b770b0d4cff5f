"""Any bytes are understood or refused with a declared error, within bounded memory (P2): the parsers of engine."""

from __future__ import annotations

import msgpack
import pytest

from chunkstore.decoding import InvalidData, decoding
from engine.state.operations import decode_transactions
from engine.state.segments import FrameRef
from tests.fuzz.engine_parsers import METAS, PARSERS
from tests.fuzz.harness import Parser
from tests.fuzz.suite import holds_at_length, understands_or_refuses

each = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


@each
def test_whatever_is_read_is_understood_or_refused(parser: Parser) -> None:
    understands_or_refuses(parser)


def test_each_field_of_each_operation_has_a_type() -> None:
    seen = set()
    for meta in METAS:
        for time, operations in msgpack.unpackb(meta[1:]):
            for number, *fields in operations:
                seen.add(number)
                for place in range(len(fields)):
                    wrong = [[time, [[number, *fields[:place], {"x": 1}, *fields[place + 1 :]]]]]
                    with pytest.raises(InvalidData), decoding():
                        decode_transactions(msgpack.packb(wrong), FrameRef(7))
                for wrong_fields in ([*fields, 0], fields[:-1])[: 2 if fields else 1]:
                    with pytest.raises(InvalidData), decoding():
                        decode_transactions(msgpack.packb([[time, [[number, *wrong_fields]]]]), FrameRef(7))
    assert len(seen) > 12


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.timeout(7200)
@each
def test_a_million_times_in_bounded_memory(parser: Parser) -> None:
    holds_at_length(parser)
