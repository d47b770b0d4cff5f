"""What every store must do, as test methods: subclass `StoreContract` and give it a `store` fixture of an empty store.

class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self): return MyStore(…)
    @pytest.fixture
    def ways_to_cut(self, store): return [lambda: a_broken_connection_to(store)]
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeAlias

from chunkstore import stamps
from chunkstore.errors import (
    InvalidOffset,
    ObjectNotFound,
    ObjectReadOnly,
    StorageError,
    StorageUnavailable,
    Unsupported,
)
from chunkstore.port import LONGEST_PATH, TOKEN, Data, Outcome, Range, Store
from chunkstore.room import SMALL_ADDITIONS

BAD_PATHS = [
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/..",
    "../a",
    "a/../b",
    "./a",
    "a\0b",
    "a" * (LONGEST_PATH + 1),
    "\ud800",
]
BODY = bytes(range(200))

NOT_A_LISTING = {
    "": 200,
    "<html><body>Please log in</body></html>": 200,
    "{}": 200,
    '{"kind": "storage#bucket", "name": "b"}': 200,
    '<?xml version="1.0"?><Error><Code>InternalError</Code></Error>': 200,
    '<?xml version="1.0"?><Something/>': 200,
    "default backend - 404": 404,
    "<html><body>Not found</body></html>": 404,
}
"""What comes from something between here and a bucket's server: the body of an answer, and its HTTP status."""

WaysToCut: TypeAlias = Sequence[Callable[[], AbstractContextManager[Store]]]
"""Each opens, for a while, a store at the same place of which every listing fails in the middle."""


def body(content: bytes = b"content") -> bytes:
    """An object for put_if_absent: a token that is unique, and `content`."""
    return os.urandom(TOKEN) + content


def refused(error: type[BaseException], function: Callable[..., object], *arguments: object) -> Any:
    """The error, which must be of this type, that calling `function` raises."""
    try:
        result = function(*arguments)
    except error as raised:
        return raised
    raise AssertionError(f"{function} with {arguments!r} returned {result!r} and did not raise {error.__name__}")


class StoreContract:
    """The contract. Whether the store appends is taken from what it says of itself."""

    # -- whole objects

    def test_put_and_read(self, store: Store) -> None:
        store.put("a/b", BODY)
        assert store.read("a/b") == BODY

    def test_put_overwrites(self, store: Store) -> None:
        store.put("a", b"long before")
        store.put("a", b"after")
        assert store.read("a") == b"after"

    def test_a_read_beside_overwrites_sees_one_object_whole(self, store: Store) -> None:
        """The objects have different lengths: a size from before one and bytes from behind it would be part of one."""
        versions = [bytes([number]) * length for number, length in enumerate((10, 5000, 3, 70_000))]
        store.put("a", versions[0])

        def overwrite() -> None:
            for number in range(40):
                store.put("a", versions[number % len(versions)])

        with ThreadPoolExecutor(1) as threads:
            overwritten = threads.submit(overwrite)
            while not overwritten.done():
                with suppress(StorageUnavailable):
                    assert store.read("a") in versions
                    assert store.read("a", 2) in [version[2:] for version in versions]
            overwritten.result()

    def test_a_posted_message_is_read_as_it_is_put(self, store: Store) -> None:
        """It may be lost in a crash; until then it is an object like any other."""
        pieces: list[Data] = [BODY[:5], bytearray(BODY[5:9]), b"", memoryview(BODY)[9:]]
        store.post("new/folder/a", b"before")
        store.post("new/folder/a", pieces)
        assert store.read("new/folder/a") == BODY
        assert [(info.path, info.size) for info in store.list("new/")] == [("new/folder/a", len(BODY))]
        assert store.put_if_absent("new/folder/a", body()) is Outcome.ANOTHERS
        store.delete(["new/folder/a"])
        assert store.list("") == []

    def test_any_bytes_like_is_stored(self, store: Store) -> None:
        given = body()
        words: Any = memoryview(given * 4).cast("I")
        for number, data in enumerate([given, bytearray(given), memoryview(given), memoryview(given)[1:], words]):
            store.put(f"put/{number}", data)
            assert store.read(f"put/{number}") == bytes(data)
        for number, data in enumerate([bytearray(given), memoryview(given), words]):
            assert store.put_if_absent(f"created/{number}", data) is Outcome.MINE
            assert store.read(f"created/{number}") == bytes(data)

    def test_pieces_are_stored_one_behind_the_other(self, store: Store) -> None:
        several: list[Data] = [BODY[:5], bytearray(BODY[5:9]), b"", memoryview(BODY)[9:]]
        lists: list[list[Data]] = [[], [b""], [BODY], several]
        for number, pieces in enumerate(lists):
            store.put(f"put/{number}", pieces)
            assert store.read(f"put/{number}") == b"".join(pieces)
        store.put("many", [bytes([number % 256]) for number in range(3000)])
        assert store.read("many") == bytes(number % 256 for number in range(3000))

    def test_what_is_stored_is_a_copy(self, store: Store) -> None:
        data = bytearray(BODY)
        store.put("a", data)
        data[0] = 99
        assert store.read("a") == BODY

    def test_an_empty_object(self, store: Store) -> None:
        store.put("empty", b"")
        assert store.read("empty") == store.read("empty", 0, 10) == store.read("empty", 5) == b""
        assert store.stat("empty").size == 0
        assert store.put_if_absent("empty", body()) is Outcome.ANOTHERS
        assert store.read("empty") == b""

    def test_an_object_of_several_pieces(self, store: Store) -> None:
        data = body(os.urandom(2 * 2**20))
        pieces: list[Data] = [data[:100], memoryview(data)[100 : 2**20], b"", bytearray(data[2**20 :])]
        store.put("put", pieces)
        assert store.put_if_absent("made", pieces) is Outcome.MINE
        assert store.put_if_absent("made", data) is Outcome.MINE
        assert store.put_if_absent("made", [body(), b"other"]) is Outcome.ANOTHERS
        assert store.read("put") == store.read("made") == data

    def test_a_large_object(self, store: Store) -> None:
        data = os.urandom(3 * 2**20 + 1)
        assert store.put_if_absent("large", data) is Outcome.MINE
        assert store.read("large") == data

    def test_strange_names(self, store: Store) -> None:
        names = [
            "a b",
            "a%20b",
            "ä/ö",
            "-",
            "a#b",
            "a?b=c",
            "a+b&c=d",
            "a*b",
            "x/.hidden",
            "…",
            "a:b",
            "'\"<>",
            "p/" * 20 + "q",
        ]
        for name in names:
            store.put(name, name.encode())
        assert [info.path for info in store.list("")] == sorted(names)
        assert [store.read(name) for name in names] == [name.encode() for name in names]
        store.delete(names)
        assert store.list("") == []

    # -- creating

    def test_first_create_wins(self, store: Store) -> None:
        first, second = body(), body()
        assert store.put_if_absent("a/b", first) is Outcome.MINE
        assert store.put_if_absent("a/b", second) is Outcome.ANOTHERS
        assert store.read("a/b") == first

    def test_the_same_bytes_again_are_mine(self, store: Store) -> None:
        mine = body()
        assert [store.put_if_absent("a", mine) for _ in range(3)] == [Outcome.MINE] * 3
        assert store.put_if_absent("a", body()) is Outcome.ANOTHERS
        assert store.put_if_absent("a", mine) is Outcome.MINE

    def test_another_content_under_my_token_is_not_mine(self, store: Store) -> None:
        """Two lives of one memory image put different objects that begin alike (W15)."""
        mine = body(b"content " * 10_000)
        assert store.put_if_absent("a", mine) is Outcome.MINE
        for other in (mine[:-1], mine + b"s", mine[:-1] + b"S", mine[:TOKEN]):
            assert store.put_if_absent("a", other) is Outcome.ANOTHERS
            assert store.put_if_absent("a", [other[:TOKEN], other[TOKEN:]]) is Outcome.ANOTHERS
        assert store.put_if_absent("a", [mine[: TOKEN + 7], b"", mine[TOKEN + 7 :]]) is Outcome.MINE
        assert store.read("a") == mine

    def test_a_listing_carries_the_time_of_a_dated_storage(self, store: Store) -> None:
        """By it the log knows the time of its first proof (W13)."""
        store.put("a", b"short")
        made = store.stat("a").modified
        with stamps.listening() as noted:
            store.list("")
        assert not store.dated or (noted.first is not None and abs(noted.first - made) < 60)

    def test_create_after_put_and_after_delete(self, store: Store) -> None:
        store.put("a", b"short")
        assert store.put_if_absent("a", body()) is Outcome.ANOTHERS
        assert store.read("a") == b"short"
        store.delete(["a"])
        mine = body()
        assert store.put_if_absent("a", mine) is Outcome.MINE
        assert store.read("a") == mine

    def test_a_create_needs_a_token(self, store: Store) -> None:
        refused(ValueError, store.put_if_absent, "a", b"x" * (TOKEN - 1))
        assert store.put_if_absent("a", b"x" * TOKEN) is Outcome.MINE

    def test_racing_creates_have_one_winner(self, store: Store) -> None:
        bodies = [body() for _ in range(4)]
        with ThreadPoolExecutor(len(bodies)) as threads:
            for number in range(5):
                name = f"race/{number}"
                outcomes = list(threads.map(lambda mine, name=name: store.put_if_absent(name, mine), bodies))
                assert outcomes.count(Outcome.MINE) == 1
                assert store.read(name) == bodies[outcomes.index(Outcome.MINE)]

    # -- reading

    def test_absent_objects(self, store: Store) -> None:
        store.put("a/b", BODY)
        for absent in ("c", "a", "a/b/c", "a/c"):
            assert f"'{absent}'" in str(refused(ObjectNotFound, store.read, absent))
            refused(ObjectNotFound, store.read, absent, 3, 3)
            refused(ObjectNotFound, store.read, absent, 3, 5)
            refused(ObjectNotFound, store.stat, absent)

    def test_room(self, store: Store) -> None:
        """There is room, as far as the store can tell (P6)."""
        store.check_room()
        store.check_room(1000, SMALL_ADDITIONS)
        assert store.largest_object() >= 1 << 20

    def test_ranges(self, store: Store) -> None:
        store.put("a", BODY)
        size = len(BODY)
        for start in (0, 1, 100, size - 1, size, size + 1, 10 * size):
            assert store.read("a", start) == BODY[start:]
            for end in (start, start + 1, start + 50, size - 1, size, size + 1, 10 * size):
                if end >= start:
                    assert store.read("a", start, end) == BODY[start:end], (start, end)

    def test_ranges_that_are_none(self, store: Store) -> None:
        store.put("a", BODY)
        for start, end in ((-1, None), (-5, 3), (0, -1), (5, 4)):
            refused(ValueError, store.read, "a", start, end)
            refused(ValueError, store.read_ranges, [Range("a", start, end)])

    def test_reading_into_room(self, store: Store) -> None:
        store.put("a", BODY)
        for start in (0, 1, len(BODY) - 1, len(BODY), 10 * len(BODY)):
            for size in (0, 1, 50, 10 * len(BODY)):
                room = memoryview(bytearray(b"." * size))
                found = BODY[start : start + size]
                assert store.read_into("a", start, room) == len(found), (start, size)
                assert room == found.ljust(size, b".")
        refused(ValueError, store.read_into, "a", -1, memoryview(bytearray(3)))
        refused(ObjectNotFound, store.read_into, "none", 0, memoryview(bytearray(3)))

    def test_many_ranges(self, store: Store) -> None:
        store.put("a", BODY)
        store.put("b", BODY[::-1])
        wanted = [
            Range("a", 5, 9),
            Range("none"),
            Range("b", 190),
            Range("a"),
            Range("a", 200),
            Range("a", 7, 7),
            Range("none", 7, 7),
            Range("b", 0, 1),
            Range("a", 5, 9),
        ]
        assert store.read_ranges(wanted) == [
            BODY[5:9],
            None,
            BODY[::-1][190:],
            BODY,
            b"",
            b"",
            None,
            BODY[::-1][:1],
            BODY[5:9],
        ]
        assert store.read_ranges([]) == []

    # -- appending

    def test_append(self, store: Store) -> None:
        store.put("a", b"one")
        if not store.can_append:
            refused(Unsupported, store.append, "a", 3, b"two")
            assert store.read("a") == b"one"
            return
        store.append("a", 3, b"two")
        store.append("a", 6, b"")
        store.append("a", 6, memoryview(b"three"))
        assert store.read("a") == b"onetwothree"
        assert store.stat("a").size == 11

    def test_append_elsewhere_is_refused(self, store: Store) -> None:
        if not store.can_append:
            return
        store.put("a", b"one")
        for offset in (0, 2, 4):
            error = refused(InvalidOffset, store.append, "a", offset, b"two")
            assert (error.expected, error.given) == (3, offset)
        assert store.read("a") == b"one"
        refused(ObjectNotFound, store.append, "none", 0, b"two")
        refused(ObjectNotFound, store.read, "none")

    def test_racing_appends_have_one_winner(self, store: Store) -> None:
        if not store.can_append:
            return
        store.put("a", b"start")

        def append(number: int) -> bool:
            try:
                store.append("a", 5, bytes([number]) * 1000)
            except InvalidOffset:
                return False
            return True

        with ThreadPoolExecutor(4) as threads:
            won = list(threads.map(append, range(4)))
        assert won.count(True) == 1
        assert store.read("a") == b"start" + bytes([won.index(True)]) * 1000

    # -- protecting

    def test_read_only(self, store: Store) -> None:
        store.put("a", b"content")
        try:
            store.set_read_only("a", True)
        except Unsupported:
            assert store.read("a") == b"content"
            return
        store.set_read_only("a", True)
        assert store.read("a") == b"content"
        if store.can_append:
            assert "'a'" in str(refused(ObjectReadOnly, store.append, "a", 7, b"more"))
        assert store.read("a") == b"content"
        store.set_read_only("a", False)
        if store.can_append:
            store.append("a", 7, b" and more")
            assert store.read("a") == b"content and more"
        refused(ObjectNotFound, store.set_read_only, "none", True)
        # Neither putting nor deleting is hindered, and neither leaves the mark to the next object.
        for change in (lambda: store.put("a", b"new"), lambda: (store.delete(["a"]), store.put("a", b"new"))):
            store.set_read_only("a", True)
            change()
            if store.can_append:
                store.append("a", 3, b"er")
            assert store.read("a").startswith(b"new")

    # -- listing

    def test_link(self, store: Store) -> None:
        store.put("source/a", b"content")
        try:
            store.link("target/a", store, "source/a")
        except Unsupported as error:
            assert "copy" in str(error)
            assert store.list("target/") == []
            return
        store.link("target/a", store, "source/a")
        assert [info.path for info in store.list("")] == ["source/a", "target/a"]
        store.put("source/a", b"other")
        assert store.read("target/a") == b"content"
        store.delete(["source/a"])
        assert store.read("target/a") == b"content"
        assert "'source/b'" in str(refused(ObjectNotFound, store.link, "target/b", store, "source/b"))
        assert [info.path for info in store.list("")] == ["target/a"]

    def test_list_is_sorted_by_path(self, store: Store) -> None:
        paths = ["a/b", "a.b", "a/b.c", "a-b/c", "a/b-c/d", "a0", "A", "b/a", "a/é", "a/z", "ab/c/d"]
        for path in paths:
            store.put(path, path.encode())
        infos = store.list("")
        assert [info.path for info in infos] == sorted(paths)
        assert [info.size for info in infos] == [len(path.encode()) for path in sorted(paths)]
        assert [info.path for info in store.list("a/")] == ["a/b", "a/b-c/d", "a/b.c", "a/z", "a/é"]
        assert [info.path for info in store.list("a/b-c/")] == ["a/b-c/d"]

    def test_list_after_and_limit(self, store: Store) -> None:
        paths = sorted(["f/1/x", "f/1.x", "f/2", "f/22/x", "f/3/a/b", "f/3/a/c", "f/9", "g"])
        for path in paths:
            store.put(path, b"")
        for prefix in ("", "f/", "f/3/"):
            below = [path for path in paths if path.startswith(prefix)]
            for after in ["", "a", "f", "f/", "f/3/a", "f/3/a/", "f/3/b", "f/30", "h", *paths]:
                expected = [path for path in below if path > after]
                assert [info.path for info in store.list(prefix, after)] == expected, (prefix, after)
                assert [info.path for info in store.list(prefix, after, 2)] == expected[:2], (prefix, after)
        assert store.list("f/", limit=0) == []
        assert len(store.list("f/", limit=100)) == len(paths) - 1

    def test_list_of_nothing(self, store: Store) -> None:
        assert store.list("") == store.list("a/") == store.list("a/b/", after="a/b/c", limit=3) == []
        store.put("a", b"")
        store.put("ab/c", b"")
        assert store.list("a/") == []

    def test_list_wants_a_folder(self, store: Store) -> None:
        for prefix in ("a", "/", "a//", "../", "/a/"):
            refused(ValueError, store.list, prefix)

    def test_listings_are_never_stale(self, store: Store) -> None:
        present: set[str] = set()
        for number in range(6):
            name = f"a/{number}"
            assert store.put_if_absent(name, body()) is Outcome.MINE
            present.add(name)
            assert [info.path for info in store.list("a/")] == sorted(present)
            if number % 2:
                store.delete([name])
                present.remove(name)
                assert [info.path for info in store.list("")] == sorted(present)
                refused(ObjectNotFound, store.stat, name)

    def test_paging_through_a_folder(self, store: Store) -> None:
        paths = [f"a/{number:03d}" for number in range(40)]
        for path in paths:
            store.put(path, b"")
        seen: list[str] = []
        while page := store.list("a/", after=seen[-1] if seen else "", limit=7):
            seen += [info.path for info in page]
        assert seen == paths

    def test_a_listing_that_is_cut_is_an_error(self, store: Store, ways_to_cut: WaysToCut) -> None:
        """Complete or an error (P2): a caller that takes part of a listing for all of it overwrites what is there."""
        paths = [f"cut/{folder}/{'x' * 60}/{number}" for folder in "abc" for number in range(4)]
        for path in paths:
            store.put(path, b"")
        pages: list[tuple[Any, ...]] = [("",), ("cut/", paths[3], 7)]
        for way in ways_to_cut:
            for page in pages:
                with way() as broken:
                    error = refused(StorageError, broken.list, *page)
                    assert not isinstance(error, ObjectNotFound), "nobody may take it for an absent folder"
        assert [info.path for info in store.list("")] == paths

    # -- facts and times

    def test_stat_agrees_with_list(self, store: Store) -> None:
        store.put("a/b", BODY)
        assert [store.stat("a/b")] == store.list("a/")
        assert store.stat("a/b").size == len(BODY)

    def test_times_are_by_the_clock(self, store: Store) -> None:
        before = store.clock()
        store.put("a", BODY)
        modified = store.stat("a").modified
        assert before <= modified <= store.clock()
        assert store.put_if_absent("b", body()) is Outcome.MINE
        assert modified <= store.stat("b").modified <= store.clock()
        assert [info.path for info in store.list("")] == ["a", "b"], "clock() left something"

    # -- deleting

    def test_delete(self, store: Store) -> None:
        for path in ("a/1", "a/2", "b"):
            store.put(path, BODY)
        store.delete(["a/1", "b", "never", "a/never", "b/never", "a"])
        assert [info.path for info in store.list("")] == ["a/2"]
        store.delete(["a/1"])
        store.delete([])
        assert store.read("a/2") == BODY

    # -- names and manners

    def test_bad_paths_are_refused_by_every_verb(self, store: Store) -> None:
        for path in BAD_PATHS:
            for verb, *arguments in (
                (store.read, path),
                (store.read_ranges, [Range(path)]),
                (store.put, path, BODY),
                (store.post, path, BODY),
                (store.put_if_absent, path, BODY),
                (store.stat, path),
                (store.delete, ["fine", path]),
            ):
                refused(ValueError, verb, *arguments)
            if store.can_append:
                refused(ValueError, store.append, path, 0, BODY)
        assert store.list("") == []

    def test_the_longest_path(self, store: Store) -> None:
        path = ("é" * 50 + "/") * 8
        path += "x" * (LONGEST_PATH - len(path.encode()))
        store.put(path, BODY)
        assert store.read(path) == BODY
        assert [info.path for info in store.list("")] == [path]

    def test_errors_name_root_and_object(self, store: Store) -> None:
        error = refused(StorageError, store.read, "some/object")
        assert store.root in str(error) and "some/object" in str(error)

    def test_a_store_is_not_pickled(self, store: Store) -> None:
        refused(TypeError, pickle.dumps, store)

    def test_many_threads(self, store: Store) -> None:
        def work(number: int) -> bool:
            mine = body(b"%d" % number)
            store.put_if_absent(f"t/{number}", mine)
            listed = f"t/{number}" in [info.path for info in store.list("t/")]
            return listed and store.read(f"t/{number}") == mine

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(32)))
