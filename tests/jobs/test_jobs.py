"""The jobs: as functions, and as programs with their exit codes."""

import json
import re
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from chunkstore import StorageUnavailable
from chunkstore.testing import CountingStore, SimulatedStore
from chunkstore.testing.latency import LatencyStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager, StreamRetentionPolicy, StreamScalingPolicy
from pravega_spark.cli.main import cli
from pravega_spark.jobs import imports, maintain, retention, spread, truncate, work
from pravega_spark.jobs.outcome import JobOutcome, failures
from pravega_spark.jobs.spread import Target
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance import retention as rules
from pravega_spark.streams.model.names import container_of
from pravega_spark.streams.writing import transactions
from tests.archives import CHUNKED, case, laid_out
from tests.clocks import moved_on


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A root with a stream that keeps 100 bytes, one that keeps all, and one of another scope."""
    with StreamManager(str(tmp_path)) as manager:
        for scope in ("one", "two"):
            manager.create_scope(scope)
        fixed = StreamScalingPolicy.fixed_scaling_policy(2)
        manager.create_stream_with_policy("one", "short", fixed, StreamRetentionPolicy.by_size(100))
        manager.create_stream("one", "long", 1)
        manager.create_stream("two", "other", 1)
        for scope, name in (("one", "short"), ("one", "long"), ("two", "other")):
            with manager.create_writer(scope, name) as writer:
                for number in range(50):
                    writer.write_event(f"event {number:04d}", f"{number % 7}")
    return str(tmp_path)


def sizes(url: str) -> dict[str, int]:
    with StreamManager(url) as manager:
        return {
            f"{scope}/{name}": manager.stream_info(scope, name).size
            for scope in manager.list_scope()
            for name in manager.list_stream(scope)
        }


WHOLE = 50 * (10 + 8)


def test_a_dry_run_tells_of_transactions_that_the_run_then_aborts() -> None:
    with Root.open(f"memory://{uuid.uuid4()}", containers=1) as root:
        catalog = Catalog(root)
        catalog.create_scope("sc")
        catalog.create_stream("sc", "st")
        stream = catalog.stream("sc", "st")
        transaction, _ = transactions.begin(stream, 0.001)
        moved_on(root.stores.chunks)
        moved_on(root.stores.chunks)
        told = work.expire(stream, dry_run=True)
        assert told.changed and str(transaction.id) in told.detail
        assert transaction.record().status == "open"
        done = work.expire(stream, dry_run=False)
        assert done.changed and transaction.record().status == "aborted"


def test_maintenance_flushes_all_containers() -> None:
    with Root.open(f"memory://{uuid.uuid4()}", containers=3, settings=Settings(maintenance=False)) as root:
        containers = [root.container(number) for number in range(3)]
        for container in containers:
            container.create_segment("s/a")
            container.append("s/a", b"only in the log")
        assert not failures(list(maintain.maintain(root)))
        assert [container.info("s/a").storage_length for container in containers] == [15] * 3


def test_retention_keeps_what_the_policy_says(url: str) -> None:
    assert [done.step for done in retention.run(Target(url))] == ["retention"] * 3
    assert sizes(url) == dict.fromkeys(["one/short", "one/long", "two/other"], WHOLE)  # one cut is recorded
    with StreamManager(url) as manager, manager.create_writer("one", "short") as writer:
        for _ in range(10):
            writer.write_event("another event", "key")
    told = retention.run(Target(url, "one"), dry_run=True, period=0)
    assert sizes(url)["one/short"] == WHOLE + 210 and not failures(told)
    done = retention.run(Target(url, "one"), period=0)
    assert {(one.scope, one.stream) for one in done} == {("one", "short"), ("one", "long")}
    assert [one.bytes for one in done if one.changed] == [WHOLE]
    assert sizes(url) == {"one/short": 210, "one/long": WHOLE, "two/other": WHOLE}


def test_truncation_before_a_time_and_at_a_cut(url: str) -> None:
    assert not any(one.changed for one in truncate.run(Target(url), at="1999-12-31"))
    told = truncate.run(Target(url, "one"), at="now", dry_run=True)
    assert [one.bytes for one in told] == [WHOLE, WHOLE] and set(sizes(url).values()) == {WHOLE}
    with StreamManager(url) as manager:
        info = manager.stream_info("two", "other")
        cut = manager.next_stream_cut("two", "other", info.head, 1).as_text()
    assert truncate.run(Target(url, "two", "other"), at=cut)[0].changed
    assert not truncate.run(Target(url, "two", "other"), at=cut)[0].changed
    refused = failures(truncate.run(Target(url, "one"), at="2999-01-01"))
    assert len(refused) == 2 and all("2999-01-01 00:00:00 UTC is in the future" in str(one.error) for one in refused)
    assert sizes(url)["one/short"] == WHOLE
    assert truncate.run(Target(url, "one"), at="now")
    assert sizes(url)["one/short"] == sizes(url)["one/long"] == 0
    for wrong in (cut, "soon"):
        with pytest.raises(ValueError, match=r"belongs to one stream|is no place in a stream"):
            truncate.run(Target(url), at=wrong)
    assert failures(truncate.run(Target(url, "one", "long"), at=cut))  # a cut of another stream


def test_maintenance_takes_care_of_all(url: str) -> None:
    done = maintain.run(Target(url), check=True)
    assert not failures(done)
    about_root = [one.step for one in done if not one.stream]
    assert about_root == ["flush", "compaction", "garbage", "verify"]
    assert {one.step for one in done if one.stream} == {"retention", "scaling", "transactions"}
    dry = [one.step for one in maintain.run(Target(url), dry_run=True) if not one.stream]
    assert dry == ["flush", "compaction", "garbage"]
    assert set(sizes(url).values()) == {WHOLE}


def test_maintenance_leaves_orphans_alone_for_as_long_as_it_is_told(url: str) -> None:
    with Root.open(url) as root:
        for number in range(3):
            root.stores.chunks.put(f"one/long/0.#epoch.0.E-0-O-{number}.{uuid.UUID(int=0)}", b"orphan")
        written = root.stores.chunks.clock()
        while root.stores.chunks.clock() == written:
            pass

    def garbage(*more: str) -> dict[str, str]:
        result = CliRunner().invoke(maintain.main, ["--root", url, "--dry-run", "--json", *more])
        return next(row for row in json.loads(result.stdout)["outcomes"] if row["step"] == "garbage")

    for young in ([], ["--orphan-age", "3600"]):
        assert garbage(*young)["detail"].startswith("0 orphans")
    assert "3 of 3 objects are orphans" in garbage("--orphan-age", "0")["error"]
    assert CliRunner().invoke(maintain.main, ["--root", url, "--orphan-age", "-1"]).exit_code == 2


def test_one_that_fails_does_not_keep_the_others(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rules.retain

    def failing(stream: object, *arguments: object, **named: object) -> object:
        if stream.name == "long":  # type: ignore[attr-defined]
            raise ValueError("it does not want to")
        return real(stream, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rules, "retain", failing)
    done = retention.run(Target(url))
    assert failures(done) == [JobOutcome("one", "long", "retention", error="it does not want to")] and len(done) == 3


def test_programs_end_as_schedulers_expect(url: str) -> None:
    runner = CliRunner()
    for program in (retention.main, truncate.main, maintain.main):
        result = runner.invoke(program, ["--help"])
        assert result.exit_code == 0 and "--dry-run" in result.output and "streams" in result.output
        for wrong in (["--root", url, "--what"], []):
            result = runner.invoke(program, wrong)
            assert result.exit_code == 2 and len(result.output.strip().splitlines()) == 1, result.output
    before = sizes(url)
    call = ["--root", url, "--scope", "one", "--at", "now"]
    result = runner.invoke(truncate.main, call)
    assert result.exit_code == 1 and "nothing was changed: give --yes" in result.stderr
    assert "2 would change something" in result.stdout and sizes(url) == before
    assert runner.invoke(truncate.main, [*call, "--dry-run", "--yes"]).exit_code == 0 and sizes(url) == before
    result = runner.invoke(truncate.main, [*call, "--json", "--yes"])
    assert result.exit_code == 0 and sizes(url) != before
    assert {row["bytes"] for row in json.loads(result.output)["outcomes"]} == {WHOLE}
    assert runner.invoke(truncate.main, ["--root", url, "--yes"]).exit_code == 2


@pytest.mark.parametrize("program", [retention.main, truncate.main, maintain.main], ids=lambda program: program.name)
def test_helps_speak_of_options_only(program: click.Command) -> None:
    text = CliRunner().invoke(program, ["--help"]).output
    assert "[COMMAND]" not in text and "`" not in text and "run again" not in text
    names = [line.split()[0] for line in text.split("Options:")[1].splitlines() if line.strip().startswith("--")]
    assert names[0] == "--root" and "--yes" in names
    for parameter in ("orphan_age", "on_cluster", "dry_run", "spark:", "check:", "period:"):
        assert parameter not in text


def test_jobs_have_the_options_of_all_commands_anywhere_and_an_example() -> None:
    common = {"--root", "--wal", "--storage", "--json", "--wide", "--traceback"}
    for program in (retention.main, truncate.main, maintain.main):
        short = CliRunner().invoke(program, ["-h"], terminal_width=80)
        assert short.exit_code == 0 and common <= {*re.findall(r"--[a-z]+", short.output)}
        assert f"Example:\n    python -m pravega_spark.jobs.{program.name} --root " in short.output
        assert "<=" not in short.output and max(map(len, short.output.splitlines())) <= 80


def test_tables_of_jobs_fit_80_columns_and_have_units(url: str) -> None:
    call = ["--at", "now", "--dry-run"]
    for given in (["--root", url, *call], [*call, "--root", url]):
        told = CliRunner(env={"COLUMNS": "80"}).invoke(truncate.main, given)
        assert told.exit_code == 0 and all(len(line.rstrip()) <= 80 for line in told.output.splitlines())
        expected = r"one/long +50 +[0-9.]+ (bytes|KiB) +0\.0 at 0 +would truncate at 0\.0 at 900"
        flat = " ".join(re.sub(r"(?m)^(stream|events|size|old head|what) ", "", told.output).split())
        assert re.search(expected, flat), told.output
        assert re.search(r"\n\n3 steps: [^\n]+\n$", told.output), "the total is no part of the last record"


JOBS = [retention.main, truncate.main, maintain.main, imports.main]


@pytest.mark.parametrize("program", JOBS, ids=lambda program: program.name)
def test_what_is_selected_wrongly_is_refused_before_anything_is_done(
    url: str, program: click.Command, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = laid_out(case(CHUNKED).objects, tmp_path_factory.mktemp("source"))
    needed = {"truncate": ["--at", "tail"], "imports": ["--source", str(source), "--copy"]}.get(str(program.name), [])
    with Root.open(url) as root:
        before = {name: root.container(name).state.sequence for name in range(root.config.containers)}
    for wrong, code, told in (
        (["--stream", "long"], 2, r"--stream long is not SCOPE/STREAM: give the scope of the stream, or --scope"),
        (["--scope", "a/b"], 2, r"a/b"),
        (["--scope", "one", "--stream", "a/b"], 2, r"--stream a/b is not in scope one: leave --scope out"),
        (["--stream", "one/lo_ng"], 2, r"lo_ng"),
        (["--stream", "one/lonng"], 1, r"one"),
        (["--scope", "onne"], 1, r"[Ss]cope (does not exist: )?onne"),
        (["--scope", "onne", "--stream", "long"], 1, r"onne"),
        (["--scope", "one", "--stream", "lonng"], 1, r"one"),
    ):
        result = CliRunner().invoke(program, ["--root", url, "--yes", *needed, *wrong])
        assert result.exit_code == code and result.stdout == "", (wrong, result.output)
        assert result.stderr.startswith("pravega-spark: " if code == 1 else "Error: "), result.stderr
        assert re.search(told, result.stderr) and result.stderr.count("\n") == 1
    with Root.open(url) as root:
        assert before == {name: root.container(name).state.sequence for name in range(root.config.containers)}


@pytest.mark.parametrize(
    "selection",
    [["--scope", "one", "--stream", "long"], ["--stream", "one/long"], ["--scope", "one", "--stream", "one/long"]],
    ids=" ".join,
)
def test_a_stream_is_selected_by_its_name_or_by_scope_and_name(url: str, selection: list[str]) -> None:
    for program, command in ((maintain.main, []), (cli, ["maintain"])):
        told = CliRunner().invoke(program, ["--root", url, "--json", *command, *selection, "--dry-run"]).stdout
        found = json.loads(told).get("maintain", json.loads(told))["outcomes"]
        assert {(row["scope"], row["stream"]) for row in found} == {("one", "long"), (None, None)}


def test_streams_that_do_not_change_are_told_with_the_reason(url: str) -> None:
    assert CliRunner().invoke(retention.main, ["--root", url, "--yes"]).exit_code == 0
    for how in ("--dry-run", "--yes"):
        told = CliRunner().invoke(retention.main, ["--root", url, "--scope", "one", how]).stdout
        assert re.search(r"one/long +the stream has no retention policy", told)
        why = "the last recorded cut is [0-9]+ s old, and cuts are recorded every 30 min: give a shorter --period to"
        assert re.search(rf"one/short +{why} record one now", told)
        assert re.search(r"\n2 steps: 0 \w+( change)? something, 2 (would|did) not, 0 failed\n$", told)
    job, command = (
        json.loads(CliRunner().invoke(program, ["--root", url, "--json", *words, "--dry-run"]).stdout)
        for program, words in ((maintain.main, []), (cli, ["maintain"]))
    )
    assert job == command["maintain"], "one document"
    assert [row["stream"] for row in job["outcomes"]][-1] is None
    head = CliRunner().invoke(truncate.main, ["--root", url, "--at", "head", "--yes"]).stdout
    assert re.search(r"two/other +nothing lies before 0\.0 at 0", head)
    assert "3 steps: 0 changed something, 3 did not, 0 failed" in head
    some = CliRunner().invoke(maintain.main, ["--root", url, "--dry-run"]).stdout
    assert re.search(r"\n the root   flush .* would flush 4 containers *\n *\n12 steps: 1 would change", some)
    assert "one/" not in some, "of everything, only what changes"


def test_a_dry_run_of_truncation_fails_where_the_run_does(url: str) -> None:
    with StreamManager(url) as manager:
        manager.seal_stream("one", "long")
    told, done = (truncate.run(Target(url, "one", "long"), at="tail", dry_run=dry) for dry in (True, False))
    assert told == done == failures(told) and "is sealed" in str(told[0].error)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["retention", "truncate", "maintain"])
def test_jobs_run_by_their_module_names(url: str, name: str) -> None:
    extra = ["--at", "1999-01-01"] if name == "truncate" else []
    command = [sys.executable, "-m", f"pravega_spark.jobs.{name}", "--root", url, "--dry-run", *extra]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and " steps: " in done.stdout, done.stderr


def test_nothing_shows_storage_options() -> None:
    assert "secret" not in repr(Target("s3://bucket", storage={"secret": "secret"}))


def test_streams_that_cannot_be_looked_at_are_told_and_the_others_done(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Root.open(url) as root:
        found = spread.names(root)
        broken = container_of("one/long", root.config.containers)
        beside = {name for scope, name in found if container_of(f"{scope}/{name}", root.config.containers) == broken}

        def failing() -> object:
            raise StorageUnavailable("nothing is heard of the storage")

        monkeypatch.setattr(root.container(broken), "refresh", failing)
        done = list(
            spread.over_named(root, found, {"look": lambda stream: JobOutcome(stream.scope, stream.name, "look")})
        )
    assert [(one.scope, one.stream) for one in done] == found and "long" in beside != {name for _, name in found}
    assert {one.stream for one in failures(done)} == beside


def test_what_is_done_for_many_streams_leaves_together() -> None:
    simulated = SimulatedStore(0)
    simulated.now = time.time()
    store = CountingStore(LatencyStore(simulated, 0.0005))
    root = Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False))
    catalog, count = Catalog(root), 200
    catalog.create_scope("s")
    for number in range(count):
        catalog.create_stream("s", f"stream-{number:03}", retention=StreamRetentionPolicy.by_size(100))
    store.reset()
    done = list(
        spread.over_named(root, spread.names(root), {"retention": partial(work.retain, dry_run=False, period=1800.0)})
    )
    assert [one.stream for one in done] == [f"stream-{number:03}" for number in range(count)]
    assert all(one.detail.startswith("recorded") for one in done)
    assert store.count("put_if_absent") < count / 2
    root.close()


@pytest.mark.parametrize("dry_run", [True, False])
def test_streams_of_which_nothing_is_due_cost_no_request(dry_run: bool) -> None:
    """However many streams there are: each container is looked at once. One stream is young, one scaled by hand."""
    simulated = SimulatedStore(0)
    simulated.now = time.time()
    store = CountingStore(simulated)
    root = Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False))
    catalog = Catalog(root)
    catalog.create_scope("s")
    policies = [
        None,
        StreamScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 1),
        StreamScalingPolicy.fixed_scaling_policy(2),
    ]

    def requests() -> int:
        store.reset()
        assert failures(list(maintain.maintain(root, dry_run=dry_run))) == []
        return store.count("read") + store.count("read_ranges") + store.count("list") + store.count("put_if_absent")

    found = []
    for number in range(60):
        catalog.create_stream("s", f"stream-{number:03}", policies[number % 3])
        if number in (2, 59):
            root.container(0).flush()
            requests()
            found.append(requests())
    assert found[0] == found[1]
    root.close()
