"""Azurite, the emulator of Azure's blobs, for tests: in memory, on a free port of this machine.

It is an npm package and needs Node.js.
"""

from __future__ import annotations

import base64
import os
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.support import servers

_ACCOUNT = "testing"
_KEY = base64.b64encode(b"the key of the account of the tests").decode()
_PROGRAM = "npm/node_modules/azurite/dist/src/blob/main.js"


class Azurite(servers.Server):
    """A running server; `endpoint` is the URL of its account."""

    module = "tests.support.azurite"

    def check_installed(self) -> None:
        servers.installed("node", "node/bin/node")
        servers.installed("azurite-blob", _PROGRAM)

    def make_bucket(self) -> str:
        """The URL of a new container."""
        from azure.storage.blob import BlobServiceClient

        name = servers.new_name()
        with BlobServiceClient.from_connection_string(self.storage_options()["connection_string"]) as client:
            client.create_container(name)
        return f"abfs://{name}"

    def storage_options(self) -> dict[str, Any]:
        """Options for `open_store`, which also fit fsspec."""
        settings = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": _ACCOUNT,
            "AccountKey": _KEY,
            "BlobEndpoint": self.endpoint,
        }
        return {"connection_string": ";".join(f"{name}={value}" for name, value in settings.items())}

    def sas_options(self, container: str, permissions: str, endpoint: str = "") -> dict[str, Any]:
        """Options with a SAS for a container. permissions: its letters, such as "rl". endpoint: instead of the
        server's own, that of a proxy."""
        from azure.storage.blob import generate_container_sas

        expiry = datetime.now(timezone.utc) + timedelta(hours=1)
        sas = generate_container_sas(_ACCOUNT, container, _KEY, permission=permissions, expiry=expiry)
        place = f"{endpoint}/{_ACCOUNT}" if endpoint else self.endpoint
        return {"connection_string": f"BlobEndpoint={place};SharedAccessSignature={sas}"}


def _start(stack: ExitStack) -> str:
    folder = servers.new_folder(stack)
    (port,) = servers.free_ports(1)
    program = servers.installed("azurite-blob", _PROGRAM)
    node = [servers.installed("node", "node/bin/node")] if program.suffix == ".js" else []
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    command = [*node, program, *place, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"}
    log = folder / "output"
    servers.wait_for_port(port, stack.enter_context(servers.running(command, log, environment)), log)
    return f"http://127.0.0.1:{port}/{_ACCOUNT}"


if __name__ == "__main__":
    servers.run_server(_start)
