"""An example of each command, for the end of its help; each is one that the program accepts. The root comes from
PRAVEGA_CONTROLLER_URI."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "root create": "root create --containers 8 --root s3://bucket/streams",
    "root describe": "root describe --root /data/streams",
    "scope create": "scope create examples --new-root",
    "scope list": "scope list",
    "scope delete": "scope delete examples --yes",
    "stream create": "stream create examples/rides --segments 4 --retain-ms 7d",
    "stream update": "stream update examples/rides --retain-ms 7d --tag billing",
    "stream list": "stream list examples --json",
    "stream describe": "stream describe examples/rides",
    "stream write": "stream write examples/rides events.jsonl --key-from user",
    "stream read": "stream read examples/rides --from 5m --count 10",
    "stream tail": "stream tail examples/rides --from head",
    "stream retain": "stream retain examples/rides --dry-run",
    "stream truncate": "stream truncate examples/rides --at 7d --yes",
    "stream scale": "stream scale examples/rides --seal 2.1 --range 0 0.25 --range 0.25 0.5",
    "stream seal": "stream seal examples/rides --yes",
    "stream delete": "stream delete examples/rides --seal --yes",
    "stream cuts": 'stream cuts examples/rides --at "5 minutes ago"',
    "stream lag": "stream lag examples/rides --checkpoint /data/checkpoints/rides",
    "stream draw": "stream draw examples/rides -o rides.png",
    "container list": "container list --wide",
    "container describe": "container describe 0",
    "container flush": "container flush",
    "container recover": "container recover 0 --yes",
    "segment list": "segment list examples/rides/",
    "segment describe": "segment describe examples/rides/2.1",
    "segment chunks": "segment chunks examples/rides/2.1",
    "verify": "verify --deep",
    "gc": "gc --dry-run --older-than 2d",
    "defrag": "defrag examples/rides/ --target 64MiB",
    "maintain": "maintain --yes",
    "backup": "backup s3://backups/streams --elsewhere profile=backup",
    "restore": "restore s3://backups/streams --root /data/restored",
    "import": "import /mnt/pravega-lts demo/rides --dry-run",
    "header export": "header export examples/rides/0.0",
    "header import": "header import legacy/segment examples/rides",
    "completion": "completion bash",
}
