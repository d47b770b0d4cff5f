"""Whether the signatures of all objects of a container's log fit, also of those that nothing reads any more (W20)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chunkstore import Range, Store
from chunkstore.errors import fact_of
from chunkstore.paths import container_folder, is_earlier, is_signed
from engine.admin.batching import batches
from engine.admin.checks.findings import Problem, Severity
from engine.errors import BadSignature

PAGE = 1000
"""Objects in one page of a listing."""

TOGETHER = 16
"""Objects that are read together."""


def signature_problems(store: Store, container: int) -> Iterator[Problem]:
    """The objects of the container's present log and recovery points whose signatures do not fit. store: one that
    checks signatures. Objects that are deleted meanwhile are no problem."""
    folder, last = f"{container_folder(container)}/", ""
    while page := store.list(folder, last, PAGE):
        last = page[-1].path
        signed = [info.path for info in page if is_signed(info.path) and not is_earlier(info.path, container)]
        for paths in batches(iter(signed), TOGETHER):
            yield from _bad(store, paths)


def _bad(store: Store, paths: Sequence[str]) -> Iterator[Problem]:
    try:
        store.read_ranges([Range(path, 0, 0) for path in paths])
    except BadSignature as error:
        if len(paths) == 1:
            yield _problem(paths[0], error)
            return
        for path in paths:
            yield from _bad(store, [path])


def _problem(path: str, error: BadSignature) -> Problem:
    if "/inbox/" in path:  # no data depends on it
        remedy = "none needed, unless no host of the root has crashed: then find out who can write to the storage"
        return Problem(path, f"{fact_of(error)}, or a crash has cut it off", remedy, Severity.WARNING)
    return Problem(path, fact_of(error), "restore the object from a copy, and find out who can write to the storage")
