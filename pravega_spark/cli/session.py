"""One invocation of the command line: its root, opened when a command uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine.errors import RootNotFound
from engine.root import Root
from pravega_spark.console.output import Output
from pravega_spark.console.program import NothingChanged, Refused
from pravega_spark.errors import ScopeNotFound
from pravega_spark.roots import opened_root
from pravega_spark.settings import opening

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamManager
    from pravega_spark.streams.catalog import Catalog

T = TypeVar("T")


class Session:
    """One invocation. The root is opened on first use, and closed at the end."""

    def __init__(
        self, url: str | None, wal: str | None, options: dict[str, object], as_json: bool, wide: bool = False
    ) -> None:
        self.output = Output(as_json, wide)
        self.new_log = False  # an empty log replaces a lost one
        self.dry_run = False  # nothing is created: opening only checks
        self.new_root = False  # the root is created if it does not exist
        self._url = url
        self.wal = wal
        self.options = options  # of the root's filesystem: never show them
        self._root: Root | None = None
        self.reported = False  # the command has printed what is not read
        self.salvage = False  # the sound part of a damaged Pravega storage is read
        self.unrecorded = False  # so are events that a killed Pravega server did not record
        self.settings: dict[str, Any] = {}

    def take(self, name: str, value: Any) -> None:
        """Set a global option that was given after the command. Raises BadParameter for a storage option given
        twice."""
        if name == "url":
            self._url = value
        elif name == "wal":
            self.wal = value
        elif name == "as_json":
            self.output.as_json = value
        elif name == "salvage":
            self.salvage = value
        elif name == "unrecorded":
            self.unrecorded = value
        elif name == "settings":
            self.settings |= value
        elif name == "wide":
            self.output.wide = value
        elif twice := sorted(self.options.keys() & value.keys()):
            raise click.BadParameter(f"{twice[0]!r} is given twice")
        else:
            self.options |= value

    @property
    def root(self) -> Root:
        """The open root. Raises UsageError if none was given, RootNotFound, StorageRefused."""
        if self._root is None:
            self._root = opened_root(
                self.url,
                self.options,
                salvage=self.salvage,
                unrecorded=self.unrecorded,
                settings=self.settings,
                wal=self.wal,
                create=self.new_root,
                new_log=self.new_log,
                dry_run=self.dry_run,
            )
        return self._root

    def create(self, agreed: Mapping[str, Any]) -> Root:
        """Create the root. agreed: values of RootConfig. Raises Refused if it exists."""
        with suppress(RootNotFound):
            raise Refused(f"{self.root.stores.chunks.root} is a root already")
        settings = {**opening(self.settings), **agreed}
        self._root = Root.open(self.url, self.options, wal=self.wal, create=True, **settings)
        return self._root

    @property
    def url(self) -> str:
        """The root's URL as it was given. Raises UsageError if it was not."""
        if not self._url:
            raise click.UsageError("Give the root of the streams with --root, or in PRAVEGA_CONTROLLER_URI.")
        return self._url

    @property
    def manager(self) -> StreamManager:
        """The streams of the root. It is closed with the session."""
        from pravega_spark.client.manager import StreamManager  # slow to import, and most commands do not need it

        return StreamManager.over(self.root)

    @property
    def catalog(self) -> Catalog:
        """The scopes and streams of the root. Errors suggest similar names."""
        from pravega_spark.streams.catalog import Catalog

        return Catalog(self.root, suggesting=True)

    def in_scopes(self, scope: str | None, listed: Callable[[str], Iterable[T]]) -> Iterator[tuple[str, T]]:
        """The items that `listed` returns for a scope, or for every scope, each with the scope. Raises
        ScopeNotFound."""
        if scope is not None:
            yield from ((scope, found) for found in listed(scope))
            return
        for each in self.catalog.scopes():
            with suppress(ScopeNotFound):  # deleted meanwhile
                yield from ((each, found) for found in listed(each))

    def confirm(self, yes: bool, *lines: str, dry_run: bool = False) -> None:
        """Continue if --yes was given; else print what would change, and exit: with success for a dry run.

        Raises RootReadOnly, as the change would, if the root is read-only.
        """
        if self._root is not None:
            self._root.check_writable()
        if yes and not dry_run:
            return
        self.output.document({"dry_run": dry_run, "would": lines})
        for line in lines:
            (self.output.line if dry_run else self.output.warning)(line)
        if dry_run:
            raise click.exceptions.Exit(0)
        raise NothingChanged()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            for line in (*self._root.losses, *self._root.recovered) if not self.reported else ():
                self.output.warning(line)
            self._root.close()


pass_session = click.make_pass_decorator(Session)
"""Gives a command the session as its first argument."""
