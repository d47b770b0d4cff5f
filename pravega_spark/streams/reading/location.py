"""The location of a stream: its name, and the one container that holds all of it (X1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pravega_spark.streams.model.names import container_of

if TYPE_CHECKING:
    from engine.root import Root
    from pravega_spark.streams.reading.readable import ReadableContainer


class StreamLocation:
    """A stream by name, whether it exists or not, and its container.

    key: `scope/name`. number: of the container.
    """

    def __init__(self, root: Root, scope: str, name: str) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.key = f"{scope}/{name}"
        self.number = container_of(self.key, root.config.containers)

    @property
    def container(self) -> ReadableContainer:
        """The container that holds all of the stream."""
        return self.root.container(self.number)

    @property
    def continues_a_copy(self) -> bool:
        """Whether the root was restored, or this container recovered: positions and streams may have been lost then
        (P4)."""
        config = self.root.config
        return config.origin is not None or self.number in dict(config.recovered)

    @property
    def writers(self) -> str:
        """The segment without content whose attributes hold the state of producers."""
        return f"{self.key}#writers"
