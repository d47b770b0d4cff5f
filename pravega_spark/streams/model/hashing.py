"""The hash behind key routing and container placement: Murmur3 over UTF-16, as Guava computes it for Java strings."""

from __future__ import annotations

import mmh3


def murmur64(text: str, seed: int) -> int:
    """The first 64 bits of the 128-bit Murmur3 (x64) hash of `text` as UTF-16LE code units; unsigned.

    Lone surrogates are hashed as they stand, because a Java string may hold them.
    """
    return mmh3.hash64(text.encode("utf-16-le", "surrogatepass"), seed, x64arch=True, signed=False)[0]
