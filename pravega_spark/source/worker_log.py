"""The log of Spark's Python workers: nobody configures logging in the processes that Spark starts for a source or a
sink, so warnings would be printed without level, time and name.
"""

from __future__ import annotations

import logging

_PACKAGES = ("chunkstore", "engine", "pravega_spark")


class _WorkerHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, which Spark copies to the log of the driver or executor, as long as the root logger has no
    handler, which a user's own code may add."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(lambda record: not logging.getLogger().handlers)
        self.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")  # as Spark's own
        )


_HANDLER = _WorkerHandler()


def configure() -> None:
    """Give warnings of this project level, time and name, if logging is not configured. Called by each method that
    Spark calls."""
    for name in _PACKAGES:
        logging.getLogger(name).addHandler(_HANDLER)  # once, however often it is called
