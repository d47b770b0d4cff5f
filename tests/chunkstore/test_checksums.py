"""Checksums of blocks, as bytes come behind others."""

import pytest

from chunkstore.checksums import BLOCK, block_checksums, continued, first_bad_block

DATA = b"".join(bytes([number]) * (BLOCK // 4) for number in range(11))


@pytest.mark.parametrize("cut", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7, len(DATA)])
def test_checksums_that_are_continued_are_those_of_the_whole(cut: int) -> None:
    rest = memoryview(DATA)[cut:]
    pieces = [rest[: BLOCK // 2], rest[BLOCK // 2 :]]
    assert continued(block_checksums(DATA[:cut]), cut, *pieces) == block_checksums(DATA)


def test_a_block_that_is_missing_is_bad() -> None:
    sums = block_checksums(bytes(BLOCK), b"rest")
    assert first_bad_block(memoryview(bytes(BLOCK) + b"rest"), sums) is None
    assert first_bad_block(memoryview(bytes(BLOCK)), sums) == 1
    assert first_bad_block(memoryview(b""), bytes(4)) == 0, "the checksum of nothing is 0"
