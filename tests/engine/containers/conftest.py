"""Containers on every storage, and tables of both sizes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Store, open_store
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.engine.containers.segments import RARE, S3, USUAL, Opener
from tests.support.s3_server import S3Server
from tests.support.simulation import small_sizes


@pytest.fixture(
    params=[
        *USUAL,
        *(pytest.param(name, marks=pytest.mark.long) for name in RARE),
        pytest.param(S3, marks=[pytest.mark.long, pytest.mark.server]),
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    """Where the objects are, and whether the containers use threads."""
    return str(request.param)


@pytest.fixture
def store(backend: str, request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Store]:
    if backend.startswith("memory"):
        opened = open_store(url)
    elif backend.startswith("folder"):
        opened = open_store(str(tmp_path))
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        opened = open_store(server.make_bucket(), server.storage_options())
    yield opened
    opened.close()


@pytest.fixture
def opened(backend: str, store: Store) -> Iterator[Opener]:
    """Opens the same container again and again, as other processes would."""
    containers: list[Container] = []

    def opener(exclusive: bool = False, **settings: Any) -> Container:
        chosen = {"maintenance": False, "threaded": backend.endswith("threads"), **settings}
        containers.append(Container(Stores(store, store), 0, Settings(**chosen), exclusive=exclusive))
        return containers[-1]

    yield opener
    for container in containers:
        container.close()


@pytest.fixture
def small() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture(params=["resident", "large"])
def tables_of_size(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether tables, those of the container's metadata included, are kept in memory whole."""
    with small_sizes() if request.param == "large" else contextlib.nullcontext():
        yield request.param
