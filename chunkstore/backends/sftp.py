"""Objects as files behind an SSH server, over SFTP.

An object is written to a temporary file in `<root>/_system/tmp/`, synced, and then renamed. To make one that must not
exist yet, it is the rename of the protocol's third version, which must fail if the new name exists: OpenSSH makes a
hard link and removes the old name. That is atomic where the server's filesystem has hard links; elsewhere OpenSSH looks
first and then renames, which the self-test may find out, and may not. To overwrite, it is OpenSSH's posix-rename.

The protocol syncs files and not folders: an object survives the death of any process, but after a power failure of the
server its name may be missing. What killed writers leave there stays.

Symbolic links below the root are never followed (P1), neither to a file nor on the way to one. The root itself may be
one. Each process checks a folder once.

A file's time is that of its writing. A process that slept before the rename would publish an object that looks old,
which W7 must not see. Hence it is published with a time in the far future, which is corrected at once: a process that
sees it in between, or after a crash in between, takes it for new. The time since the writing is that of a clock that
runs in suspend, too: a host that slept in between publishes a new object.
"""

from __future__ import annotations

import contextlib
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chunkstore.backends.generic import GenericStore
from chunkstore.boot_clock import boot_time
from chunkstore.bounded_set import BoundedSet
from chunkstore.errors import StorageError
from chunkstore.paths import TEMPORARY
from chunkstore.port import Store

_AHEAD, _MOST_AHEAD = 2, 64  # requests for parts of a folder that are under way together, at first and at most
_FAR_FUTURE = 2**32 - 1  # the latest time that the protocol can express, in the year 2106


class SftpStore(GenericStore):
    """Objects below sftp://host/folder; `options` are those of paramiko's SSHClient.connect."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        super().__init__(url, options)
        self._real = BoundedSet[str](10_000)  # folders that are no links, nor those on the way to them

    def _create(self, fs: Any, name: str, body: bytes) -> None:
        self._publish(fs, name, body, fs.ftp.rename)

    def _replace(self, fs: Any, name: str, body: bytes) -> None:
        self._publish(fs, name, body, fs.ftp.posix_rename)

    def _publish(self, fs: Any, name: str, body: bytes, rename: Callable[[str, str], None]) -> None:
        temporary = f"{self._base}/{TEMPORARY}/{uuid.uuid4().hex}"
        self._check_folder(fs, temporary.rpartition("/")[0])
        written = self._in_folder_of(fs, temporary, lambda: _write(fs.ftp, temporary, body))
        since = boot_time()
        try:
            fs.ftp.utime(temporary, (_FAR_FUTURE, _FAR_FUTURE))
            self._in_folder_of(fs, name, lambda: rename(temporary, name))
        except BaseException:
            with contextlib.suppress(Exception):  # the reason why matters more
                fs.ftp.remove(temporary)
            raise
        now = int(written + boot_time() - since)
        with contextlib.suppress(FileNotFoundError):  # another process deleted it meanwhile
            fs.ftp.utime(name, (now, now))

    def _is_ours(self, path: str) -> bool:
        return path == TEMPORARY

    def _ls(self, fs: Any, folder: str) -> list[Mapping[str, Any]]:
        return [_info(f"{folder}/{name}", facts) for name, facts in _read_folder(fs.ftp, folder)]

    def _check_folder(self, fs: Any, folder: str) -> bool:
        if folder in self._real or not folder.startswith(f"{self._base}/"):
            return True
        try:
            if not self._check_folder(fs, folder.rpartition("/")[0]):
                return False
            facts = fs.ftp.lstat(folder)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(facts.st_mode):
            raise self._link_at(folder)
        self._real.add(folder)
        return True

    def _facts(self, fs: Any, name: str) -> tuple[int, float]:
        facts = fs.ftp.lstat(name)
        if stat.S_ISLNK(facts.st_mode):
            raise self._link_at(name)
        if not stat.S_ISREG(facts.st_mode):
            raise FileNotFoundError
        return facts.st_size, float(facts.st_mtime)

    def _name(self, path: str) -> str:
        if path == TEMPORARY or path.startswith(f"{TEMPORARY}/"):
            raise ValueError(f"storage path {path!r} lies in {TEMPORARY}/, which belongs to the store")
        return super()._name(path)

    def _close_filesystem(self, fs: Any) -> None:
        fs.client.close()

    def _error(self, failure: Exception, path: str) -> StorageError:
        from paramiko import AuthenticationException, BadHostKeyException

        refused = isinstance(failure, (AuthenticationException, BadHostKeyException))
        return super()._error(PermissionError() if refused else failure, path)

    def _is_transient(self, failure: Exception) -> bool:
        from paramiko import SSHException
        from paramiko.ssh_exception import NoValidConnectionsError

        lost = isinstance(failure, (SSHException, NoValidConnectionsError)) or str(failure) == "Socket is closed"
        return lost or super()._is_transient(failure)


def _write(ftp: Any, temporary: str, body: bytes) -> float:
    """Write and sync a new file; its time by the server's clock."""
    from paramiko.sftp import CMD_EXTENDED

    with ftp.open(temporary, "wx") as file:
        file.set_pipelined(True)  # what fails is raised when it is closed
        file.write(body)
        ftp._request(CMD_EXTENDED, "fsync@openssh.com", file.handle)
        return float(file.stat().st_mtime)


class _Answers(list[tuple[int, Any]]):
    """Answers in the order of the requests, for paramiko to leave them here."""

    def _async_response(self, kind: int, answer: Any, number: int) -> None:
        self.append((kind, answer))


def _read_folder(ftp: Any, folder: str) -> Iterator[tuple[str, Any]]:
    """Names and facts of what lies in a folder, links not followed. Raises when the connection breaks.

    paramiko's own listing takes the end of the connection for that of the folder, and fails at a name that is not
    UTF-8. Here such a name has surrogates in it.
    """
    from paramiko.sftp import CMD_CLOSE, CMD_HANDLE, CMD_NAME, CMD_OPENDIR, CMD_READDIR, CMD_STATUS
    from paramiko.sftp_attr import SFTPAttributes

    kind, answer = ftp._request(CMD_OPENDIR, folder)
    if kind != CMD_HANDLE:
        raise ConnectionError(f"answer {kind} to the opening of a folder")
    handle, ahead, ended = answer.get_string(), _AHEAD, False
    while not ended:
        answers = _Answers()
        for _ in range(ahead):
            ftp._async_request(answers, CMD_READDIR, handle)
        while len(answers) < ahead:
            ftp._read_response()
        for kind, answer in answers:
            if kind == CMD_STATUS:
                ended = _is_end(ftp, answer)
                continue
            if kind != CMD_NAME:
                raise ConnectionError(f"answer {kind} to the reading of a folder")
            for _ in range(answer.get_int()):
                name = answer.get_string().decode(errors="surrogateescape")
                answer.get_string()  # the same again for people
                facts = SFTPAttributes._from_msg(answer)
                if name not in (".", ".."):
                    yield name, facts
        ahead = min(2 * ahead, _MOST_AHEAD)
    ftp._request(CMD_CLOSE, handle)


def _is_end(ftp: Any, answer: Any) -> bool:
    """Whether a status says that the folder has been read; raises what else it says."""
    try:
        ftp._convert_status(answer)
    except EOFError:
        return True
    return False


def _info(name: str, facts: Any) -> Mapping[str, Any]:
    kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(facts.st_mode), "other")
    return {"name": name, "type": kind, "size": facts.st_size, "mtime": facts.st_mtime}


def opened(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store at `scheme`://`place` (see `chunkstore.schemes`)."""
    return SftpStore(f"{scheme}://{place}", options)
