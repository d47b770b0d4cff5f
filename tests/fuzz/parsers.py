"""The table of parsers: everything that understands bytes or text that were stored, or that users give."""

from __future__ import annotations

from tests.fuzz import archive_parsers, chunkstore_parsers, engine_parsers, stream_parsers
from tests.fuzz.harness import Parser

PARSERS: dict[str, Parser] = {
    parser.name: parser
    for parser in (
        *chunkstore_parsers.PARSERS,
        *archive_parsers.PARSERS,
        *engine_parsers.PARSERS,
        *stream_parsers.PARSERS,
    )
}
