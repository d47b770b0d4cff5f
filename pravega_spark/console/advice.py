"""What somebody at the command line can do about an error whose remedy depends on where one meets it."""

from __future__ import annotations

from engine.errors import RootNotFound, root_command
from pravega_spark.errors import AdvisedError, ScopeNotFound, StreamNotFound, StreamNotSealed


def told(error: Exception) -> str:
    """The message of an error for a user of the command line."""
    match error:
        case ScopeNotFound():
            return (
                f"{error.fact} `pravega-spark scope list` shows what there is, and `pravega-spark scope create "
                f"{error.scope}` makes it."
            )
        case StreamNotFound(without_scope=True):
            return f"{error.fact} `pravega-spark scope list` and `pravega-spark stream list` show what there is."
        case StreamNotFound():
            return (
                f"{error.fact} `pravega-spark stream list` shows what there is, and `pravega-spark stream create "
                f"{error.stream}` makes it."
            )
        case RootNotFound():
            return (
                f"{error.fact} Look whether this is the right place, and whether its storage is mounted. Create a root "
                f"there: `{root_command(error.root)}`."
            )
        case StreamNotSealed():
            return f"{error.fact} Seal it first: `pravega-spark stream seal {error.stream}`."
        case AdvisedError():
            return f"{error.fact} {error.remedy}".strip()
    return str(error)
