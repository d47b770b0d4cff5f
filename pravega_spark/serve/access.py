"""Who may do what: the token of changes, and of reads where they are private."""

from __future__ import annotations

import base64
import binascii
import hmac

from pravega_spark.serve.failures import Refusal
from pravega_spark.serve.settings import ServeSettings


def check_change(settings: ServeSettings, authorization: str) -> None:
    """Raise Refusal unless a request may change something: only with the token as a bearer's, which a browser never
    sends by itself."""
    if not settings.allow_changes:
        raise Refusal(
            403,
            "ReadOnly",
            "This server changes nothing: start it with --allow-changes and a token to allow that",
        )
    if not _is_bearer(settings, authorization):
        raise _unknown("Bearer", "The token is missing or wrong: send it as `Authorization: Bearer TOKEN`")


def check_read(settings: ServeSettings, authorization: str) -> None:
    """Raise Refusal unless a request may read. Where reads are private, browsers send the token as a password."""
    if settings.private and not _is_bearer(settings, authorization) and not _is_password(settings, authorization):
        raise _unknown(
            'Basic realm="pravega-spark", charset="UTF-8"',
            "The token is missing or wrong: send it as `Authorization: Bearer TOKEN`, or as the password of any user",
        )


def _unknown(challenge: str, message: str) -> Refusal:
    return Refusal(401, "Unauthorized", message, {"WWW-Authenticate": challenge})


def _is_bearer(settings: ServeSettings, authorization: str) -> bool:
    kind, _, token = authorization.partition(" ")
    return kind.lower() == "bearer" and _is_token(settings, token.strip())


def _is_password(settings: ServeSettings, authorization: str) -> bool:
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return False
    try:
        _, _, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return False
    return _is_token(settings, password)


def _is_token(settings: ServeSettings, given: str) -> bool:
    """Compared in the same time, whatever is wrong with it."""
    return settings.token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), settings.token.encode())
