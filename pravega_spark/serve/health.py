"""Requests about health (Pravega: HealthImpl). Each container of the root is a contributor.

Liveness needs no storage: a server that answers is alive. Everything else comes from the status that all share.
"""

from __future__ import annotations

from typing import Any

from chunkstore.errors import StorageError
from engine.admin.inspection import ContainerStatus
from engine.errors import EngineError
from pravega_spark.quantities import size_text
from pravega_spark.serve.failures import Refusal
from pravega_spark.serve.replies import Call, Reply
from pravega_spark.serve.service import Service

_PREFIX = "container-"


def health(service: Service) -> dict[str, Any]:
    """The health of the root, with that of each container."""
    try:
        status = service.status()
    except (StorageError, EngineError) as error:
        return _result("root", "DOWN", {"problem": str(error)})
    children = {f"{_PREFIX}{each.number}": _container(each) for each in status.containers}
    ready = all(child["readiness"] for child in children.values())
    details = {"root": status.url, "streams": str(len(status.streams)), "problems": str(len(status.problems))}
    return _result("root", "UP" if ready else "FAILED", details, children)


def get_health(service: Service, call: Call) -> Reply:
    """The health of the root or of a container, as `member` of the result if one is asked for."""
    return Reply(200, _found(service, call.path.get("id")))


def get_status(service: Service, call: Call) -> Reply:
    """Its status."""
    return Reply(200, _found(service, call.path.get("id"))["status"])


def get_readiness(service: Service, call: Call) -> Reply:
    """Whether it is ready."""
    return Reply(200, _found(service, call.path.get("id"))["readiness"])


def get_liveness(service: Service, call: Call) -> Reply:
    """Whether it is alive."""
    name = call.path.get("id")
    return Reply(200, True if name is None else _found(service, name)["liveness"])


def get_details(service: Service, call: Call) -> Reply:
    """Its details."""
    return Reply(200, _found(service, call.path.get("id"))["details"])


def probe(service: Service, call: Call) -> Reply:
    """The health of the root, as probes want it: with status 503 unless it is ready."""
    found = health(service)
    return Reply(200 if found["readiness"] else 503, found)


def ping(service: Service, call: Call) -> Reply:
    """Nothing: the server answers."""
    return Reply(200)


def _found(service: Service, name: str | None) -> dict[str, Any]:
    found = health(service)
    if name is None or name == "root":
        return found
    if name not in found["children"]:
        there = ", ".join(found["children"]) or "none"
        raise Refusal(404, "ContributorNotFound", f"There is no contributor of this name: use one of {there}")
    child: dict[str, Any] = found["children"][name]
    return child


def _container(status: ContainerStatus) -> dict[str, Any]:
    name, found = f"{_PREFIX}{status.number}", status.description
    if found is None:
        return _result(name, "FAILED", {"problem": status.reason})
    failures = {f"{kind} failed": error for kind, error in found.failures.items()}
    return _result(name, "UP", {"in the log": size_text(found.logged), "garbage": str(found.garbage), **failures})


def _result(
    name: str, status: str, details: dict[str, str], children: dict[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "readiness": status == "UP",
        "liveness": True,
        "details": details,
        "children": children or {},
    }
