"""`serve`: the REST API and pages over a root."""

from __future__ import annotations

import os
import ssl
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SecondsType
from pravega_spark.console.program import Refused

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

TOKEN_VARIABLE = "PRAVEGA_SERVE_TOKEN"
"""The environment variable with the token, instead of a file."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to bind, of this machine.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--allow-changes", is_flag=True, help="Let requests with the token change streams. Needs a token.")
@click.option(
    "--token-file", type=_FILE, help=f"The file with the token; or give the token itself in {TOKEN_VARIABLE}."
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Another name under which browsers reach this server. Repeatable.",
)
@click.option(
    "--open-reads", is_flag=True, help="Bound to another address than loopback: let all who reach it read everything."
)
@click.option("--tls-certificate", type=_FILE, help="The file with the certificate and its chain (PEM), for HTTPS.")
@click.option("--tls-key", type=_FILE, help="The file with the key of the certificate, if it is another one.")
@click.option(
    "--maintain", is_flag=True, help="Maintain the root too, as the command does. One of several servers does it."
)
@click.option(
    "--maintain-every", type=SecondsType(min_open=True), help="Time between two looks at what is to do.  [default: 1h]"
)
@pass_session
def serve(
    session: Session,
    host: str,
    port: int,
    allow_changes: bool,
    token_file: Path | None,
    hosts: tuple[str, ...],
    open_reads: bool,
    tls_certificate: Path | None,
    tls_key: Path | None,
    maintain: bool,
    maintain_every: float | None,
) -> None:
    """Serve a REST API, and pages to watch streams.

    By default only this machine reaches the server, and it changes nothing. Bound to another address, it wants the
    token for reads too, unless --open-reads is given.
    """
    if tls_key is not None and tls_certificate is None:
        raise click.UsageError("Give --tls-certificate with --tls-key.")
    if maintain_every is not None and not maintain:
        raise click.UsageError("Give --maintain with --maintain-every.")
    if maintain:
        session.root.check_writable()
    try:
        from pravega_spark.serve.application import application
        from pravega_spark.serve.server import Server
        from pravega_spark.serve.settings import ServeSettings, is_loopback
    except ImportError as error:
        raise Refused(f"serve needs the package {error.name}: pip install 'pravega-spark[serve]'") from None
    own = () if is_loopback(host) or host in ("0.0.0.0", "::") else (host,)
    private = not is_loopback(host) and not open_reads
    token = _token(token_file)
    if token is None and (allow_changes or private):
        raise click.UsageError(
            f"{'--allow-changes' if allow_changes else f'--host {host}'} needs a token: give --token-file FILE, or the "
            f"token in {TOKEN_VARIABLE}{'' if allow_changes else '; or give --open-reads'}"
        )
    try:
        settings = ServeSettings(allow_changes, token, private, (*hosts, *own))
    except ValueError as error:
        raise Refused(str(error)) from None
    try:
        server = Server(application(session.manager, settings), settings, host, port, tls_certificate, tls_key)
    except ssl.SSLError as error:
        raise Refused(
            f"the files of --tls-certificate and --tls-key are no certificate with its key: {error.reason or error}. "
            "Give both in PEM, and the key of this certificate"
        ) from None
    except OSError as error:
        raise Refused(f"{host}:{port} cannot be bound: {error.strerror or error}. Give another --port.") from None
    can = "changes are allowed with the token" if allow_changes else "read-only"
    can += ", and maintains the root" if maintain else ""
    session.output.line(f"serving {session.root.stores.chunks.root} at {server.url} ({can})")
    if session.output.as_json:
        told = {"url": server.url, "root": session.root.stores.chunks.root, "changes": allow_changes}
        session.output.record({**told, "maintain": maintain})
    if private and not server.secure:
        session.output.warning("the token is sent in plain text: give --tls-certificate, or use a proxy with TLS")
    try:
        with _maintenance(session, maintain_every) if maintain else nullcontext():
            server.run()
    except KeyboardInterrupt:
        session.output.line("the server has ended")


def _maintenance(session: Session, every: float | None) -> AbstractContextManager[Any]:
    """Maintenance meanwhile."""
    from pravega_spark.jobs.maintenance_service import EVERY, MaintenanceService

    return MaintenanceService(session.root, every=EVERY if every is None else every)


def _token(file: Path | None) -> str | None:
    """The token, from a file or the environment."""
    if file is not None:
        return file.read_text("utf-8").strip()
    return os.environ.get(TOKEN_VARIABLE) or None
