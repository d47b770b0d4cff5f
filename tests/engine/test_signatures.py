"""W20: signatures of objects, and the keys that make them."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import stat
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from chunkstore import Range, StorageRefused, Store, open_store
from chunkstore.errors import Unsupported
from chunkstore.paths import ROOT, is_signed
from chunkstore.testing import CountingStore, FaultStore, SimulatedStore
from chunkstore.testing.contracts import StoreContract, WaysToCut, body
from chunkstore.testing.faults import fail_at
from engine.errors import BadSignature
from engine.signatures import VARIABLE, SigningKey, key_in, signing_key
from engine.signed_store import SignedStore

SECRET = bytes(range(32))
KEY = SigningKey(SECRET, "a test")
PATH = "_system/containers/0/wal/00000000000000000000"


def everything(path: str) -> bool:
    return True


@pytest.fixture
def ways_to_cut(store: Store) -> WaysToCut:
    return [lambda: nullcontext(FaultStore(store, fail_at(1)))]


class TestAllSigned(StoreContract):
    """The contract, where every object is signed; nothing can be appended to these."""

    @pytest.fixture(params=["folder", "simulated"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
        inner = open_store(str(tmp_path)) if request.param == "folder" else SimulatedStore()
        store = SignedStore(inner, KEY, everything)
        store.can_append = False
        return store


class TestOthers(StoreContract):
    """The contract, at paths that are not signed."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return SignedStore(open_store(str(tmp_path)), KEY)


# --- signatures ----------------------------------------------------------------------------------------------------


def test_a_signature_is_what_the_format_says() -> None:
    """Computed by the definition of HMAC, with another program."""
    told = "3d60561d6339d0f49bcd823f1037cd6ccfb8d34d3c144c591edb99a89e486e30"
    assert KEY.sign(PATH, b"abc").hex() == told
    assert KEY.sign(PATH, [b"a", memoryview(b"bc"), bytearray()]).hex() == told
    assert KEY.id == "eb3d02a08c5965df"
    store = SimulatedStore()
    SignedStore(store, KEY).put(PATH, b"abc")
    assert store.read(PATH) == b"abc" + bytes.fromhex(told)


@pytest.mark.parametrize("kind", ["wal", "checkpoints", "checkpoint-parts", "recovery-points", "witness", "inbox"])
def test_all_of_a_log_is_signed(kind: str) -> None:
    assert is_signed(f"_system/containers/12/{kind}/{'a' * 32}/x")
    assert is_signed(f"_system/containers/12/{kind}/x")


@pytest.mark.parametrize("path", ["s/a/0.#epoch.0.E-1-O-0.x", "_system/containers/0/E-1-S-2.x", ROOT, f"a/{PATH}"])
def test_nothing_else_is_signed(path: str) -> None:
    assert not is_signed(path)
    inner = SimulatedStore()
    SignedStore(inner, KEY).put(path, b"abc")
    assert inner.read(path) == b"abc" == SignedStore(inner, KEY).read(path)


READS: list[Callable[[Store], object]] = [
    lambda store: store.read(PATH),
    lambda store: store.read(PATH, 2, 3),
    lambda store: store.read(PATH, 0, 0),
    lambda store: store.read_into(PATH, 0, memoryview(bytearray(1))),
    lambda store: store.read_ranges([Range("a"), Range(PATH, 1, 2)]),
]
"""Each way to read an object, all of it or a part."""


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "changed",
    [
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:-32],
        lambda data: b"",
        lambda data: b"abc" + SigningKey(bytes(32), "").sign(PATH, b"abc"),
        lambda data: b"abc" + KEY.sign(f"{PATH[:-1]}1", b"abc"),
    ],
    ids=["data", "signature", "cut off", "longer", "unsigned", "empty", "another key", "another path"],
)
def test_an_object_that_was_changed_is_an_error_however_it_is_read(
    read: Callable[[Store], object], changed: Callable[[bytes], bytes]
) -> None:
    inner = SimulatedStore()
    store = SignedStore(inner, KEY)
    store.put(PATH, b"abc")
    store.put("a", b"chunk")
    read(store)
    inner.put(PATH, changed(inner.read(PATH)))
    with pytest.raises(BadSignature, match=f"{PATH}: its signature does not fit.*verify"):
        read(store)
    assert store.read("a") == b"chunk"


def test_ranges_sizes_and_absent_objects_are_those_without_signatures(tmp_path: Path) -> None:
    store = SignedStore(open_store(str(tmp_path)), KEY)
    paths = [f"{PATH[:-2]}{number:02d}" for number in range(40)]
    for number, path in enumerate(paths):
        store.put(path, b"0123456789%d" % number)
    store.put("a", b"chunk")
    assert [info.size for info in store.list("_system/")] == [11] * 10 + [12] * 30
    assert store.stat(paths[0]).size == 11 and store.stat("a").size == 5
    ranges = [Range(path, 8, 11) for path in paths] + [Range("a", 1, 3), Range("none"), Range(f"{PATH}9", 1)]
    assert store.read_ranges([*ranges, Range(paths[0], 50, 60), Range(paths[0])]) == [
        *(b"89%d" % (number // 10 or number) for number in range(40)),
        b"hu",
        None,
        None,
        b"",
        b"01234567890",
    ]


def test_parts_of_one_object_are_read_with_one_request() -> None:
    counting = CountingStore(SimulatedStore())
    store = SignedStore(counting, KEY)
    store.put(PATH, b"0123456789")
    counting.reset()
    assert store.read_ranges([Range(PATH, 0, 2), Range(PATH, 4, 5), Range(PATH, 8)]) == [b"01", b"4", b"89"]
    assert [request.paths for request in counting.requests] == [(PATH,)]


def test_what_cannot_be_signed_is_refused() -> None:
    inner = SimulatedStore(can_append=True)
    store = SignedStore(inner, KEY)
    store.put(PATH, b"abc")
    store.put("a", b"abc")
    with pytest.raises(Unsupported, match="is signed"):
        store.append(PATH, 3, b"d")
    with pytest.raises(Unsupported, match="is signed"):
        store.link(f"{PATH}1", store, "a")
    store.append("a", 3, b"d")
    assert (store.read(PATH), store.read("a")) == (b"abc", b"abcd")


def test_the_same_bytes_are_recognised_as_ones_own() -> None:
    store, data = SignedStore(SimulatedStore(), KEY), body()
    assert [store.put_if_absent(PATH, each).name for each in (data, [data[:30], data[30:]], body())] == [
        "MINE",
        "MINE",
        "ANOTHERS",
    ]
    assert store.read(PATH) == data and store.holds(PATH, data)


# --- keys ----------------------------------------------------------------------------------------------------------


def key_file(folder: Path, text: str = SECRET.hex(), mode: int = 0o600) -> str:
    path = folder / "key"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_key_comes_from_its_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert signing_key() is None
    monkeypatch.setenv(VARIABLE, "")
    assert signing_key() is None
    monkeypatch.setenv(VARIABLE, f" {bytes(40).hex()}\n")
    named = signing_key()
    assert named is not None and named.id == SigningKey(bytes(40), "").id != KEY.id
    found = signing_key(key_file(tmp_path, f"{SECRET.hex().upper()}\n"))
    assert found is not None and found.id == KEY.id
    assert key_in("") is None


@pytest.mark.parametrize("text", ["", "00" * 31, "0" * 65, "no hexadecimal digits " * 9, "0x" + "00" * 40, "é" * 64])
def test_what_is_no_key_is_refused_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(StorageRefused, match="'signing_key_file'") as refused:
        signing_key(key_file(tmp_path, text))
    assert not text or text not in str(refused.value)
    if text:
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(StorageRefused, match=f"{VARIABLE}.*64 hexadecimal digits.*openssl") as refused:
            signing_key()
        assert text not in str(refused.value)


def test_a_key_in_the_place_of_its_file_is_refused_and_not_shown() -> None:
    with pytest.raises(StorageRefused, match="not the path of its file") as refused:
        signing_key(SECRET.hex())
    assert SECRET.hex() not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match=r"'signing_key_file'.*none' cannot be read \(No such file.*each host"):
        signing_key(str(tmp_path / "none"))


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_that_other_users_can_read_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, told: bool
) -> None:
    file = key_file(tmp_path, mode=mode)
    assert stat.S_IMODE(os.stat(file).st_mode) == mode
    with caplog.at_level(logging.WARNING):
        assert key_in(file) is not None
    assert ("chmod o-rw" in caplog.text) is told
    assert SECRET.hex() not in caplog.text


def test_a_key_is_neither_shown_nor_pickled() -> None:
    shown: Sequence[str] = [repr(KEY), str(KEY), f"{KEY}", repr(SignedStore(SimulatedStore(), KEY))]
    assert all(SECRET.hex() not in text and repr(SECRET) not in text for text in shown)
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            refused(KEY)
        with pytest.raises(TypeError, match="cannot be pickled"):
            refused(SignedStore(SimulatedStore(), KEY))


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes; this one has 31"):
        SigningKey(bytes(31), "")
