"""The status of a root as a document: what `--json status` prints, and the server answers."""

from __future__ import annotations

from typing import Any

from pravega_spark.console.output import moment
from pravega_spark.status import RootStatus


def status_document(found: RootStatus) -> dict[str, Any]:
    """The status as values of JSON: times as ISO 8601, sizes in bytes."""
    return {
        "root": found.url,
        "time": moment(round(found.moment * 1000)),
        "streams": [
            {
                "stream": f"{each.scope}/{each.stream}",
                **{name: value for name, value in each._asdict().items() if name not in ("scope", "stream")},
                "last_event": moment(each.last_event),
            }
            for each in found.streams
        ],
        "consumers": [
            {
                "kind": each.kind,
                "consumer": each.name,
                "stream": f"{each.scope}/{each.stream}",
                "lag": None if each.lag is None else each.lag._asdict(),
                "problem": each.problem or None,
            }
            for each in found.consumers
        ],
        "containers": [
            {
                "number": each.number,
                "online": each.online,
                "reason": each.reason or None,
                "logged_bytes": each.description and each.description.logged,
                "flushed": moment(each.description.cycle.time) if each.description else None,
                "garbage": each.description and each.description.garbage,
                "overdue": [kind for kind, late in each.description.due.items() if late] if each.description else [],
            }
            for each in found.containers
        ],
        "problems": list(found.problems),
    }
