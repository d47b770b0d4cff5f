"""Breakages of the server: what keeps it safe, what keeps it cheap, and the lease of maintenance."""

from __future__ import annotations

from tests.planted import Breakage

_SAFETY = "tests/serve/test_safety.py"
_SERVICE = "tests/jobs/test_maintenance_service.py"

BREAKAGES = [
    Breakage(
        name="a change needs no token",
        file="pravega_spark/serve/access.py",
        old='    if not _is_bearer(settings, authorization):\n        raise _unknown("Bearer"',
        new='    if False:\n        raise _unknown("Bearer"',
        tests=[f"{_SAFETY}::test_changes_need_the_token"],
    ),
    Breakage(
        name="a page of another site is answered under a name that it points at loopback",
        file="pravega_spark/serve/guard.py",
        old="        if host not in self._hosts:",
        new="        if False:",
        tests=[f"{_SAFETY}::test_a_host_that_is_not_ours_is_misdirected"],
    ),
    Breakage(
        name="a request of another origin is answered",
        file="pravega_spark/serve/guard.py",
        old="        if origin is not None and origin != ",
        new="        if False and origin != ",
        tests=[f"{_SAFETY}::test_other_origins_are_refused"],
    ),
    Breakage(
        name="a body that is too large is read before it is refused",
        file="pravega_spark/serve/guard.py",
        old="            if self._unread and self._is_small:",
        new="            if self._unread:",
        tests=[f"{_SAFETY}::test_a_body_that_is_too_large_is_not_read"],
    ),
    Breakage(
        name="a client loses the answer with the rest of its small body",
        file="pravega_spark/serve/guard.py",
        old="            if self._unread and self._is_small:",
        new="            if False:",
        tests=[f"{_SAFETY}::test_a_small_body_that_is_refused_costs_no_connection"],
    ),
    Breakage(
        name="a client that sends no request keeps its connection",
        file="pravega_spark/serve/server.py",
        old="            super().connection_made(transport)\n            self._watch()",
        new="            super().connection_made(transport)",
        tests=[f"{_SAFETY}::test_slow_clients_lose_their_connections"],
    ),
    Breakage(
        name="the poller goes on after the last viewer has gone",
        file="pravega_spark/serve/live.py",
        old="            if not subject.viewers:\n                self._subjects.pop(key, None)",
        new="            pass",
        tests=["tests/serve/test_pages.py::test_viewers_that_have_gone_leave_no_subject"],
    ),
    Breakage(
        name="templates escape nothing",
        file="pravega_spark/serve/rendering.py",
        old="            autoescape=True,",
        new="            autoescape=False,",
        tests=["tests/serve/test_pages.py::test_no_markup_comes_from_streams"],
    ),
    Breakage(
        name="the answer to a wrong method hides the others of its path",
        file="pravega_spark/serve/api.py",
        old="    return Route(path, answer, methods=[*operations],",
        new="    return Route(path, answer, methods=[*operations][:1],",
        tests=[f"{_SAFETY}::test_an_unknown_path_or_method"],
    ),
    Breakage(
        name="a look at an idle root takes the lease",
        file="pravega_spark/jobs/maintenance_service.py",
        old='    return planned.bytes > 0 if planned.step == "flush" else planned.changed',
        new="    return planned.changed",
        tests=[f"{_SERVICE}::test_an_idle_root_costs_no_write_and_as_many_reads_at_each_look"],
    ),
    Breakage(
        name="two servers maintain a root at once",
        file="pravega_spark/streams/maintenance/lease.py",
        old="        if record.token and not self._expired(record):\n            return False\n",
        new="",
        tests=[f"{_SERVICE}::test_one_of_two_servers_maintains_the_root"],
    ),
    Breakage(
        name="the lease of a server that was killed never expires",
        file="pravega_spark/streams/maintenance/lease.py",
        old="        return now - seen[2] >= self._seconds",
        new="        return False",
        tests=[f"{_SERVICE}::test_a_process_that_was_killed_is_replaced"],
    ),
]
