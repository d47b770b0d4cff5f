"""URLs of roots: which are refused, because they hold credentials or would be folders by a slip, and how one is shown
that was not checked yet.

A root's URL is shown wherever the root is: in errors, logs and plans; and it is kept, as the place of a root's log. So
credentials have no place in it, in whatever form. They go into storage options, which are never shown. A URL from
outside is checked before anything else, and an error says what is wrong with it and never repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from chunkstore.errors import StorageRefused
from chunkstore.schemes import BUCKETS, FOLDERS, KNOWN, WITH_USER

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_WORDS = "token|sig(?:nature)?|secret|pass(?:word|wd|phrase)?|pwd|key|credentials?|auth(?:orization)?"
_PARAMETER = re.compile(rf"[?&;#][^=?&;#/]*(?:{_WORDS})[^=?&;#/]*=", re.IGNORECASE)

_SLIP = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?::(?!//)/?|//)(?![/:])")  # no letter of a drive

REMOVED = "<removed>"
"""What is shown in the place of credentials."""


def check_url(url: str, name: str = "the root's URL") -> None:
    """Raise StorageRefused if a URL, or folder, holds credentials, or is a path that was meant as a URL: `s3:/a`.

    The error calls it `name`, and does not show credentials.
    """
    meant = _meant(url)
    found = _credentials(url if meant is None else meant)
    if found is not None:
        raise StorageRefused(
            f"{name} holds {found}: it would be shown in messages and plans. Give credentials as storage options "
            "(storage.<name> in Spark, --storage NAME=VALUE on the command line, storage_options in Python), never in "
            "the URL"
        )
    if meant is not None:
        folder = re.split("[:/]", url)[0] + (":" if ":" in url else "")
        raise StorageRefused(
            f"{name}: {url!r} would be a folder named {folder!r}. Did you mean {meant!r}? If it is a folder's name, "
            "write ./ before it"
        )


def _meant(url: str) -> str | None:
    """The URL that a path is meant as which begins like one of a known scheme, but for a slash or the colon."""
    found = _SLIP.match(url)
    if found is None or url.startswith("file:/"):  # the way Hadoop prints it
        return None
    scheme, rest = found[1], url[found.end() :]
    if scheme.lower() == "file":
        return f"file:///{rest}" if ":" in found[0] else None
    if scheme.lower() not in KNOWN and (":" not in found[0] or scheme.lower() not in _of_fsspec()):
        return None
    return f"{scheme}://{rest}"


def _of_fsspec() -> Iterable[str]:
    from fsspec.registry import known_implementations  # takes long to load, and few need it

    return list[str](known_implementations)


def _credentials(url: str) -> str | None:
    """What of a URL is or may be a credential, for people; None if nothing is."""
    for text in {url, unquote(url)}:
        scheme = _SCHEME.match(text)
        if found := _in_folder(text) if scheme is None else _in_url(scheme[1].lower(), text[scheme.end() :]):
            return found
    return None


def _in_url(scheme: str, rest: str) -> str | None:
    if re.search(r"::", re.sub(r"\[[^\]]*\]", "", rest)):
        return "several URLs, chained with '::', which are not supported"
    if scheme in FOLDERS:
        return "a parameter that looks like a credential" if _PARAMETER.search(rest) else None
    login, marked, _ = rest.rpartition("@")  # a password may have a / in it, and any other mark
    if marked and ":" in login:
        return "a user and a password (or an '@' behind a ':', which reads like them)"
    if "?" in rest:
        return "a query string (what comes after '?')"
    if "#" in rest:
        return "a fragment (what comes after '#')"
    if "@" in rest.partition("/")[0] and scheme not in WITH_USER:
        return "a user, or a token, before '@'"
    return None


def _in_folder(text: str) -> str | None:
    """As `_in_url`, of a path, or of what may be a URL with a slip in it."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*::", text) and "://" in text:
        return "several URLs, chained with '::', which are not supported"
    if _PARAMETER.search(text):
        return "a parameter that looks like a credential"
    if not text.startswith(("/", "./", "../")) and re.match(r"[^@]*:[^@]*@", text):
        return "a user and a password (or an '@' behind a ':', which reads like them); write ./ before a folder's name"
    return None


def redact(url: str) -> str:
    """A URL that was not checked yet, as it may be shown: of one that holds credentials the scheme alone."""
    if _credentials(url) is None:
        return url
    scheme = _SCHEME.match(url)
    return f"{scheme[0] if scheme is not None else ''}{REMOVED}"


def host_of(url: str) -> str:
    """The host that a URL sends requests and credentials to: that of Azure's account, or of another server.

    "" if the URL names none: it is of a folder, or of a bucket, whose host is in the storage options.
    """
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[1].lower() in FOLDERS:
        return ""
    user, _, host = url[scheme.end() :].partition("/")[0].rpartition("@")
    kind = scheme[1].lower()
    return host.lower() if user or kind not in BUCKETS else ""
