"""What somebody at the command line can do about an error whose remedy depends on where one meets it."""

from __future__ import annotations

from engine.errors import RootNotFound
from pravega_spark.errors import AdvisedError, ScopeNotFound, StreamNotFound


def told(error: Exception) -> str:
    """The message of an error for a user of the command line."""
    match error:
        case ScopeNotFound():
            return f"{error.fact} Create it: `pravega-spark scope create {error.scope}`."
        case StreamNotFound():
            return f"{error.fact} Create it: `pravega-spark stream create {error.stream}`."
        case RootNotFound():
            return (
                f"{error.fact} Look whether this is the right place, and whether its storage is mounted. Create a root "
                "there: `pravega-spark --root URI root create`."
            )
        case AdvisedError():
            return f"{error.fact} {error.remedy}".strip()
    return str(error)
