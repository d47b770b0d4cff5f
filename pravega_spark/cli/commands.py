"""The commands of the command line: their names, in the order of the help, with an example of each.

A command is listed here and nowhere else. Examples take the root from PRAVEGA_CONTROLLER_URI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from pravega_spark.cli import (
    backup,
    completion,
    container,
    defrag,
    gc,
    group,
    header,
    import_streams,
    kvt,
    maintain,
    root,
    scope,
    segment,
    serve,
    status,
    stream_cuts,
    stream_describe,
    stream_draw,
    stream_events,
    stream_lifecycle,
    stream_policies,
    stream_rebuild_index,
    stream_retention,
    stream_scale,
    transaction,
    verify,
)

GROUPS: Mapping[str, str] = {
    "root": "Create and describe roots, and change their settings.",
    "scope": "Create, list and delete scopes.",
    "stream": "Create, inspect, write, read, scale and delete streams.",
    "transaction": "List and abort open transactions.",
    "group": "Show reader groups, move and delete them.",
    "kvt": "Create, read, update and delete key-value tables.",
    "container": "Inspect, flush, repair and recover containers.",
    "segment": "Inspect segments.",
    "header": "Exchange segments with old code: legacy header files.",
}
"""The help of each group of commands."""

COMMANDS: tuple[tuple[str, click.Command, str], ...] = (
    ("root create", root.create, "root create --containers 8 --root s3://bucket/streams"),
    ("root describe", root.describe, "root describe --root /data/streams"),
    ("root set", root.set_, "root set --max-segments 20000 --yes"),
    ("status", status.status, "status --watch 5"),
    ("serve", serve.serve, "serve --port 8080"),
    ("scope create", scope.create, "scope create examples --new-root"),
    ("scope list", scope.list_, "scope list"),
    ("scope delete", scope.delete, "scope delete examples --yes"),
    ("stream create", stream_lifecycle.create, "stream create examples/rides --segments 4 --retain-time 7d"),
    ("stream update", stream_policies.update, "stream update examples/rides --retain-time 7d --tag billing"),
    ("stream list", stream_describe.list_, "stream list examples --json"),
    ("stream describe", stream_describe.describe, "stream describe examples/rides"),
    ("stream write", stream_events.write, "stream write examples/rides events.jsonl --key-from user"),
    ("stream read", stream_events.read, "stream read examples/rides --from 5m --count 10"),
    ("stream tail", stream_events.tail, "stream tail examples/rides --from head"),
    ("stream retain", stream_retention.retain, "stream retain examples/rides --dry-run"),
    ("stream truncate", stream_retention.truncate, "stream truncate examples/rides --at 7d --yes"),
    ("stream scale", stream_scale.scale, "stream scale examples/rides --seal 2.1 --range 0 0.25 --range 0.25 0.5"),
    ("stream seal", stream_lifecycle.seal, "stream seal examples/rides --yes"),
    ("stream rebuild-index", stream_rebuild_index.rebuild_index, "stream rebuild-index examples/rides"),
    ("stream delete", stream_lifecycle.delete, "stream delete examples/rides --seal --yes"),
    ("stream cuts", stream_cuts.cuts, 'stream cuts examples/rides --at "5 minutes ago"'),
    ("stream lag", stream_cuts.lag, "stream lag examples/rides --checkpoint /data/checkpoints/rides"),
    ("stream unsubscribe", stream_retention.unsubscribe, "stream unsubscribe examples/rides query:billing --yes"),
    ("stream draw", stream_draw.draw, "stream draw examples/rides -o rides.svg"),
    ("transaction list", transaction.list_, "transaction list --scope examples"),
    (
        "transaction abort",
        transaction.abort,
        "transaction abort examples/rides 42 --yes",
    ),
    ("group list", group.list_, "group list examples"),
    ("group describe", group.describe, "group describe examples/billing --json"),
    ("group delete", group.delete, "group delete examples/billing --yes"),
    ("group reset", group.reset, "group reset examples/billing --to earliest --yes"),
    ("group offline", group.offline, "group offline examples/billing worker-1 --yes"),
    ("kvt create", kvt.create, "kvt create examples/prices --primary 4 --secondary 2"),
    ("kvt list", kvt.list_, "kvt list examples"),
    ("kvt describe", kvt.describe, "kvt describe examples/prices"),
    ("kvt put", kvt.put, "kvt put examples/prices AAPL 21.5 --secondary US"),
    ("kvt insert", kvt.insert, "kvt insert examples/prices AAPL 21.5 --secondary US"),
    ("kvt replace", kvt.replace, "kvt replace examples/prices AAPL 22.0 --secondary US --version 0:17"),
    ("kvt remove", kvt.remove, "kvt remove examples/prices AAPL --secondary US"),
    ("kvt get", kvt.get, "kvt get examples/prices AAPL --secondary US --json"),
    ("kvt keys", kvt.keys, "kvt keys examples/prices --prefix AA"),
    ("kvt entries", kvt.entries, "kvt entries examples/prices --primary AAPL --from DE --to US"),
    ("kvt read", kvt.read, "kvt read demo/prices --root /mnt/pravega-lts --json"),
    ("kvt delete", kvt.delete, "kvt delete examples/prices --yes"),
    ("container list", container.list_, "container list --wide"),
    ("container describe", container.describe, "container describe 0"),
    ("container flush", container.flush, "container flush"),
    ("container repair", container.repair, "container repair 0 4711 --dry-run"),
    ("container recover", container.recover, "container recover 0 --yes"),
    ("segment list", segment.list_, "segment list examples/rides/"),
    ("segment describe", segment.describe, "segment describe examples/rides/2.1"),
    ("segment chunks", segment.chunks, "segment chunks examples/rides/2.1"),
    ("verify", verify.verify, "verify --deep"),
    ("gc", gc.gc, "gc --dry-run --older-than 2d"),
    ("defrag", defrag.defrag, "defrag examples/rides/ --target 64MiB"),
    ("maintain", maintain.maintain, "maintain --yes"),
    ("backup", backup.backup, "backup s3://backups/streams --elsewhere profile=backup"),
    ("restore", backup.restore, "restore s3://backups/streams --root /data/restored"),
    ("import", import_streams.import_, "import /mnt/pravega-lts demo/rides --dry-run"),
    ("header export", header.export, "header export examples/rides/0.0"),
    ("header import", header.import_, "header import legacy/segment examples/rides --yes"),
    ("completion", completion.completion, "completion bash"),
)

EXAMPLES: Mapping[str, str] = {words: example for words, _, example in COMMANDS}


def add_to(program: click.Group) -> None:
    """Add all commands, and their groups, to the program."""
    for words, command, _ in COMMANDS:
        name, _, subcommand = words.partition(" ")
        if not subcommand:
            program.add_command(command, name)
            continue
        if name not in program.commands:
            program.add_command(click.Group(name, help=GROUPS[name]))
        group = program.commands[name]
        assert isinstance(group, click.Group)
        group.add_command(command, subcommand)


def all_commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command and group below a group, with its words."""
    for name, command in group.commands.items():
        yield prefix + name, command
        if isinstance(command, click.Group):
            yield from all_commands(command, f"{prefix}{name} ")
