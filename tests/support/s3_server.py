"""An S3 server for tests, on a free port of this machine, in a process of its own that ends with its parent.

It is moto, its requests carried out one after the other: moto itself carries out requests of several threads at once,
and then two conditional creates of one object may both succeed.
"""

from __future__ import annotations

from typing import Any

from tests.support import servers, wsgi_server


class S3Server(wsgi_server.WsgiServer):
    """A running server; `endpoint` is its URL. Close it, or use it in a with statement."""

    module = "tests.support.s3_server"

    def storage_options(self) -> dict[str, Any]:
        """Options for `open_store`, which also fit fsspec."""
        return {
            "key": "testing",
            "secret": "testing-secret",
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        }

    def make_bucket(self) -> str:
        """The URL of a new bucket."""
        name = servers.new_name()
        self.send("PUT", f"/{name}")
        return f"s3://{name}"


if __name__ == "__main__":
    from moto.moto_server.werkzeug_app import create_backend_app

    wsgi_server.run_wsgi_server(create_backend_app("s3"))
