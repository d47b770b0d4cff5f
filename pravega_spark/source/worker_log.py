"""The log of Spark's Python workers: nobody configures logging in the processes that Spark starts for a source or a
sink, so warnings would be printed without level, time and name.
"""

from __future__ import annotations

import logging

_PACKAGES = ("chunkstore", "engine", "pravega_spark")


_HANDLER = logging.StreamHandler()
"""Writes to stderr, which Spark copies to the log of the driver or executor, unless a user's own code gave the root
logger a handler."""

_HANDLER.addFilter(lambda record: not logging.getLogger().handlers)
_HANDLER.setFormatter(
    logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")  # as Spark's own
)


def configure() -> None:
    """Give warnings of this project level, time and name, if logging is not configured. Called by each method that
    Spark calls."""
    for name in _PACKAGES:
        logging.getLogger(name).addHandler(_HANDLER)  # once, however often it is called
