"""What chunk storage must do on every backend, as test methods: subclass it and give it a `storage` fixture.

class TestMyStorage(ChunkStorageContract):
    @pytest.fixture
    def storage(self): return ChunkStorage(MyStore(…))
"""

from __future__ import annotations

import uuid

from chunkstore.chunk_storage import ChunkHandle, ChunkInfo, ChunkStorage
from chunkstore.errors import (
    ChunkAlreadyExists,
    ChunkNotFound,
    InvalidOffset,
    ObjectReadOnly,
    StorageError,
    Unsupported,
)
from chunkstore.port import Data
from chunkstore.testing.contracts import BAD_PATHS, refused

CONTENT = bytes(range(250)) * 4


def new_name(segment: str = "scope/stream/0.#epoch.0") -> str:
    """A name as segments give them."""
    return f"{segment}.E-1-O-0.{uuid.uuid4()}"


def is_stored(storage: ChunkStorage, name: str) -> bool:
    """Whether there is such a chunk."""
    return any(info.name == name for info in storage.list(""))


class ChunkStorageContract:
    """The contract, for a storage without chunks. What it supports is taken from what it says of itself."""

    # -- making, looking up and deleting

    def test_a_new_chunk_is_empty(self, storage: ChunkStorage) -> None:
        name = new_name()
        assert not is_stored(storage, name)
        handle = storage.create_with_content(name, b"")
        assert handle == ChunkHandle(name, read_only=False)
        assert is_stored(storage, name)
        assert storage.info(name).length == 0
        assert storage.read(handle, 0, 10) == b""

    def test_a_chunk_is_made_with_its_content(self, storage: ChunkStorage) -> None:
        pieces: list[Data] = [CONTENT[:10], bytearray(CONTENT[10:20]), b"", memoryview(CONTENT)[20:]]
        for data in (CONTENT, memoryview(CONTENT), pieces, b"", []):
            expected = b"" if not data else CONTENT
            handle = storage.create_with_content(new_name(), data)
            assert not handle.read_only
            assert storage.read(handle, 0, 2000) == expected
            assert storage.info(handle.name).length == len(expected)

    def test_a_name_is_taken_once(self, storage: ChunkStorage) -> None:
        handle = storage.create_with_content(new_name(), CONTENT)
        assert handle.name in str(refused(ChunkAlreadyExists, storage.create_with_content, handle.name, b"other"))
        assert storage.read(handle, 0, 2000) == CONTENT

    def test_a_chunk_holds_nothing_but_its_bytes(self, storage: ChunkStorage) -> None:
        name = new_name()
        storage.create_with_content(name, CONTENT)
        assert storage.store.read(name) == CONTENT

    def test_info(self, storage: ChunkStorage) -> None:
        before = storage.store.clock()
        handle = storage.create_with_content(new_name(), CONTENT)
        info = storage.info(handle.name)
        assert info == ChunkInfo(handle.name, len(CONTENT), info.modified)
        assert before <= info.modified <= storage.store.clock()

    def test_delete(self, storage: ChunkStorage) -> None:
        gone, stays = (storage.create_with_content(new_name(), CONTENT) for _ in range(2))
        storage.delete(gone)
        storage.delete(gone)
        assert not is_stored(storage, gone.name)
        assert storage.read(stays, 0, 2000) == CONTENT

    def test_what_is_not_there(self, storage: ChunkStorage) -> None:
        storage.create_with_content(new_name("other"), CONTENT)
        name = new_name()
        absent = ChunkHandle(name, read_only=False)
        assert not is_stored(storage, name)
        for error in (
            refused(ChunkNotFound, storage.info, name),
            refused(ChunkNotFound, storage.read, absent, 0, 1),
            refused(ChunkNotFound, storage.read_into, absent, 0, memoryview(bytearray(1))),
            refused(ChunkNotFound if storage.supports_append else Unsupported, storage.write, absent, 0, b"x"),
        ):
            assert name in str(error) and storage.store.root in str(error)
        assert not is_stored(storage, name)

    def test_bad_names_are_refused(self, storage: ChunkStorage) -> None:
        for name in BAD_PATHS:
            refused(ValueError, storage.create_with_content, name, CONTENT)
            refused(ValueError, storage.delete, ChunkHandle(name, read_only=False))
        assert storage.list("") == []

    # -- reading

    def test_handles_for_reading(self, storage: ChunkStorage) -> None:
        name = storage.create_with_content(new_name(), CONTENT).name
        handle = ChunkHandle(name, read_only=True)
        assert storage.read(handle, 100, 20) == CONTENT[100:120]
        for error in (
            refused(ObjectReadOnly, storage.write, handle, len(CONTENT), b"more"),
            refused(ObjectReadOnly, storage.delete, handle),
        ):
            assert name in str(error)
        assert storage.read(ChunkHandle(name, read_only=False), 0, 2000) == CONTENT

    def test_ranges(self, storage: ChunkStorage) -> None:
        handle = storage.create_with_content(new_name(), CONTENT)
        size = len(CONTENT)
        for offset in (0, 1, 500, size - 1, size, size + 1, 2**41):
            for length in (0, 1, 300, size, 10 * size):
                expected = CONTENT[offset : offset + length]
                assert storage.read(handle, offset, length) == expected, (offset, length)
                room = memoryview(bytearray(b"." * length))
                assert storage.read_into(handle, offset, room) == len(expected)
                assert room == expected.ljust(length, b".")

    def test_ranges_that_are_none(self, storage: ChunkStorage) -> None:
        handle = storage.create_with_content(new_name(), CONTENT)
        refused(ValueError, storage.read, handle, -1, 5)
        refused(ValueError, storage.read, handle, 5, -1)
        refused(ValueError, storage.read_into, handle, -1, memoryview(bytearray(5)))

    # -- writing

    def test_writing_at_the_end(self, storage: ChunkStorage) -> None:
        handle = storage.create_with_content(new_name(), b"")
        if not storage.supports_append:
            assert handle.name in str(refused(Unsupported, storage.write, handle, 0, CONTENT))
            assert storage.read(handle, 0, 2000) == b""
            return
        assert storage.write(handle, 0, [CONTENT[:50], CONTENT[50:100]]) == 100
        assert storage.read(handle, 0, 2000) == CONTENT[:100]
        assert storage.write(handle, 100, b"") == 0
        again = ChunkHandle(handle.name, read_only=False)
        assert storage.write(again, 100, memoryview(CONTENT)[100:]) == len(CONTENT) - 100
        assert storage.read(handle, 0, 2000) == CONTENT
        assert storage.info(handle.name).length == len(CONTENT)

    def test_writing_elsewhere_is_refused(self, storage: ChunkStorage) -> None:
        empty = storage.create_with_content(new_name(), b"")
        full = storage.create_with_content(new_name(), CONTENT)
        refused(ValueError, storage.write, full, -1, b"x")
        if not storage.supports_append:
            refused(Unsupported, storage.write, full, 0, b"x")
            return
        for handle, size, offsets in ((empty, 0, (1, 7, 2**41)), (full, len(CONTENT), (0, 1, 999, 1001, 2**41))):
            for offset in offsets:
                error = refused(InvalidOffset, storage.write, handle, offset, b"x")
                assert (error.expected, error.given) == (size, offset)
                assert handle.name in str(error)
        assert storage.read(empty, 0, 10) == b""
        assert storage.read(full, 0, 2000) == CONTENT

    def test_what_is_written_is_a_copy(self, storage: ChunkStorage) -> None:
        data = bytearray(CONTENT)
        handle = storage.create_with_content(new_name(), b"" if storage.supports_append else data)
        if storage.supports_append:
            storage.write(handle, 0, data)
        other = storage.create_with_content(new_name(), data)
        data[:] = bytes(len(data))
        assert storage.read(handle, 0, 2000) == storage.read(other, 0, 2000) == CONTENT

    # -- protecting

    def test_set_read_only(self, storage: ChunkStorage) -> None:
        handle = storage.create_with_content(new_name(), CONTENT)
        try:
            storage.set_read_only(handle, True)
        except Unsupported as error:
            assert handle.name in str(error)
            return
        assert storage.read(handle, 0, 2000) == CONTENT
        if storage.supports_append:
            refused(ObjectReadOnly, storage.write, handle, len(CONTENT), b"more")
        assert storage.info(handle.name).length == len(CONTENT)
        storage.set_read_only(handle, False)
        if storage.supports_append:
            storage.write(handle, len(CONTENT), b"more")
            assert storage.info(handle.name).length == len(CONTENT) + 4
        refused(ChunkNotFound, storage.set_read_only, ChunkHandle(new_name(), read_only=False), True)

    # -- all chunks

    def test_list(self, storage: ChunkStorage) -> None:
        names = sorted(
            new_name(segment) for segment in ("a/b/0.#epoch.0", "a/b/1.#epoch.0", "a/b/1.#epoch.0", "a/c/0.#epoch.0")
        )
        for number, name in enumerate(names):
            storage.create_with_content(name, CONTENT[:number])
        found = storage.list("")
        assert [(info.name, info.length) for info in found] == [(name, number) for number, name in enumerate(names)]
        assert found[2] == storage.info(names[2])
        assert [info.name for info in storage.list("a/b/")] == names[:3]
        assert [info.name for info in storage.list("", after=names[0], limit=2)] == names[1:3]
        assert storage.list("a/d/") == storage.list("", limit=0) == []

    def test_errors_are_storage_errors(self, storage: ChunkStorage) -> None:
        refused(StorageError, storage.info, new_name())
