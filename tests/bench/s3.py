"""S3: what our store costs above boto3 and obstore that make the same requests to the same server.

A commit is one conditional put of 1 KB, and an append one of a container that does nothing else; a chunk is 64 MiB,
written in parts and read in ranges, so many at a time. The servers are those of the tests, as they are and 20 ms away.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chunkstore import open_store
from chunkstore.port import Range
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.bench.far import Far
from tests.bench.figures import Figures
from tests.support.rados_gateway import RadosGateway
from tests.support.s3_server import S3Server
from tests.support.servers import ServerMissing

ROUNDS = 5
COMMITS = 20
CHUNK, PART, AT_ONCE = 64 << 20, 8 << 20, 8
RANGES = [(at, at + PART) for at in range(0, CHUNK, PART)]

Client = dict[str, Callable[[str], object]]
"""By operation, what is done under a name: `commit`, `write`, `read` of what `write` has written."""


def measure(figures: Figures) -> None:
    for kind in (RadosGateway, S3Server):
        with contextlib.suppress(ServerMissing), kind() as server:
            bucket, options = server.make_bucket(), server.storage_options()
            _measure(figures, kind.__name__, bucket, options)
            far = Far(options["client_kwargs"]["endpoint_url"], 0.02)
            there = {**options, "client_kwargs": {**options["client_kwargs"], "endpoint_url": far.url}}
            _measure(figures, f"{kind.__name__}, 20 ms away", bucket, there)
            far.close()


def _measure(figures: Figures, where: str, bucket: str, options: dict[str, Any]) -> None:
    run = uuid.uuid4()
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(make(bucket, options)) for name, make in _CLIENTS.items()}
        clients = {name: client for name, client in clients.items() if client}
        for operation, times in (("commit", COMMITS), ("write", 1), ("read", 1)):
            found: dict[str, list[float]] = {name: [] for name in clients if operation in clients[name]}
            for number in range(ROUNDS + 1):
                for name, seconds in found.items():
                    begun = time.perf_counter()
                    for time_of in range(times):
                        folder = f"{run}/{name}/{operation.replace('read', 'write')}"
                        clients[name][operation](f"{folder}/{number}-{time_of}")
                    if number:
                        seconds.append((time.perf_counter() - begun) / times)
            figures.compare("s3", f"{operation}, {where}", found, "boto3")


@contextlib.contextmanager
def _boto3(bucket: str, options: dict[str, Any]) -> Iterator[Client]:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    session = boto3.Session(options["key"], options["secret"])
    client = session.client("s3", **options["client_kwargs"], config=Config(max_pool_connections=AT_ONCE + 2))
    transfer = TransferConfig(multipart_chunksize=PART, max_concurrency=AT_ONCE)
    name, data = bucket.removeprefix("s3://"), os.urandom(CHUNK)
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def write(path: str) -> None:
            client.upload_fileobj(io.BytesIO(data), name, path, Config=transfer)

        def read(path: str) -> None:
            def one(start_end: tuple[int, int]) -> bytes:
                wanted = f"bytes={start_end[0]}-{start_end[1] - 1}"
                body: bytes = client.get_object(Bucket=name, Key=path, Range=wanted)["Body"].read()
                return body

            assert sum(map(len, pool.map(one, RANGES))) == CHUNK

        yield {
            "commit": lambda path: client.put_object(Bucket=name, Key=path, Body=data[:1000], IfNoneMatch="*"),
            "write": write,
            "read": read,
        }
    client.close()


@contextlib.contextmanager
def _obstore(bucket: str, options: dict[str, Any]) -> Iterator[Client]:
    try:
        import obstore
        from obstore.store import S3Store
    except ImportError:
        yield {}
        return
    where = options["client_kwargs"]
    store = S3Store(
        bucket.removeprefix("s3://"),
        endpoint=where["endpoint_url"],
        region=where["region_name"],
        access_key_id=options["key"],
        secret_access_key=options["secret"],
        client_options={"allow_http": True},
    )
    data = os.urandom(CHUNK)
    yield {
        "commit": lambda path: obstore.put(store, path, data[:1000], mode="create"),
        "write": lambda path: obstore.put(store, path, data, chunk_size=PART, max_concurrency=AT_ONCE),
        "read": lambda path: obstore.get_ranges(store, path, starts=[a for a, _ in RANGES], lengths=[PART] * AT_ONCE),
    }


@contextlib.contextmanager
def _ours(bucket: str, options: dict[str, Any]) -> Iterator[Client]:
    store, data = open_store(bucket, options), os.urandom(CHUNK)

    def read(path: str) -> None:
        found = store.read_ranges([Range(path, start, end) for start, end in RANGES])
        assert sum(len(part or b"") for part in found) == CHUNK

    yield {
        "commit": lambda path: store.put_if_absent(path, uuid.uuid4().bytes + bytes(984)),
        "write": lambda path: store.put(path, data),
        "read": read,
    }
    store.close()


@contextlib.contextmanager
def _ours_by_obstore(bucket: str, options: dict[str, Any]) -> Iterator[Client]:
    if importlib.util.find_spec("obstore") is None:
        yield {}
        return
    with _ours(bucket, {**options, "client": "obstore"}) as client:
        yield client


@contextlib.contextmanager
def _append(bucket: str, options: dict[str, Any]) -> Iterator[Client]:
    store = open_store(f"{bucket}/{uuid.uuid4()}", options)
    with Container(Stores(store, store), 0, Settings(maintenance=False)) as container:
        container.create_segment("scope/segment")
        yield {"commit": lambda path: container.append("scope/segment", bytes(1000))}
    store.close()


_CLIENTS = {
    "boto3": _boto3,
    "pravega": _ours,
    "pravega, client obstore": _ours_by_obstore,
    "pravega, append": _append,
    "obstore": _obstore,
}
