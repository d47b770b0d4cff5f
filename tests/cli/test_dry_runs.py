"""A dry run ends in the refusal that the run ends in: for every command that has --dry-run, and every refusal that does
not come of the change itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from chunkstore import open_store
from chunkstore.pravega.rolling import Header, HeaderChunk, format_header
from engine.logs.log import checkpoints_folder, frames_folder
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.cli.commands import all_commands
from pravega_spark.cli.main import cli
from pravega_spark.console.advice import ROOT_VARIABLE
from tests.archives import CHUNKED, case, laid_out
from tests.cli.test_cli import number_of
from tests.cli.test_upkeep import framed


class Places(NamedTuple):
    """A root of ours, the storage of a Pravega, a root whose log is lost, and one whose log has lost its root."""

    root: str
    archive: str
    lost: str
    apart: str
    number: str


REFUSED = {
    "scope delete": ["none", "sc", "read", "none --force"],
    "stream unsubscribe": ["sc/none query:job", "sc/one query:none", "sc/one"],
    "stream update": ["sc/none --tag a", "sc/sealed --tag a", "sc/one", "sc/one --min-segments 10001"],
    "stream seal": ["sc/none", "none/one", "sc"],
    "stream delete": ["sc/none --seal", "sc/one"],
    "stream truncate": [
        "sc/none --at tail",
        "sc/sealed --at tail",
        "sc/one --at 2999-01-01T00:00:00Z",
        "sc/one --at nonsense",
    ],
    "stream retain": ["sc/none", "sc/one --period -1"],
    "group delete": ["none/readers", "sc/none", "sc"],
    "group reset": ["none/readers", "sc/none", "read/readers --to nonsense", "read/readers --checkpoint none"],
    "group offline": ["none/readers reader", "sc/none reader", "read/readers reader", "read/readers"],
    "kvt delete": ["none/prices", "sc/none", "sc"],
    "transaction abort": ["sc/none 0", "sc/one 0", "sc/one nonsense", "sc/one"],
    "root set": ["", "--max-segments 0", "--garbage-delay-seconds -1", "--transient-idle-seconds 0"],
    "container repair": ["NUMBER 0", "NUMBER 999", "OTHER 0", "7 0", "NUMBER nonsense", "NUMBER 0 --root LOST"],
    "container recover": [
        "NUMBER",
        "OTHER",
        "7",
        "7 --force",
        "OTHER --force",
        "NUMBER --new-log",
        "NUMBER --force --root NONE",
        "OTHER --root LOST",
        "NUMBER --root APART --wal USED --new-log",
        "OTHER --root APART --wal EMPTY --new-log",
        "7 --root APART --wal EMPTY --new-log",
    ],
    "gc": ["--older-than 0", "--older-than -1"],
    "maintain": ["--stream one", "--scope none", "--scope sc --stream none", "--orphan-age 0"],
    "import": ["NONE", "SOURCE none/none", "SOURCE demo/rides --root INSIDE", "SOURCE demo/rides --root BESIDE"],
    "header import": ["none sc/new", "old sc/one", "old none/new", "bad sc/new"],
}
"""What is given to each command, and what the run refuses, whatever the options say."""

SOUND = {
    "scope delete": "demo",
    "stream unsubscribe": "demo/rides query:job",
    "stream update": "demo/rides --min-segments 9",
    "stream seal": "demo/rides",
    "stream delete": "demo/rides --seal",
    "stream truncate": "demo/rides --at tail",
    "stream retain": "demo/rides --period 0",
    "group delete": "demo/readers",
    "group reset": "demo/readers --to earliest",
    "group offline": "demo/readers reader",
    "kvt delete": "demo/kvt",
    "root set": "--max-segments 7",
    "transaction abort": "demo/txns 0",
    "container repair": "0 0",
    "container recover": "0 --force",
    "gc": "--older-than 0",
    "maintain": "--orphan-age 0",
    "import": "SOURCE demo/rides",
    "header import": "old demo/new",
}
"""What would be done in a root that has it, or could be."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    folder = tmp_path_factory.mktemp("refusals")
    url, apart = str(folder / "root"), str(folder / "apart")
    Root.open(url, containers=2).close()
    with StreamManager(url) as manager:
        for scope in ("sc", "read"):
            manager.create_scope(scope)
        for name in ("one", "sealed"):
            manager.create_stream("sc", name)
            with manager.create_writer("sc", name) as writer:
                writer.write_events(["a", "b", "c"])
        manager.seal_stream("sc", "sealed")
        manager.create_stream("read", "gone")
        manager.create_reader_group("readers", "read", "gone")
        manager.seal_stream("read", "gone")
        manager.delete_stream("read", "gone")
    number = number_of(url)
    with Root.open(url) as root:
        root.container(number).flush()
        root.container(number).close()
        frames = frames_folder(root.container_id(number))
        for info in root.stores.log.list(checkpoints_folder(root.container_id(number))):
            root.stores.log.delete([info.path])
    store = open_store(url)
    for at in range(30):
        store.put(f"sc/one/0.E-1-O-{at}.00000000-0000-4000-8000-{at:012d}", b"left")
    store.put("old", framed(b"a", b"b"))
    store.put("old$header", format_header(Header(100, (HeaderChunk(0, "old"),))))
    store.put("bad", b"no events")
    store.put("bad$header", format_header(Header(100, (HeaderChunk(0, "bad"),))))
    shutil.copytree(url, folder / "lost")
    shutil.rmtree(folder / "lost" / frames)
    Root.open(apart, wal=str(folder / "log"), containers=2).close()
    with Root.open(apart) as root:
        root.container(number).flush()
    (folder / "log").rename(folder / "log of old")
    return Places(url, str(laid_out(case(CHUNKED).objects, folder / "lts")), str(folder / "lost"), apart, str(number))


def calls() -> Iterator[tuple[str, str]]:
    for words, cases in REFUSED.items():
        for given in cases:
            yield words, given
        yield words, "IN THE STORAGE OF A PRAVEGA"
        yield words, "WHERE NO ROOT IS"


def ran(*call: str, root: str) -> Result:
    return CliRunner(env={ROOT_VARIABLE: None}).invoke(cli, ["--root", root, *call])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_command_with_a_dry_run_is_here() -> None:
    found = {words for words, command in all_commands(cli) if any("--dry-run" in each.opts for each in command.params)}
    assert found == REFUSED.keys()


@pytest.mark.parametrize(("words", "given"), list(calls()))
def test_a_dry_run_ends_in_the_refusal_of_the_run(places: Places, tmp_path: Path, words: str, given: str) -> None:
    folder = Path(places.root).parent
    named = {
        "NUMBER": places.number,
        "OTHER": str(1 - int(places.number)),
        "NONE": str(tmp_path / "none"),
        "EMPTY": str(tmp_path / "empty"),
        "LOST": places.lost,
        "APART": places.apart,
        "USED": places.root,
        "INSIDE": f"{places.root}/sc",
        "BESIDE": f"{places.archive}/new",
        "SOURCE": places.archive,
    }
    root = places.root
    if given == "IN THE STORAGE OF A PRAVEGA":
        root, given = places.archive, SOUND[words]
        named |= {"SOURCE": places.archive}
    elif given == "WHERE NO ROOT IS":
        root, given = str(tmp_path / "no root"), SOUND[words]
        if words == "import":
            given = "NONE"
    call = [named.get(word, word) for word in (*words.split(), *given.split())]
    before = content(folder)
    dry = ran(*call, "--dry-run", root=root)
    assert content(folder) == before and not (tmp_path / "empty").exists()
    done = ran(*call, *(["--yes"] if words != "stream update" else []), root=root)
    told = [re.sub(r"\d+", "N", result.stderr) for result in (dry, done)]
    assert (dry.exit_code, told[0]) == (done.exit_code, told[1]) and done.exit_code, (dry.output, done.output)
