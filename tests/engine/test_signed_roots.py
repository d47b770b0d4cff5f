"""W20: what somebody without the key changes in the storage of a signed root is an error, and changes nothing else."""

from __future__ import annotations

import json
import logging
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageRefused, Store, open_store
from chunkstore.paths import BACKUP, ROOT, is_signed
from chunkstore.testing import CountingStore, Crashed, FaultStore, crash_at
from engine.admin.backups import back_up, restore
from engine.admin.root_gc import collect_garbage, find_garbage
from engine.admin.verify import verify
from engine.errors import BadSignature, FrameForged
from engine.logs import checkpoints
from engine.logs.submission import Address, encode, submission_path
from engine.root import Root
from engine.settings import Settings
from engine.signatures import SIGNATURE, VARIABLE, SigningKey
from engine.signed_store import SignedStore
from engine.state.operations import Append, Payload
from tests.engine.admin.lives import told
from tests.engine.logs.company import Company, appended
from tests.support.signed import KEY, OTHER, SECRET, described_as, key_file, objects, without_signatures
from tests.support.simulation import Simulation, audit, small_sizes

S = "s/a"
ACKNOWLEDGED = b"flushed logged"


class Signed:
    """A signed root with each kind of object that is signed, and its storage as one sees it who has no key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "root"
        self.file = key_file(folder)
        self.raw = open_store(str(self.path))

    def open(self, file: str | None = None, **how: Any) -> Root:
        settings = {"maintenance": False, "signing_key_file": self.file if file is None else file}
        return Root.open(str(self.path), settings=settings, **{"containers": 1, **how})

    def fill(self) -> None:
        with self.open(grace_seconds=0.001, garbage_delay_seconds=600.0) as root:
            container = root.container(0)
            container.create_segment(S)
            container.append(S, b"flushed")
            container.flush()
            container.truncate_log()
            container.append(S, b" logged")
            number, log = root.container_id(0), root.stores.log
            checkpoints.write(log, number, container.head, container.refresh(), largest=200)
            address = Address(99, b"o" * 16, 1, b"n" * 8)
            log.post(submission_path(number, address), encode(number, address, [[Append(S, Payload(b"forged"))]]))

    def paths(self, kind: str) -> list[str]:
        return [info.path for info in self.raw.list("_system/containers/0/") if f"/0/{kind}/" in info.path]

    def content(self) -> bytes:
        with self.open() as root:
            return root.container(0).read(S, 0, root.container(0).info(S).length)


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    signed = Signed(tmp_path)
    signed.fill()
    return signed


def opened(signed: Signed) -> object:
    return signed.content()


def recovered(signed: Signed) -> object:
    with signed.open() as root:
        return root.recover(0, force=True)


def truncated(signed: Signed) -> object:
    with signed.open() as root:
        return root.container(0).truncate_log()


USES: dict[str, Callable[[Signed], object]] = {
    "wal": opened,
    "checkpoints": opened,
    "checkpoint-parts": opened,
    "recovery-points": recovered,
    "witness": truncated,
}
"""What reads the newest object of each kind."""


def test_the_root_has_every_kind(signed: Signed) -> None:
    assert all(signed.paths(kind) for kind in [*USES, "inbox"])
    assert signed.content() == ACKNOWLEDGED
    with signed.open() as root:
        assert told(verify(root, deep=True)) == []


# --- objects that were changed --------------------------------------------------------------------------------------


def flipped(data: bytes, place: float) -> bytes:
    at = min(int(len(data) * place), len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def check_refused(signed: Signed, kind: str, path: str, data: bytes) -> None:
    """What uses the object raises the error that names it, and changes nothing; `verify` reports it. With the object as
    it was, all that was acknowledged is there."""
    right = signed.raw.read(path)
    signed.raw.put(path, data)
    before = objects(signed.raw)
    with pytest.raises(BadSignature, match=f"{re.escape(path)}: its signature does not fit"):
        USES[kind](signed)
    assert objects(signed.raw) == before
    with signed.open() as root:
        findings = [each for each in verify(root).findings if each.object == path]
    assert findings and "its signature does not fit" in findings[0].problem and findings[0].severity.value == "error"
    assert objects(signed.raw) == before
    signed.raw.put(path, right)
    assert signed.content() == ACKNOWLEDGED


@pytest.mark.parametrize("place", [0, 0.5, 1])
@pytest.mark.parametrize("kind", USES)
def test_one_changed_bit(signed: Signed, kind: str, place: float) -> None:
    path = signed.paths(kind)[-1]
    check_refused(signed, kind, path, flipped(signed.raw.read(path), place))


def forge(signed: Signed) -> Store:
    """The root without signatures, as one makes it who has no key, and adds an event to it by the project's own code:
    all checksums of its objects are right."""
    folder = without_signatures(signed.path, signed.folder / "forged")
    with Root.open(str(folder), settings={"maintenance": False}) as root:
        container = root.container(0)
        container.append(S, b" forged")
        if paths := [info.path for info in root.stores.log.list("_system/containers/0/witness/")]:
            root.stores.log.delete(paths)
        container.truncate_log()
        number = root.container_id(0)
        container.flush()
        checkpoints.write(root.stores.log, number, container.head, container.refresh(), largest=200)
        assert container.read(S, 0, container.info(S).length) == ACKNOWLEDGED + b" forged"
    return open_store(str(folder))


TAILS: dict[str, Callable[[str, bytes, bytes], bytes]] = {
    "none": lambda path, data, old: b"",
    "zeros": lambda path, data, old: bytes(SIGNATURE),
    "another key": lambda path, data, old: SigningKey(OTHER, "").sign(path, data),
    "another object": lambda path, data, old: old[-SIGNATURE:],
}
"""What somebody without the key can put in the place of a signature."""


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("kind", USES)
def test_a_forged_object_with_right_checksums(signed: Signed, kind: str, tail: str) -> None:
    forged, ours = forge(signed), signed.paths(kind)[-1]
    [*_, theirs] = [info.path for info in forged.list("_system/containers/0/") if f"/0/{kind}/" in info.path]
    if kind == "wal":
        theirs = behind(ours)
    data, old = forged.read(theirs), signed.raw.read(ours)
    if kind in ("witness", "checkpoint-parts"):  # the checkpoint that names the parts is signed
        check_refused(signed, kind, ours, data + TAILS[tail](ours, data, old))
    else:
        check_added(signed, kind, theirs, data + TAILS[tail](theirs, data, old))


def behind(path: str) -> str:
    """The path of the next address."""
    return f"{path[:-20]}{int(path[-20:]) + 1:020d}"


def check_added(signed: Signed, kind: str, path: str, data: bytes) -> None:
    """As `check_refused`, of an object that was not there before."""
    signed.raw.put(path, data)
    before = objects(signed.raw)
    with pytest.raises(BadSignature, match=f"{re.escape(path)}: its signature does not fit"):
        USES[kind](signed)
    assert objects(signed.raw) == before
    with signed.open() as root:
        assert path in [each.object for each in verify(root).findings]
    signed.raw.delete([path])
    assert signed.content() == ACKNOWLEDGED


def test_without_signatures_the_same_forgery_is_an_event(signed: Signed) -> None:
    """Checksums are no protection: this is why there are signatures."""
    forged = forge(signed)
    plain, frame = without_signatures(signed.path, signed.folder / "plain"), behind(signed.paths("wal")[-1])
    open_store(str(plain)).put(frame, forged.read(frame))
    with Root.open(str(plain), settings={"maintenance": False}) as root:
        assert root.container(0).read(S, 0, root.container(0).info(S).length) == ACKNOWLEDGED + b" forged"


@pytest.mark.parametrize("kind", ["wal", "checkpoints"])
def test_an_object_of_another_address(signed: Signed, kind: str) -> None:
    paths = signed.paths(kind)
    check_added(signed, kind, behind(paths[-1]), signed.raw.read(paths[-1]))


def test_an_object_of_another_container_or_root_with_the_same_key(tmp_path: Path) -> None:
    signed = Signed(tmp_path)
    with signed.open(containers=2) as root:
        for number in (0, 1):
            root.container(number).create_segment(S)
    (tmp_path / "other").mkdir()
    theirs = Signed(tmp_path / "other")
    theirs.fill()
    [frame] = signed.paths("wal")
    own = signed.raw.read(frame)
    for copied in (signed.raw.read(frame.replace("/0/", "/1/")), theirs.raw.read(theirs.paths("wal")[-1])):
        signed.raw.put(frame, copied)
        with signed.open(containers=2) as root, pytest.raises(FrameForged, match="copied from elsewhere"):
            root.container(0)
    signed.raw.put(frame, own)
    with signed.open(containers=2) as root:
        assert root.container(0).info(S).length == 0


def test_payload_that_is_changed_under_a_process_that_reads(signed: Signed) -> None:
    """The frame was applied already: its payload alone is read, by range."""
    frame = signed.paths("wal")[-1]
    with signed.open() as root:
        container = root.container(0)
        assert container.info(S).length == len(ACKNOWLEDGED)
        data = signed.raw.read(frame)
        signed.raw.put(frame, flipped(data, 0))
        with pytest.raises(BadSignature, match=frame):
            container.read(S, 0, len(ACKNOWLEDGED))
        signed.raw.put(frame, data)
        assert container.read(S, 0, len(ACKNOWLEDGED)) == ACKNOWLEDGED


def test_a_process_that_writes_stops_at_a_forged_frame_and_acknowledges_nothing_behind_it(signed: Signed) -> None:
    with signed.open() as root:
        container = root.container(0)
        ahead = behind(signed.paths("wal")[-1])
        signed.raw.put(ahead, signed.raw.read(signed.paths("wal")[-1]))
        with pytest.raises(FrameForged, match=ahead):
            container.append(S, b" never")
        assert signed.paths("wal")[-1] == ahead
    signed.raw.delete([ahead])
    assert signed.content() == ACKNOWLEDGED


def test_frames_before_a_forged_one_are_read(signed: Signed) -> None:
    """They are asked for together with it, by a process that follows the log."""
    with signed.open() as root, signed.open() as other:
        reader, writer = other.container(0), root.container(0)
        for _ in range(5):
            writer.append(S, b" more")
        last = signed.paths("wal")[-1]
        signed.raw.put(behind(last), signed.raw.read(last))
        with pytest.raises(FrameForged, match=behind(last)):
            reader.refresh()
        signed.raw.delete([behind(last)])
        signed.raw.put(behind(behind(last)), signed.raw.read(last))  # behind a gap: the log ends before it
        assert reader.refresh().segments[S].length == len(ACKNOWLEDGED) + 25
        signed.raw.put(behind(last), signed.raw.read(last))
        with signed.open() as third:
            third.repair(0, int(behind(last)[-20:]))
    assert signed.content() == ACKNOWLEDGED + b" more" * 5


def test_only_an_operators_repair_skips_a_forged_frame(signed: Signed) -> None:
    forged = behind(signed.paths("wal")[-1])
    address = int(forged[-20:])
    signed.raw.put(forged, b"anything")
    with signed.open() as root:
        for _ in range(2):
            with pytest.raises(FrameForged, match="container repair"):
                root.container(0)
        assert root.repair(0, address, dry_run=True).damaged == address
        root.repair(0, address)
    with signed.open() as root:
        root.container(0).append(S, b" more")
    assert signed.content() == ACKNOWLEDGED + b" more"
    repair = signed.paths("wal")[-2]
    signed.raw.put(repair, signed.raw.read(repair)[:-SIGNATURE] + bytes(SIGNATURE))
    with signed.open() as root, pytest.raises(FrameForged, match=f"{address:020d}"):
        root.container(0)  # a repair that somebody forges does not count either


def test_a_forged_submission_is_not_carried_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """Its maker goes on: a submission is no evidence, and those of others are carried."""
    company = Company(through=lambda store: SignedStore(store, KEY))
    address = Address(company.maker.log.head.epoch, b"f" * 16, 1, b"%08d" % 1)
    path = submission_path(0, address)
    data = encode(0, address, [[appended(b"forged")]])
    company.simulation.store.put(path, data + SigningKey(OTHER, "").sign(path, data))
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            future = company.owner.submit([appended(b"%d" % number)])
            company.turn()
            assert future.exception() is None
    assert company.containers[-1].read(S, 0, company.containers[-1].info(S).length) == b"012"
    told = [each.getMessage() for each in caplog.records if path in each.getMessage()]
    assert len(told) == 1 and "its signature does not fit" in told[0]


def test_verification_reports_a_forged_submission_as_a_warning(signed: Signed) -> None:
    [path] = signed.paths("inbox")
    signed.raw.put(path, flipped(signed.raw.read(path), 0.9))
    with signed.open() as root:
        [finding] = verify(root).findings
    assert finding.object == path and finding.severity.value == "warning"


# --- the description ----------------------------------------------------------------------------------------------


def refused(signed: Signed, match: str, file: str | None = None) -> str:
    before = objects(signed.raw)
    with pytest.raises(StorageRefused, match=match) as error:
        signed.open(file)
    assert objects(signed.raw) == before
    assert SECRET.hex() not in str(error.value) and OTHER.hex() not in str(error.value)
    return str(error.value)


def test_a_signed_root_needs_its_key(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refused(signed, "is signed with key.*this process has none", file="")
    assert "'signing_key_file'" in told and VARIABLE in told and KEY.id in told
    other = key_file(signed.folder, OTHER)
    told = refused(signed, "give the root's own key", file=other)
    assert KEY.id in told and other in told
    monkeypatch.setenv(VARIABLE, SECRET.hex())
    with signed.open(file="") as root:
        assert root.key is not None and root.container(0).info(S).length == len(ACKNOWLEDGED)
    refused(signed, "give the root's own key", file=other)  # what a program gives itself counts first
    with signed.open() as root, pytest.raises(BadSignature):  # a key with this id, that is none
        SignedStore(signed.raw, SigningKey(OTHER, "")).read(signed.paths("wal")[-1])
        root.close()


def test_a_key_for_a_root_that_is_not_signed_is_refused(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root"), containers=1) as root:
        assert root.config.signed is None and root.key is None
    signed = Signed(tmp_path)
    told = refused(signed, "is not signed, but setting 'signing_key_file'.* gives a signing key")
    assert "restore it from a copy" in told and "give no key" in told


def test_a_description_that_somebody_made_unsigned_is_refused(signed: Signed) -> None:
    description = signed.raw.read(ROOT)
    for changes in ({"signed": None, "signature": None}, {"signed": None}, {"signature": None}):
        signed.raw.put(ROOT, described_as(description, **changes))
        refused(signed, "is not signed|signed with key None|its signature does not fit")
    signed.raw.put(ROOT, description)
    assert signed.content() == ACKNOWLEDGED


@pytest.mark.parametrize(
    "changes",
    [
        {"containers": 2},
        {"wal": "file:///elsewhere"},
        {"recovered": [[0, "a" * 32]]},
        {"id": "b" * 32},
        {"grace_seconds": 0.002},
        {"signature": "00" * 32},
        {"signature": "nothing"},
        {"signature": 7},
        {"max_segments": 5, "optional": {"new": 1}},
    ],
    ids=str,
)
def test_a_changed_description_with_the_right_checksum_is_refused(signed: Signed, changes: dict[str, Any]) -> None:
    description = signed.raw.read(ROOT)
    root = signed.open()
    signed.raw.put(ROOT, described_as(description, **changes))
    refused(signed, f"{ROOT}: its signature does not fit, so somebody without the key has changed it")
    with pytest.raises(StorageRefused, match="its signature does not fit"):
        root.verify()
    root.close()
    signed.raw.put(ROOT, description)
    assert signed.content() == ACKNOWLEDGED


def test_a_description_is_signed_for_its_place(signed: Signed) -> None:
    with signed.open() as root:
        back_up(root, str(signed.folder / "copy"))
    copy = open_store(str(signed.folder / "copy"))
    copy.put(ROOT, copy.read(BACKUP))
    with pytest.raises(StorageRefused, match="its signature does not fit"):
        Root.open(str(signed.folder / "copy"), settings={"signing_key_file": signed.file})


def test_a_recovery_and_a_change_sign_the_description_anew(signed: Signed) -> None:
    with signed.open() as root:
        root.change(max_segments=7)
    with signed.open() as root:
        root.recover(0, force=True)
    with signed.open() as root:
        assert root.config.max_segments == 7 and root.config.signed == KEY.id and len(root.config.recovered) == 1
        assert root.container(0).read(S, 0, 7) == b"flushed"
        assert [each for each in told(verify(root)) if "earlier log" not in str(each)] == []


def test_roots_without_a_key_are_as_ever(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root"), containers=1) as root:
        root.container(0).create_segment(S)
        assert type(root.stores.log) is not SignedStore
    store = open_store(str(tmp_path / "root"))
    assert not {"signed", "signature"} & json.loads(store.read(ROOT)).keys()


# --- a log in a root of its own -------------------------------------------------------------------------------------


def test_a_log_in_a_root_of_its_own_is_signed_with_its_marker(tmp_path: Path) -> None:
    signed, place = Signed(tmp_path), str(tmp_path / "log")
    with signed.open(wal=place) as root:
        root.container(0).create_segment(S)
        root.container(0).append(S, ACKNOWLEDGED)
        assert root.stores.log is not root.stores.chunks
    assert signed.content() == ACKNOWLEDGED
    log = open_store(place)
    marker, others = log.read(ROOT), [path for path in objects(log) if path != ROOT]
    assert others and all(is_signed(path) for path in others)
    fields = json.loads(marker)
    for changes in ({"log_of": "c" * 32}, {"signature": "00" * 32}, {"signed": None, "signature": None}):
        kept = {name: value for name, value in {**fields, **changes}.items() if value is not None}
        log.put(ROOT, json.dumps(kept).encode())
        refused(signed, "signature does not fit|is not signed")
    log.put(ROOT, marker)
    log.put(others[0], flipped(log.read(others[0]), 0.3))
    with signed.open() as root, pytest.raises(BadSignature):
        root.container(0)


# --- backups --------------------------------------------------------------------------------------------------------


def test_a_backup_is_signed_and_restored_with_any_key_or_none(signed: Signed) -> None:
    copy, other = str(signed.folder / "copy"), key_file(signed.folder, OTHER)
    with signed.open() as root:
        back_up(root, copy)
        back_up(root, copy)
    assert json.loads(open_store(copy).read(BACKUP))["signed"] == KEY.id
    for name, key, file in (
        ("same", KEY, signed.file),
        ("rotated", SigningKey(OTHER, ""), other),
        ("plain", None, ""),
    ):
        place = signed.folder / name
        restore(copy, str(place), source_key=KEY, target_key=key)
        with Root.open(str(place), settings={"signing_key_file": file}) as root:
            assert root.config.signed == (key.id if key is not None else None)
            assert root.container(0).read(S, 0, len(ACKNOWLEDGED)) == ACKNOWLEDGED
            root.container(0).append(S, b" more")
            root.container(0).flush()
            assert told(verify(root, deep=True)) == []
    back_up(Root.open(str(signed.folder / "plain")), str(signed.folder / "plain copy"))
    restore(str(signed.folder / "plain copy"), str(signed.folder / "signed again"), target_key=KEY)
    with Root.open(str(signed.folder / "signed again"), settings={"signing_key_file": signed.file}) as root:
        assert root.container(0).info(S).length == len(ACKNOWLEDGED) + 5


def test_a_backup_that_was_changed_is_not_restored(signed: Signed) -> None:
    copy, target = signed.folder / "copy", signed.folder / "new"
    with signed.open() as root:
        back_up(root, str(copy))
    store = open_store(str(copy))
    for key, match in ((None, "this process has none"), (SigningKey(OTHER, "it"), "the root's own key")):
        with pytest.raises(StorageRefused, match=match):
            restore(str(copy), str(target), source_key=key)
    [point] = [path for path in objects(store) if "/recovery-points/" in path]
    right = store.read(point)
    store.put(point, right[:-SIGNATURE])
    with pytest.raises(BadSignature, match=point):
        restore(str(copy), str(target), source_key=KEY, target_key=KEY)
    assert ROOT not in objects(open_store(str(target)))
    store.put(point, right)
    description = store.read(BACKUP)
    store.put(BACKUP, described_as(description, containers=2))
    shutil.rmtree(target)
    with pytest.raises(StorageRefused, match="its signature does not fit"):
        restore(str(copy), str(target), source_key=KEY, target_key=KEY)
    store.put(BACKUP, description)
    with signed.open() as root:
        store.put(point, right[:-1] + b"?")
        root.container(0).append(S, b" more")
        back_up(root, str(copy))  # an update has a newer recovery point, and deletes this one
    restore(str(copy), str(target), source_key=KEY, target_key=KEY)


# --- the rest -------------------------------------------------------------------------------------------------------


def test_gc_works_on_a_signed_root(signed: Signed) -> None:
    with signed.open() as root:
        root.recover(0, force=True)
        root.container(0).append(S, b" again")
        root.container(0).flush()
        collect_garbage(root, find_garbage(root, lambda segment: 0, 0.0))
        assert told(verify(root, deep=True)) == []
        assert root.container(0).read(S, 0, 13) == b"flushed again"


def test_the_key_is_shown_nowhere(signed: Signed, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), signed.open() as root:
        settings = Settings(signing_key_file=signed.file)
        shown = [repr(root), repr(vars(root)), repr(root.config), repr(settings), repr(root.stores)]
        shown.append(repr(pickle.loads(pickle.dumps((root.config, settings)))))
        pickled = pickle.dumps((root.config, settings, root.container_id(0)))
    with pytest.raises(BadSignature) as error:
        SignedStore(signed.raw, SigningKey(OTHER, "")).read(signed.paths("wal")[-1])
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is BadSignature and str(again) == str(error.value)
    for secret in (SECRET, OTHER):
        for text in (*shown, caplog.text, str(error.value), repr(error.value)):
            assert secret.hex() not in text and repr(secret) not in text
        assert secret not in pickled and secret.hex().encode() not in pickled
        for data in objects(signed.raw).values():
            assert secret not in data and secret.hex().encode() not in data


def test_signatures_cost_no_requests(tmp_path: Path) -> None:
    """The same work, signed and not; reads of log objects have more bytes."""

    def requests(signs: bool) -> list[tuple[str, int]]:
        simulation = Simulation()
        counting = CountingStore(simulation.store)
        container = simulation.open(through=SignedStore(counting, KEY) if signs else counting)
        container.create_segment(S)
        for number in range(20):
            container.append(S, b"%d" % number)
        container.flush()
        container.checkpoint()
        container.append(S, b"end")
        other = simulation.open(through=SignedStore(counting, KEY) if signs else counting)
        assert other.read(S, 0, other.info(S).length) == container.read(S, 0, container.info(S).length)
        simulation.advance(2000.0)
        container.truncate_log()
        container.collect_garbage()
        return [(request.verb, len(path.split("/"))) for request in counting.requests for path in request.paths]

    assert requests(True) == requests(False)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_request_loses_nothing(when: Any) -> None:
    with small_sizes():
        number, crashed = 0, True
        while crashed:
            number += 1
            simulation = Simulation()
            with simulation.open(through=SignedStore(simulation.store, KEY)) as first:
                first.create_segment(S)
            faults = FaultStore(simulation.store)
            acknowledged, crashed = b"", False
            container = simulation.open(through=SignedStore(faults, KEY))
            faults.plan = crash_at(faults.passed + number, when)
            try:
                for each in range(6):
                    container.append(S, b"%d" % each * 40)
                    acknowledged += b"%d" % each * 40
                    if each % 3 == 2:
                        container.flush()
            except Crashed:
                crashed = True
            survivor = simulation.open(through=SignedStore(simulation.store, KEY))
            found = survivor.read(S, 0, survivor.info(S).length)
            assert found[: len(acknowledged)] == acknowledged and len(found) - len(acknowledged) in (0, 40)
            survivor.append(S, b"after")
            survivor.flush()
            audit(survivor.refresh())
    assert number > 10
