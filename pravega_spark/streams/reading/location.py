"""Where a stream lies: its name, and the one container that holds everything of it (X1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pravega_spark.streams.model.names import container_of

if TYPE_CHECKING:
    from engine.containers.container import Container
    from engine.root import Root


class StreamLocation:
    """The place of a stream in an open root, whether it exists or not.

    key: `scope/name`. number: that of its container.
    """

    def __init__(self, root: Root, scope: str, name: str) -> None:
        self.root = root
        self.scope = scope
        self.name = name
        self.key = f"{scope}/{name}"
        self.number = container_of(self.key, root.config.containers)

    @property
    def container(self) -> Container:
        """The container that holds all of the stream."""
        return self.root.container(self.number)

    @property
    def continues_a_copy(self) -> bool:
        """Whether the root was restored, or this container recovered: then there may be positions of events, and names
        of streams, that were lost (P4)."""
        config = self.root.config
        return config.origin is not None or self.number in dict(config.recovered)

    @property
    def writers(self) -> str:
        """The segment without content whose attributes remember the named writers."""
        return f"{self.key}#writers"
