"""Objects as files behind an SSH server, over SFTP.

An object is written to a temporary file in `<root>/.tmp/`, synced, and then renamed. To make one that must not exist
yet, it is the rename of the protocol's third version, which must fail if the new name exists: OpenSSH makes a hard link
and removes the old name. That is atomic where the server's filesystem has hard links; elsewhere OpenSSH looks first and
then renames, which the self-test may find out, and may not. To overwrite, it is OpenSSH's posix-rename.

The protocol syncs files and not folders: an object survives the death of any process, but after a power failure of the
server its name may be missing. What killed writers leave in `.tmp/` stays.

A file's time is that of its writing. A process that slept before the rename would publish an object that looks old,
which W7 must not see. Hence it is published with a time in the far future, which is corrected at once: whoever sees it
in between, or after a death in between, takes it for new.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from chunkstore.backends.generic import GenericStore
from chunkstore.errors import StorageError

_TEMPORARY = ".tmp"
_FAR_FUTURE = 2**32 - 1  # the latest time that the protocol can express, in the year 2106


class SftpStore(GenericStore):
    """Objects below sftp://host/folder; `options` are those of paramiko's SSHClient.connect."""

    def _create(self, fs: Any, name: str, body: bytes) -> None:
        self._publish(fs, name, body, fs.ftp.rename)

    def _replace(self, fs: Any, name: str, body: bytes) -> None:
        self._publish(fs, name, body, fs.ftp.posix_rename)

    def _publish(self, fs: Any, name: str, body: bytes, rename: Callable[[str, str], None]) -> None:
        temporary = f"{self._base}/{_TEMPORARY}/{uuid.uuid4().hex}"
        written = self._in_folder_of(fs, temporary, lambda: _write(fs.ftp, temporary, body))
        since = time.monotonic()
        try:
            fs.ftp.utime(temporary, (_FAR_FUTURE, _FAR_FUTURE))
            self._in_folder_of(fs, name, lambda: rename(temporary, name))
        except BaseException:
            with contextlib.suppress(Exception):  # the reason why matters more
                fs.ftp.remove(temporary)
            raise
        now = int(written + time.monotonic() - since)
        fs.ftp.utime(name, (now, now))

    def _path(self, name: str) -> str | None:
        path = super()._path(name)
        return None if path is None or path.startswith(f"{_TEMPORARY}/") else path

    def _name(self, path: str) -> str:
        if path.split("/", 1)[0] == _TEMPORARY:
            raise ValueError(f"storage path {path!r} lies in {_TEMPORARY}/, which belongs to the store")
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
        file.set_pipelined(True)  # what fails is told when it is closed
        file.write(body)
        ftp._request(CMD_EXTENDED, "fsync@openssh.com", file.handle)
        return float(file.stat().st_mtime)
