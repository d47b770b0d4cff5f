"""What SFTP adds to the contract: its files, connections that break, forks, credentials."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paramiko import SFTPClient

from chunkstore import Outcome, StorageError, StorageRefused, StorageUnavailable, Store, open_store
from chunkstore.testing.contracts import body
from chunkstore.testing.file_contracts import FileStoreContract, Publishing, Reopened
from tests.support.cutting_proxy import CuttingProxy
from tests.support.sftp_server import SftpServer


@pytest.fixture
def sftp(sftp_server: SftpServer) -> Iterator[Store]:
    store = open_store(sftp_server.make_bucket(), sftp_server.storage_options())
    yield store
    store.close()


class TestFiles(FileStoreContract):
    @pytest.fixture
    def store(self, sftp: Store) -> Store:
        return sftp

    @pytest.fixture
    def files(self, sftp: Store) -> Path:
        return Path("/" + sftp.root.partition("://")[2].partition("/")[2])

    @pytest.fixture
    def reopened(self, sftp: Store, sftp_server: SftpServer) -> Iterator[Reopened]:
        opened: list[Store] = []

        def reopen() -> Store:
            opened.append(open_store(sftp.root, sftp_server.storage_options()))
            return opened[-1]

        yield reopen
        for each in opened:
            each.close()

    @pytest.fixture
    def publishing(self, monkeypatch: pytest.MonkeyPatch) -> Publishing:
        @contextmanager
        def patched(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
            with monkeypatch.context() as patch:
                for name in ("rename", "posix_rename"):
                    call = getattr(SFTPClient, name)

                    def published(self: Any, *names: str, call: Callable[..., None] = call) -> None:
                        before()
                        call(self, *names)
                        after()

                    patch.setattr(SFTPClient, name, published)
                yield

        return patched


def test_a_wrong_key_is_refused(sftp_server: SftpServer) -> None:
    options = {**sftp_server.storage_options(), "key_filename": None, "password": "secret"}
    store = open_store(sftp_server.make_bucket(), options)
    with pytest.raises(StorageRefused, match="no permission") as raised:
        store.read("a")
    assert "secret" not in str(raised.value)


def test_a_server_that_is_not_there() -> None:
    store = open_store("sftp://nobody@127.0.0.1:1/a")
    with pytest.raises(StorageUnavailable):
        store.read("a")
    with pytest.raises(StorageError):
        store.put_if_absent("a", body())


def test_a_connection_that_breaks_is_made_again(sftp_server: SftpServer) -> None:
    with CuttingProxy(sftp_server) as proxy:
        sftp = open_store(*proxy.through(sftp_server.make_bucket(), sftp_server.storage_options()))
        sftp.put("a", b"before")
        with proxy.cut(1, once=True), pytest.raises(StorageUnavailable):
            sftp.read("a")
        assert sftp.read("a") == b"before"
        sftp.close()


@pytest.mark.processes
def test_sftp_after_a_fork(sftp: Store) -> None:
    sftp.put("a", b"before")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the connection has a thread
        child = os.fork()
    if not child:
        good = sftp.put_if_absent("c", body()) is Outcome.MINE and sftp.read("a") == b"before"
        os._exit(0 if good else 1)
    assert sftp.put_if_absent("p", body()) is Outcome.MINE
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [info.path for info in sftp.list("")] == ["a", "c", "p"]
