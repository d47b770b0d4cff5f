"""The actor that is the operators: it runs commands of `pravega-spark`, one after the other, and kills some of them.

Commands are processes like all others. What one prints to its standard error when it fails is logged, and so is how
much space the root takes after each collection of garbage. Now and then the root is backed up and restored elsewhere:
the copy must verify, and have everything that was acknowledged before.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pravega_spark import StreamManager
from tests.soak import SCOPE
from tests.soak.actor import Actor
from tests.soak.ledger import acknowledged, ledgers
from tests.soak.readers import GROUP

KILLED = 0.1
"""How many of the commands are killed."""

LONGEST = 900
"""Seconds after which a command hangs. Where other programs keep the processors, `stream describe` has taken 107."""


def run(actor: Actor) -> None:
    """Run commands until the end; then those that leave the root as it should be, which are not killed."""
    manager = actor.manager()
    while not actor.ended.is_set():
        kind = actor.chance.choice(["backup"] + ["command"] * 12 + ["gc"] * 2)
        with actor.surviving(kind):
            if kind == "backup":
                _back_up(actor)
            elif kind == "gc":
                _collect(actor, manager, "90s", killed=actor.chance.random() < KILLED)
            else:
                command = actor.chance.choice(list(_commands(actor)))
                _execute(actor, command, killed=actor.chance.random() < KILLED)
        actor.ended.wait(actor.chance.expovariate(1 / actor.more.get("pause", 5.0)))
    with actor.surviving("finish"):
        _finish(actor, manager)
    with actor.surviving("close"):
        manager.close()


def _commands(actor: Actor) -> Iterator[list[str]]:
    stream = actor.chance.choice([name for name in actor.more["streams"] if name != "l"])
    yield ["status"]
    yield ["verify"]
    yield ["group", "describe", f"{SCOPE}/{GROUP}"]
    yield ["stream", "describe", f"{SCOPE}/{stream}"]
    yield ["stream", "scale", f"{SCOPE}/{stream}", "--segments", str(actor.chance.randrange(2, 6))]
    yield ["stream", "scale", f"{SCOPE}/{stream}", "--segments", str(actor.chance.randrange(2, 6))]
    yield ["stream", "retain", SCOPE + "/" + stream, "--period", "1s", "--yes"]
    yield from (["stream", "retain", f"{SCOPE}/{name}", "--period", "1s", "--yes"] for name in ("a", "l"))
    yield ["stream", "truncate", f"{SCOPE}/n", "--at", f"{actor.chance.randrange(20, 120)}s", "--yes"]
    yield ["maintain", "--period", "1s", "--orphan-age", "90s", "--yes"]
    yield ["container", "flush"]
    yield ["defrag"]
    yield ["transaction", "list"]


def _execute(actor: Actor, command: list[str], killed: bool = False, root: str = "") -> dict[str, Any]:
    """Run a command, and kill it midway if `killed`. Returns the document that it printed."""
    storage = [f"--storage={name}={json.dumps(value)}" for name, value in actor.storage.items() if not root]
    environment = {**os.environ, "PRAVEGA_CONTROLLER_URI": root or actor.root}
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pravega_spark.cli", *storage, "--json", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            out, errors = process.communicate(timeout=actor.chance.uniform(0.5, 5) if killed else LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            actor.log("command", command=command, killed=killed, seconds=round(time.monotonic() - began, 1))
            if not killed:
                actor.problem(f"{' '.join(command)} did not end within {LONGEST} s")
            return {}
    seconds, code = round(time.monotonic() - began, 1), process.returncode
    actor.log("command", command=command, code=code, seconds=seconds)
    if code:
        found = _findings(out)
        actor.log("error", call=" ".join(command[:2]), error=["Command"], reason=(errors.strip() + found)[-1000:])
    try:
        document: dict[str, Any] = json.loads(out) if out.strip() else {}
    except ValueError:
        return {}
    return document | {"exit_code": code}


def _findings(out: str) -> str:
    """What a verification found."""
    try:
        findings = json.loads(out)["verify"]["findings"]
    except (ValueError, KeyError, TypeError):
        return ""
    return "; ".join(f"{each['severity']}: {each['object']}: {each['problem']}" for each in findings[:5])


def _collect(actor: Actor, manager: StreamManager, age: str, killed: bool = False) -> dict[str, int]:
    """Collect garbage; what the root takes afterwards, and what of it can be read."""
    _execute(actor, ["gc", "--older-than", age, "--plausible-share", "1", "--yes"], killed)
    sizes = _object_sizes(actor)
    kept = sum(info.size for info in map(manager.stream_info, *zip(*_streams(actor), strict=True)))
    space = {"objects": len(sizes), "bytes": sum(sizes), "kept": kept}
    actor.log("space", **space)
    return space


def _streams(actor: Actor) -> list[tuple[str, str]]:
    return [(SCOPE, name) for name in actor.more["streams"]]


def _object_sizes(actor: Actor) -> list[int]:
    """The sizes of all objects below the root."""
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(actor.root, **actor.storage)
    while True:
        filesystem.invalidate_cache()
        with suppress(FileNotFoundError):  # an object was deleted while a folder was listed
            return [each["size"] for each in filesystem.find(path, detail=True).values()]


def _back_up(actor: Actor) -> None:
    """Back the root up and restore the backup elsewhere."""
    backup, restored = actor.folder / "backup", actor.folder / "restored"
    before = {name: acknowledged(path).get(0, -1) for name, path in ledgers(actor.folder).items()}
    if _execute(actor, ["backup", str(backup)]).get("exit_code") != 0:
        return
    shutil.rmtree(restored, ignore_errors=True)
    if _execute(actor, ["restore", str(backup)], root=str(restored)).get("exit_code") != 0:
        return
    if _execute(actor, ["verify", "--deep"], root=str(restored)).get("exit_code") != 0:
        actor.problem("a restored backup does not verify")
    with StreamManager(str(restored)) as manager:
        for name, stream in actor.more["producers"].items():
            with manager.create_writer(SCOPE, stream, producer=name) as writer:
                last = -1 if writer.last_number is None else writer.last_number
            if last < before.get(name, -1):
                actor.problem(f"a backup has {last} of {name}, and {before[name]} was acknowledged before it began")
    actor.log("restored")
    shutil.rmtree(restored, ignore_errors=True)


def _finish(actor: Actor, manager: StreamManager) -> None:
    """Flush, collect what there is, verify all, and write `space.json`."""
    for _ in range(2):  # the first one records the cuts at which the second one truncates
        _execute(actor, ["maintain", "--period", "0s", "--orphan-age", "1s", "--yes"])
    space = {}
    for _ in range(2):
        _execute(actor, ["container", "flush"])
        space = _collect(actor, manager, "1s")
        time.sleep(actor.more["delay"] + 2)
    document = _execute(actor, ["verify", "--deep"])
    result = {"space": space, "verify": document.get("verify", {}), "code": document.get("exit_code")}
    (actor.folder / "space.json").write_text(json.dumps(result))
