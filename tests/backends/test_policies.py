"""The policies of examples/policies: each role can do its work, and nothing else, on every server that there is.

Who evaluates the policy differs. `enforced_by` says it for each case: a server, or `tests.support.policy_proxy`, which
evaluates the file for each HTTP request on its way to a server that has no such policies.
"""

from __future__ import annotations

import json
import os
import pwd
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StringType, StructType

from chunkstore import ObjectInfo, StorageRefused, Store, open_store
from engine.logs.log import checkpoints_folder, frames_folder
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter
from tests.cli.test_cli import run
from tests.spark.folder import read_all
from tests.support.azurite import Azurite
from tests.support.gcs_server import GcsServer
from tests.support.policies import ROLES, policy, rights_in
from tests.support.policy_proxy import PolicyProxy
from tests.support.rados_gateway import RadosGateway
from tests.support.s3_server import S3Server
from tests.support.servers import Server
from tests.support.wsgi_server import ServerFault

APPENDS = {"maintenance": False}
"""The settings of a writer that may not delete."""

EVENTS = [f"event {number}" for number in range(50)]
LARGE = ["x" * 100_000 for _ in range(60)]
"""More than `attach_bytes`: they are written as chunks."""


class Case(NamedTuple):
    """A root on a server, and how the roles reach it."""

    bucket: str
    admin: dict[str, Any]
    options_of: Callable[[str], dict[str, Any]]
    denied: str
    """What the error of a write without the right names."""
    undeletable: str
    overwrites_log: bool = False
    """Whether the writer could overwrite frames, as the server does not know the condition that forbids it."""
    proxies: dict[str, PolicyProxy] = {}  # noqa: RUF012 - of this case
    provider: str = ""

    @property
    def url(self) -> str:
        return f"{self.bucket}/streams"

    @property
    def name(self) -> str:
        return self.bucket.partition("://")[2]

    def manager(self, role: str, **how: Any) -> StreamManager:
        return StreamManager(self.url, create=False, **how, **self.options_of(role))

    def cli(self, role: str, *arguments: str, code: int = 0) -> str:
        storage = [f"--storage={name}={_text(value)}" for name, value in self.options_of(role).items()]
        result = run(*storage, *arguments, root=self.url, code=code)
        return result.stderr if code else result.stdout

    def store(self, role: str) -> Store:
        return open_store(self.url, self.options_of(role))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def proxies_of(provider: str, server: Server, bucket: str, stack: ExitStack) -> dict[str, PolicyProxy]:
    """A proxy for each role, which evaluates its policy, before a server."""
    name = bucket.partition("://")[2]
    return {role: stack.enter_context(PolicyProxy(server, provider, role, name, "streams")) for role in ROLES}


def on_moto(request: pytest.FixtureRequest, stack: ExitStack, client: str = "s3fs") -> Case:
    """S3: the policy is evaluated by the proxy."""
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = server.make_bucket()
    proxies = proxies_of("s3", server, bucket, stack)
    chosen = {} if client == "s3fs" else {"client": client}
    return Case(
        bucket,
        server.storage_options(),
        lambda role: {**proxies[role].storage_options(), **chosen},
        "s3:PutObject",
        "s3:DeleteObject",
        proxies=proxies,
        provider="s3",
    )


def on_moto_by_obstore(request: pytest.FixtureRequest, stack: ExitStack) -> Case:
    return on_moto(request, stack, "obstore")


def on_rados(request: pytest.FixtureRequest, stack: ExitStack) -> Case:
    """S3: the gateway evaluates the policy, but for its condition on If-None-Match, which it does not know. It checks
    the right to delete several objects at once on the bucket."""
    server: RadosGateway = request.getfixturevalue("rados_gateway")
    bucket = server.make_bucket()
    name, options = bucket.partition("://")[2], {}
    for role in ROLES:
        known = policy(f"s3-{role}", name)
        known["Statement"] = [each for each in known["Statement"] if "Condition" not in each]
        for statement in known["Statement"]:
            if "s3:DeleteObject" in statement["Action"]:
                statement["Resource"] = [statement["Resource"], f"arn:aws:s3:::{name}"]
        options[role] = server.make_user(known)
    everything = {"Effect": "Allow", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]}
    # The owner of a bucket may not read what another user puts there.
    admin = server.make_user({"Version": "2012-10-17", "Statement": [everything]})
    case = Case(bucket, admin, options.__getitem__, "s3:PutObject", "s3:DeleteObject")
    return case._replace(overwrites_log=True)


def on_gcs(request: pytest.FixtureRequest, stack: ExitStack) -> Case:
    """Google Cloud Storage: the role and its condition are evaluated by the proxy."""
    server: GcsServer = request.getfixturevalue("gcs_server")
    bucket = server.make_bucket()
    proxies = proxies_of("gcs", server, bucket, stack)
    return Case(
        bucket,
        server.storage_options(),
        lambda role: proxies[role].storage_options(),
        "storage.objects.create",
        "storage.objects.delete",
        proxies=proxies,
        provider="gcs",
    )


def on_azure(request: pytest.FixtureRequest, stack: ExitStack) -> Case:
    """Azure: the custom roles are evaluated by the proxy."""
    server: Azurite = request.getfixturevalue("azurite")
    bucket = server.make_bucket()
    name, proxies = bucket.partition("://")[2], proxies_of("azure", server, bucket, stack)
    return Case(
        bucket,
        server.storage_options(),
        lambda role: server.sas_options(name, "racwdl", proxies[role].endpoint),
        "blobs/add/action",
        "blobs/delete",
        proxies=proxies,
        provider="azure",
    )


def on_azure_by_sas(request: pytest.FixtureRequest, stack: ExitStack) -> Case:
    """Azure: Azurite evaluates a SAS with the letters of each role."""
    server: Azurite = request.getfixturevalue("azurite")
    bucket = server.make_bucket()
    letters = policy("azure-sas", "")
    name = bucket.partition("://")[2]
    options = {role: server.sas_options(name, letters[role]) for role in ROLES}
    return Case(bucket, server.storage_options(), options.__getitem__, "c and w in a SAS", "d in a SAS")


CASES = (on_moto, on_moto_by_obstore, on_rados, on_gcs, on_azure, on_azure_by_sas)


@pytest.fixture(scope="module", params=CASES, ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """A root with a stream of events, of which some are flushed, beside an object of somebody else."""
    with ExitStack() as stack:
        made: Case = request.param(request, stack)
        other = open_store(f"{made.bucket}/other", made.admin)
        other.put("secret", b"of another tenant")
        other.close()
        Root.open(made.url, made.admin, containers=1).close()
        with StreamManager(made.url, **made.admin) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "st", 2)
            with manager.create_writer("sc", "st") as writer:
                for number, event in enumerate(EVENTS):
                    writer.write_event(event, str(number % 5))
            manager.root.container(0).flush()
        yield made


@pytest.fixture
def admin(case: Case) -> Iterator[Store]:
    store = open_store(case.url, case.admin)
    yield store
    store.close()


def content(store: Store) -> dict[str, tuple[ObjectInfo, bytes]]:
    return {info.path: (info, store.read(info.path)) for info in store.list("")}


def data(case: Case, role: str, stream: str = "st") -> list[str]:
    with case.manager(role) as manager:
        return sorted(bytes(event.data).decode() for event in manager.read_events("sc", stream))


pytestmark = pytest.mark.server


def test_a_reader_reads(case: Case, admin: Store) -> None:
    before = content(admin)
    assert data(case, "reader") == sorted(EVENTS)
    with case.manager("reader") as manager:
        assert manager.to_arrow("sc", "st").num_rows == len(EVENTS)
        assert len(list(islice(manager.tail("sc", "st", "earliest"), len(EVENTS)))) == len(EVENTS)
        assert manager.stream_info("sc", "st").events == len(EVENTS)
        assert manager.list_stream("sc") == ["st"]
    case.cli("reader", "verify")
    assert content(admin) == before


def test_a_reader_changes_nothing(case: Case, admin: Store) -> None:
    before = content(admin)
    attempts: list[Callable[[StreamManager], object]] = [
        lambda manager: manager.create_scope("another"),
        lambda manager: manager.create_stream("sc", "another"),
        lambda manager: manager.write_events("sc", "st", pa.table({"event": ["one"]})),
        lambda manager: manager.write_events("sc", "st", pa.table({"event": LARGE})),
        lambda manager: manager.seal_stream("sc", "st"),
        lambda manager: manager.root.container(0).flush(),
    ]
    for attempt in attempts:
        with case.manager("reader") as manager, pytest.raises(StorageRefused, match=case.denied):
            attempt(manager)
    path = next(iter(before))
    store = case.store("reader")
    with pytest.raises(StorageRefused, match=case.undeletable):
        store.delete([path])
    with pytest.raises(StorageRefused, match=case.denied):
        store.put("sc/st/new", b"new")
    store.close()
    assert content(admin) == before


def test_a_writer_appends(case: Case) -> None:
    with case.manager("writer", settings=APPENDS) as manager:
        manager.create_stream("sc", "written", 2)
        with manager.create_writer("sc", "written") as writer:
            for number, event in enumerate(EVENTS):
                writer.write_event(event, str(number % 5))
        manager.write_events("sc", "written", pa.table({"event": LARGE}))
        transaction = manager.create_transaction_writer("sc", "written").begin_txn()
        transaction.write_event("in a transaction")
        transaction.commit()
        with manager.begin_event("sc", "written") as upload:
            upload.write(b"y" * (9 << 20))
            upload.commit()
    assert len(data(case, "reader", "written")) == len(EVENTS) + len(LARGE) + 2
    case.cli("reader", "verify")


def test_a_lost_answer_to_an_upload_needs_no_right_to_overwrite(case: Case) -> None:
    """The client repeats it, and is refused: its own object is there."""
    if case.provider in ("gcs", "azure"):
        proxy, store = case.proxies["writer"], case.store("writer")
        proxy.add_fault(ServerFault("POST" if case.provider == "gcs" else "PUT", "sc", after=True, count=1))
        store.put("sc/st/repeated", b"once")
        assert store.read("sc/st/repeated") == b"once"
        with pytest.raises(StorageRefused, match="no permission"):
            store.put("sc/st/repeated", b"other")
        store.close()


def test_a_task_that_may_not_delete_reports_its_own_error(case: Case) -> None:
    """Its chunks are left to garbage collection, which finds what no record names."""
    storage = {f"storage.{name}": _text(value) for name, value in case.options_of("writer").items()}
    options = {"controller": case.url, "scope": "sc", "stream": "st", "settings": "maintenance=false", **storage}
    schema = StructType().add("event", BinaryType()).add("routing_key", StringType())

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield pa.RecordBatch.from_pydict({"event": pa.array([event.encode() for event in LARGE * 2], pa.binary())})
        raise ZeroDivisionError("of the task")

    with pytest.raises(ZeroDivisionError, match="of the task"):
        BatchWriter(SourceOptions.parse(options), schema).write(batches())


@pytest.mark.timeout(400)
def test_spark_of_a_reader_and_a_writer(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A batch and a streaming write without the rights to delete and to overwrite frames, and reads without any."""
    with ExitStack() as stack:
        case = on_moto(request, stack)
        Root.open(case.url, case.admin, containers=1).close()

        def options(role: str) -> dict[str, Any]:
            storage = {f"storage.{name}": _text(value) for name, value in case.options_of(role).items()}
            settings = {"settings": "maintenance=false"} if role == "writer" else {}
            never = {} if role == "writer" else {"allow_create_scope": False, "allow_create_stream": False}
            return {"controller": case.url, "scope": "s", **never, **settings, **storage}

        def count(stream: str) -> int:
            return spark.read.format("pravega").options(stream=stream, **options("reader")).load().count()

        rows = spark.range(0, 4_000, 1, 2).selectExpr("concat(cast(id AS string), repeat('.', 2000)) AS event")
        rows.write.format("pravega").options(stream="in", **options("writer")).mode("append").save()
        source = spark.readStream.format("pravega").options(
            stream="in", start_stream_cut="earliest", **options("reader")
        )
        sink = source.load().selectExpr("event").writeStream.format("pravega")
        read_all(sink.options(stream="out", **options("writer")).option("checkpointLocation", str(tmp_path / "c")))
        assert (count("in"), count("out")) == (4_000, 4_000)
        with pytest.raises(Exception, match="s3:PutObject"):
            rows.write.format("pravega").options(stream="in", **options("reader")).mode("append").save()
        assert count("in") == 4_000


def test_a_writer_overwrites_and_deletes_nothing(case: Case, admin: Store) -> None:
    before = content(admin)
    store = case.store("writer")
    with Root.open(case.url, case.admin, create=False) as root:
        container = root.container_id(0)
    frames, checkpoints = (list(admin.list(folder(container))) for folder in (frames_folder, checkpoints_folder))
    guarded = [frames[-1].path, "_system/pravega.json"] if not case.overwrites_log else ["_system/pravega.json"]
    for path in [*guarded, *[info.path for info in checkpoints]]:
        with pytest.raises(StorageRefused, match="no permission"):
            store.put(path, b"damaged")
    for path in before:
        with pytest.raises(StorageRefused, match=case.undeletable):
            store.delete([path])
    store.close()
    assert content(admin) == before


def test_maintenance_without_the_rights_for_it_damages_nothing(case: Case, admin: Store) -> None:
    """A writer that does not set maintenance=False, and the commands that delete."""
    with case.manager("writer") as manager:
        manager.create_stream("sc", "maintained")
        manager.write_events("sc", "maintained", pa.table({"event": EVENTS}))
    before = content(admin)
    assert "no permission" in case.cli("writer", "container", "flush", code=1)
    kept = content(admin)
    assert {path: kept[path] for path in before} == before
    case.cli("maintainer", "verify")
    assert data(case, "reader", "maintained") == sorted(EVENTS)


def test_a_maintainer_maintains(case: Case, admin: Store) -> None:
    with case.manager("maintainer") as manager:
        manager.create_stream("sc", "doomed")
        manager.write_events("sc", "doomed", pa.table({"event": LARGE}))
        manager.seal_stream("sc", "doomed")
        manager.delete_stream("sc", "doomed")
    case.cli("maintainer", "maintain", "--verify", "--yes")
    case.cli("maintainer", "gc", "--yes")
    with case.manager("maintainer") as manager:
        manager.backup(f"{case.bucket}/backup", case.admin)
    assert data(case, "reader") == sorted(EVENTS)


def test_no_role_reaches_other_objects_of_the_bucket(case: Case) -> None:
    if case.provider in ("azure", "") and "abfs" in case.url:
        pytest.skip("on Azure, the scope of the roles is the container")
    for role in ROLES:
        other = open_store(f"{case.bucket}/other", case.options_of(role))
        attempts: list[Callable[[Store], object]] = [
            lambda store: store.read("secret"),
            lambda store: store.put("secret", b"damaged"),
            lambda store: store.put("new", b""),
            lambda store: store.delete(["secret"]),
        ]
        for attempt in attempts:
            with pytest.raises(StorageRefused, match="no permission"):
                attempt(other)
        other.close()


def test_no_role_has_a_right_that_it_does_not_use(case: Case) -> None:
    """Runs after the other tests of the case."""
    for role, proxy in case.proxies.items():
        allowed, _ = proxy.needs
        assert rights_in(case.provider, role) - allowed <= {"s3:AbortMultipartUpload"}, role


def outcomes(url: str) -> list[str]:
    """What a reader of a folder does, and the errors of what it must not do."""
    found = []
    with StreamManager(url, create=False) as manager:
        found.append(str(len(list(manager.read_events("sc", "st")))))
    attempts: list[Callable[[StreamManager], object]] = [
        lambda manager: manager.create_stream("sc", "another"),
        lambda manager: manager.write_events("sc", "st", pa.table({"event": EVENTS})),
    ]
    for attempt in attempts:
        with StreamManager(url, create=False) as manager:
            try:
                attempt(manager)
                found.append("done")
            except StorageRefused as error:
                found.append(str(error))
    return found


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_a_reader_of_a_folder_who_is_another_user() -> None:
    """On a folder the kernel evaluates the rights; the folders of pytest are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="streams-") as folder:
        Path(folder).chmod(0o755)
        for name in ("root", "mine"):
            Root.open(f"{folder}/{name}", containers=1).close()
            with StreamManager(f"{folder}/{name}") as manager:
                manager.create_scope("sc")
                manager.create_stream("sc", "st")
                manager.write_events("sc", "st", pa.table({"event": EVENTS}))
        assert outcomes(f"{folder}/mine")[1:] == ["done", "done"], "which also imports all that the other user needs"
        store = open_store(f"{folder}/root")
        before = content(store)
        count, *errors = as_nobody(lambda: outcomes(f"{folder}/root"))
        assert int(count) == len(EVENTS)
        assert all("no write permission" in error for error in errors), errors
        assert content(store) == before
        store.close()


def as_nobody(work: Callable[[], list[str]]) -> list[str]:
    """What `work` returns in a process of the user nobody, which may be unable to read the modules' files."""
    user, (end, other) = pwd.getpwnam("nobody"), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which are of no concern here
        child = os.fork()
    if not child:
        found = ["failed"]
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            found = work()
        except BaseException as error:
            found = [repr(error)]
        finally:
            os.write(other, json.dumps(found).encode())
            os._exit(0)
    os.close(other)
    with os.fdopen(end, "rb") as answer:
        result: list[str] = json.load(answer)
    os.waitpid(child, 0)
    return result
