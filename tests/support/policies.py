"""Evaluation of the policies in examples/policies: what a request needs, and whether a policy allows it.

Each provider has a class with two methods. `needs` maps an HTTP request of an adapter to the rights that the provider
asks for, by the provider's documentation. `allows` evaluates one of them. Only the parts of the policy languages that
the files use are known; anything else raises ValueError, so that no condition is ignored.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

FOLDER = Path(__file__).resolve().parents[2] / "examples/policies"
ROLES = ("reader", "writer", "maintainer")


class HttpRequest(NamedTuple):
    """A request as it arrives at a server. `exists`: whether its object does."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    exists: bool = False


class Need(NamedTuple):
    """A right on a resource. `context`: the condition keys of the request."""

    right: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()


class Provider(Protocol):
    """How one provider reads its policies."""

    def __init__(self, role: str, bucket: str, folder: str) -> None: ...
    def needs(self, request: HttpRequest) -> list[Need]: ...
    def allows(self, need: Need) -> bool: ...


def policy(name: str, bucket: str, folder: str = "streams") -> Any:
    """A file of examples/policies for a bucket, and a root in that folder of it."""
    text = (FOLDER / f"{name}.json").read_text("utf-8")
    return json.loads(
        text.replace("BUCKET/objects/streams/", f"{bucket}/objects/{folder}/")
        .replace("BUCKET/streams", f"{bucket}/{folder}")
        .replace("BUCKET", bucket)
    )


class S3Policy:
    """An identity policy of AWS. Without an explicit Allow a request is denied, and a Deny overrides every Allow."""

    def __init__(self, role: str, bucket: str, folder: str) -> None:
        self._statements = policy(f"s3-{role}", bucket, folder)["Statement"]

    def needs(self, request: HttpRequest) -> list[Need]:
        parts = urlsplit(request.target)
        query = parse_qs(parts.query, keep_blank_values=True)
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        arn = f"arn:aws:s3:::{bucket}"
        if not key:
            if request.method == "GET" and "list-type" in query:
                return [Need("s3:ListBucket", arn, (("s3:prefix", query.get("prefix", [""])[0]),))]
            if request.method == "POST" and "delete" in query:
                keys = re.findall(rb"<Key>(.*?)</Key>", request.body, re.DOTALL)
                return [Need("s3:DeleteObject", f"{arn}/{each.decode()}") for each in keys]
            raise ValueError(f"not a request of the adapters: {request.method} {request.target}")
        condition = request.headers.get("if-none-match")
        context = (("s3:if-none-match", condition),) if condition is not None else ()
        if request.method == "DELETE":
            right = "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
        else:
            right = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject"}[
                request.method
            ]
        found = [Need(right, f"{arn}/{key}", context)]
        if right == "s3:GetObject" and not request.exists:
            found.append(Need("s3:ListBucket", arn))  # without it, S3 answers 403 and not 404
        return found

    def allows(self, need: Need) -> bool:
        effects = {each["Effect"] for each in self._statements if self._applies(each, need)}
        return effects == {"Allow"}

    def _applies(self, statement: Mapping[str, Any], need: Need) -> bool:
        if not statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}:
            raise ValueError(f"{statement} has elements that are not known here")
        conditions: Mapping[str, Mapping[str, str]] = statement.get("Condition", {})
        return (
            any(fnmatch.fnmatchcase(need.right, each) for each in _list(statement["Action"]))
            and any(_matches(need.resource, each) for each in _list(statement["Resource"]))
            and all(self._holds(operator, keys, dict(need.context)) for operator, keys in conditions.items())
        )

    @staticmethod
    def _holds(operator: str, keys: Mapping[str, str], context: Mapping[str, str]) -> bool:
        if operator != "Null":
            raise ValueError(f"the condition {operator} is not known here")
        return all((name not in context) is (wanted == "true") for name, wanted in keys.items())


class GcsRole:
    """A custom role of Google Cloud, bound with the condition of gcs-condition.json."""

    def __init__(self, role: str, bucket: str, folder: str) -> None:
        self._permissions = set(policy(f"gcs-{role}", bucket)["includedPermissions"])
        expression = policy("gcs-condition", bucket, folder)["expression"]
        condition = re.fullmatch(
            r'resource\.type == "storage\.googleapis\.com/Bucket" \|\| resource\.name\.startsWith\("(.+)"\)', expression
        )
        if condition is None:
            raise ValueError(f"the condition {expression} is not known here")
        self._prefix = condition[1]

    def needs(self, request: HttpRequest) -> list[Need]:
        parts = urlsplit(request.target)
        place = re.fullmatch(r"(?:/upload|/download)?/storage/v1/b/([^/]+)/o(?:/(.+))?", parts.path)
        if place is None:
            raise ValueError(f"not a request of the adapters: {request.method} {request.target}")
        bucket = f"projects/_/buckets/{unquote(place[1])}"
        if request.method == "GET" and place[2] is None:
            return [Need("storage.objects.list", bucket)]
        name = place[2] or parse_qs(parts.query)["name"][0]
        resource = f"{bucket}/objects/{unquote(name)}"
        if request.method == "POST":
            overwrite = [Need("storage.objects.delete", resource)] if request.exists else []
            return [Need("storage.objects.create", resource), *overwrite]
        if request.method == "DELETE":
            return [Need("storage.objects.delete", resource)]
        absent = [] if request.exists else [Need("storage.objects.list", bucket)]  # else 403 and not 404
        return [Need("storage.objects.get", resource), *absent]

    def allows(self, need: Need) -> bool:
        is_bucket = "/objects/" not in need.resource
        return need.right in self._permissions and (is_bucket or need.resource.startswith(self._prefix))


class AzureRole:
    """A custom role of Azure, assigned at the scope of a container."""

    _BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"

    def __init__(self, role: str, bucket: str, folder: str) -> None:
        self._scope = f"/{bucket}/"
        self._actions = set(policy(f"azure-{role}", bucket)["DataActions"])

    def needs(self, request: HttpRequest) -> list[Need]:
        parts = urlsplit(request.target)
        _, container, blob = [*unquote(parts.path).removeprefix("/").split("/", 2), ""][:3]  # behind the account
        resource = f"/{container}/{blob}"
        if request.method == "PUT":
            right = "write" if request.exists else "add/action"
        else:
            right = {"GET": "read", "HEAD": "read", "DELETE": "delete"}[request.method]
        return [Need(self._BLOBS + right, resource)]

    def allows(self, need: Need) -> bool:
        return need.right in self._actions and need.resource.startswith(self._scope)


PROVIDERS: Mapping[str, type[Provider]] = {"s3": S3Policy, "gcs": GcsRole, "azure": AzureRole}


def rights_in(provider: str, role: str) -> set[str]:
    """All rights that a policy grants."""
    document = policy(f"{provider}-{role}", "bucket")
    if provider == "s3":
        return {right for each in document["Statement"] if each["Effect"] == "Allow" for right in _list(each["Action"])}
    return set(document["includedPermissions" if provider == "gcs" else "DataActions"])


def _list(value: Any) -> Iterator[str]:
    yield from [value] if isinstance(value, str) else value


def _matches(name: str, pattern: str) -> bool:
    return (
        re.fullmatch("".join(".*" if each == "*" else re.escape(each) for each in pattern), name, re.DOTALL) is not None
    )
