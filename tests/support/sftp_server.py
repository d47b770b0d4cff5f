"""An SSH server for tests, OpenSSH's, that serves files below a folder of its own on a free port of this machine.

Nobody can log in but with a key that is made at the start. Where that would take root's rights, the server runs as the
user nobody, so that it needs nothing of the system.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import servers

_PROGRAM = "debian/usr/sbin/sshd"


class SftpServer(servers.Server):
    """A running server; `endpoint` is the URL of its folder, with the user's name."""

    module = "tests.support.sftp_server"

    def check_installed(self) -> None:
        servers.installed("sshd", _PROGRAM)
        servers.installed("ssh-keygen", "debian/usr/bin/ssh-keygen")

    def make_bucket(self) -> str:
        """The URL of a new folder."""
        return f"{self.endpoint}/{servers.new_name()}"

    def storage_options(self) -> dict[str, Any]:
        """Options for `open_store`, which also fit fsspec."""
        folder = "/" + self.endpoint.partition("://")[2].partition("/")[2]
        key = os.path.join(os.path.dirname(folder), "user_key")
        return {"key_filename": key, "allow_agent": False, "look_for_keys": False}


def _start(stack: ExitStack) -> str:
    # Not in memory: such filesystems often hold no programs that may be started.
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sshd-")))
    environment = servers.library_path()
    program, run_as = servers.installed("sshd", _PROGRAM), pwd.getpwuid(os.getuid())
    (port,) = servers.free_ports(1)
    (folder / "files").mkdir()
    keygen = str(servers.installed("ssh-keygen", "debian/usr/bin/ssh-keygen"))
    for name in ("host_key", "user_key"):
        make = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True, env=environment, stdin=subprocess.DEVNULL)
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "user_key.pub",
        "AuthenticationMethods": "publickey",
        "StrictModes": "no",
        # Without it, an account without a password counts as locked.
        "UsePAM": "yes" if run_as.pw_uid == 0 else "no",
        "PidFile": "none",
        "MaxStartups": 100,
        "ForceCommand": "internal-sftp",
        "Subsystem": "sftp internal-sftp",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if run_as.pw_uid == 0:
        run_as = pwd.getpwnam("nobody")
        program, environment = _reachable(program, environment, folder)
        for path in (folder, folder / "files", folder / "host_key"):
            os.chown(path, run_as.pw_uid, run_as.pw_gid)
    log = folder / "output"
    log.touch()
    command = [program, "-D", "-e", "-f", folder / "config"]
    process = stack.enter_context(servers.running(command, log, environment, user=run_as.pw_uid))
    servers.wait_for_port(port, process, log)
    return f"sftp://{run_as.pw_name}@127.0.0.1:{port}{folder}/files"


def _reachable(program: Path, environment: dict[str, str], folder: Path) -> tuple[Path, dict[str, str]]:
    """A copy of an unpacked program, with its library, where another user can start it."""
    root = servers.servers_folder() / "debian"
    if root not in program.parents:
        return program, environment
    folder.chmod(0o755)
    for file in (program, *root.glob("**/libwrap.so.*")):
        shutil.copy(file, folder)
    return folder / program.name, {**environment, "LD_LIBRARY_PATH": str(folder)}


if __name__ == "__main__":
    servers.run_server(_start)
