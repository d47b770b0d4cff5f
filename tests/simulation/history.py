"""One history: a world, a root in its storage, hosts with their processes, the actors on them, and the checks."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from chunkstore.paths import ROOT
from chunkstore.testing import SimulatedStore
from engine.admin.verify import verify
from engine.containers.container import Container
from engine.errors import DataCorruption, LogLost, RootReplaced
from engine.logs.mailbox import no_mailbox
from engine.ownership import MadeBeforeFork
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from tests.simulation.clones import Memory
from tests.simulation.ledger import Ledger, require
from tests.simulation.mailboxes import Mailboxes
from tests.simulation.network import Faults, HostStore
from tests.simulation.plan import GRACE, Incident, Plan
from tests.simulation.virtual import virtual
from tests.simulation.world import EPOCH, Host, Task, World
from tests.support.simulation import small_sizes

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

AGAIN = 0.05
"""Seconds until it is looked again whether a process is in no call."""

PATIENCE = 2.0
"""Seconds for which a process retries a request."""

LONGEST = 900.0
"""Seconds after the last fault within which all actors are done."""

UNSOUND = (DataCorruption, LogLost, RootReplaced)
"""Errors that no history may cause."""


class Process:
    """A process of the product: a root, opened on a host. opened: its container, once it was used."""

    def __init__(self, history: History, host: Host, store: HostStore) -> None:
        self.host = host
        self.store = store
        self.opened: Container | None = None
        self._history = history

    @functools.cached_property
    def root(self) -> Root:
        """The root, opened by the first thread of this host that uses it."""
        stores = Stores(self.store, self.store)
        return Root(stores, self._history.config, self._history.settings, described=True)

    @functools.cached_property
    def manager(self) -> StreamManager:
        """A manager of its root."""
        return StreamManager.over(self.root)

    def close(self) -> None:
        """Close the root."""
        self.root.close()

    def container(self) -> Container:
        """Its container, opened again if it is offline."""
        self.opened = self.root.container(0)
        return self.opened


class History:
    """A history of a plan. trace: what happened. ledger: what was promised. shared: what the actors of its scenario
    keep together. copies: the places of backups, if there are any."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.objects = SimulatedStore(plan.seed, remote=True, can_append=plan.appends, now=EPOCH)
        self.world = World(plan.seed, plan.switches)
        self.ledger = Ledger(lambda: self.world.now)
        self.actors: list[Actor] = []
        self.processes: list[Process] = []
        self.stores: list[HostStore] = []
        self.errors: list[str] = []
        self.interrupted = 0  # containers that went offline by an interrupt
        self.shared: Any = None
        self.copies: Any = None
        self.config = RootConfig(
            id=random.Random(f"{plan.seed}/root").randbytes(16).hex(),
            containers=1,
            grace_seconds=GRACE,
            garbage_delay_seconds=GRACE,
            transient_idle_seconds=2 * GRACE,
        )
        self.settings = Settings(**{"timeout": PATIENCE, "clock_tolerance": 10.0, "poll": 0.02, **plan.settings})
        self.sound: Process
        self._finished = False
        self._awaited = 0  # processes that are to begin

    @property
    def trace(self) -> list[tuple[float, str, str]]:
        """When, which actor or host, and what."""
        return self.world.trace

    @property
    def operations(self) -> int:
        """How many operations the actors have begun."""
        return sum(actor.begun for actor in self.actors)

    def run(
        self, prepare: Callable[[History], None], patch: Callable[[History, contextlib.ExitStack], None] | None = None
    ) -> None:
        """Run it and check it. Raises the first error. prepare: what there is before the actors begin; it adds them.
        patch: what else is other than usual."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._logged())
            if self.plan.small:
                stack.enter_context(small_sizes())
            if patch is not None:
                patch(self, stack)
            mailboxes = Mailboxes(self.world).open if self.plan.mailboxes else no_mailbox
            stack.enter_context(virtual(self.world, mailboxes))
            self.objects.put(ROOT, self.config.to_bytes())
            director = Host(self.world, "director")
            self.world.spawn(director, "director", lambda: self._direct(director, prepare))
            self.world.run(lambda: self._finished)

    def process(self, name: str, number: int = 0) -> Process:
        """A new process on a host of its own, with clocks like those of the plan's host of that number."""
        draw = random.Random(f"{self.plan.seed}/{name}")
        ahead = self.plan.ahead[number % len(self.plan.ahead)]
        host = Host(self.world, name, ahead, 1 + draw.uniform(-4e-4, 4e-4), draw.uniform(10, 1e6))
        return Process(self, host, self.store(host, draw))

    def store(self, host: Host, draw: random.Random) -> HostStore:
        """A host's way to the storage."""
        median = self.plan.median * draw.choice((0.5, 1.0, 3.0))
        store = HostStore(self.objects, host, draw, self.plan.faults, median, self.plan.delay)
        store.faulty = self.world.now < self.plan.faulty
        self.stores.append(store)
        return store

    # --- the director ------------------------------------------------------------------------------------------------

    def _direct(self, host: Host, prepare: Callable[[History], None]) -> None:
        """Begin the actors, let the incidents happen, and check when all are done."""
        sound = Process(self, host, HostStore(self.objects, host, random.Random(0), Faults(), 0.001, 0.0))
        self.sound = sound
        self.processes = [self.process(f"host {number}", number) for number in range(self.plan.hosts)]
        prepare(self)
        start = self.world.now
        for actor in self.actors:
            actor.start()
        for incident in self.plan.incidents:
            self.world.at(start + incident.when, functools.partial(self._happen, incident))
        self.world.at(start + self.plan.faulty, self._mend)
        last = start + max([self.plan.faulty, *(each.when + max(each.seconds, 0) for each in self.plan.incidents)])
        pause = self.plan.pause * self.plan.operations
        deadline = last + LONGEST + 10 * pause
        while (working := self._working()) or self._awaited:
            require(self.world.now < deadline, f"no progress: {[each.name for each in working]} are not done")
            self.world.sleep(0.5)
        self._mend()
        self._close()
        self.world.sleep(5 * self.plan.delay + PATIENCE)  # what is late arrives
        self._check()
        self._finished = True
        self.world.sleep(1)

    def _working(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.done and not actor.process.host.dead]

    def _happen(self, incident: Incident) -> None:
        process = self.processes[incident.host]
        self.world.note(process.host.name, str(incident))
        if incident.kind == "stop":
            process.host.stop(incident.seconds)
        elif incident.kind == "step":
            process.host.ahead += incident.seconds
        elif incident.kind == "outage":
            process.store.outage = self.world.now + incident.seconds
        elif incident.kind == "clone":
            self._awaited += 1
            self._clone(process, incident.seconds)
        elif incident.kind == "fork":
            self._fork(process)
        elif not process.host.dead:
            process.host.kill()
            self._awaited += 1
            self.world.at(self.world.now + 1.0, lambda: self._restart(incident.host))

    def _restart(self, number: int) -> None:
        """Another process continues what a killed one did."""
        self._awaited -= 1
        killed = self.processes[number]
        name = f"{killed.host.name}'"
        process = self.processes[number] = self.process(name, number)
        self.world.note(name, "begins")
        for actor in [actor for actor in self.actors if actor.process is killed and not actor.done]:
            successor = actor.successor(process)
            if successor is not None:
                self.actors.append(successor)
                successor.start()

    def _clone(self, process: Process, seconds: float) -> None:
        """Let a process go on twice, as soon as it does nothing. seconds: so much later the clone goes on."""
        if process.host.dead or process.opened is None or all(actor.done for actor in self._actors_of(process)):
            self._awaited -= 1
        elif process.host.calls or not all(self.world.is_idle(task) for task in self._threads_of(process)):
            self.world.at(self.world.now + AGAIN, lambda: self._clone(process, seconds))
        else:
            self._awaited -= 1
            cloned, memory = self._copied(process, "clone")
            vars(cloned)["root"] = memory.of(process.root)
            cloned.host.stop(seconds)
            self.world.spawn(cloned.host, "threads", memory.begin_threads)
            self._begin(cloned, self._actors_of(process))

    def _fork(self, process: Process) -> None:
        """Let a process have a child, whatever its threads do just now."""
        if process.host.dead or process.opened is None:
            return
        parents = [(process.host, process.host)]  # what it inherits is still its parent's
        child, memory = self._copied(process, "child", parents)
        copies = memory.of((process.root, process.manager, process.opened))
        vars(child)["root"], vars(child)["manager"], inherited = copies
        self.world.spawn(child.host, "inherited", lambda: self._check_refused(inherited))
        self._begin(child, self._actors_of(process))

    def _copied(
        self, process: Process, what: str, instead: Sequence[tuple[object, object]] = ()
    ) -> tuple[Process, Memory]:
        """A process on a host of its own, which has no root yet, and what copies one for it."""
        name = f"{process.host.name}, {what} {len(self.processes)}"
        host = process.host.copy(name)
        copied = Process(self, host, self.store(host, random.Random(f"{self.plan.seed}/{name}")))
        shared = [(each, each) for each in (self, self.world, self.objects)]
        self.processes.append(copied)
        self.world.note(name, "begins")
        return copied, Memory([(process.host, host), (process.store, copied.store), *shared, *instead])

    def _actors_of(self, process: Process) -> list[Actor]:
        return [actor for actor in self.actors if actor.process is process]

    def _threads_of(self, process: Process) -> list[Task]:
        """Those that are not actors."""
        actors = {actor.task for actor in self.actors}
        return [task for task in self.world.tasks if task.host is process.host and task not in actors]

    def _begin(self, copied: Process, actors: list[Actor]) -> None:
        """Begin actors of the same kinds as these in a copy of their process."""
        for actor in actors:
            self.actors.append(type(actor)(self, copied, f"{actor.name}'{len(self.processes)}"))
            self.actors[-1].start()

    def _check_refused(self, inherited: Container) -> None:
        """A child cannot use its parent's container: each call is refused, and neither waits nor sends anything. At a
        lock of its own it may let other threads run, which takes microseconds."""
        for call in (
            lambda: inherited.commit([]),
            lambda: inherited.submit([]),
            inherited.refresh,
            inherited.flush,
            inherited.checkpoint,
            inherited.collect_garbage,
        ):
            now = self.world.now
            try:
                call()
                refused = False
            except MadeBeforeFork:
                refused = True
            require(refused and self.world.now < now + 1e-3, f"a child used its parent's container: {call}")
        inherited.close()
        require(self.world.now < now + 1e-3, "a child closed its parent's container")

    def _mend(self) -> None:
        """No faults from now on."""
        for store in self.stores:
            store.faulty = False

    def _close(self) -> None:
        """Close all living processes, each on its own host."""
        living = [process for process in self.processes if not process.host.dead]
        closing = [self.world.spawn(process.host, "close", process.close) for process in living]
        until = self.world.now + LONGEST
        while left := [task for task in closing if not task.ended and not task.host.dead]:
            require(self.world.now < until, f"{[task.host.name for task in left]} cannot be closed")
            self.world.sleep(0.1)

    def _check(self) -> None:
        """Check what there is in the end, as a process sees it that opens the root then."""
        container = self.sound.container()
        container.commit([])
        ends = {}
        for segment in sorted(self.ledger.contents):
            info = container.info(segment)
            data = container.read(segment, info.start_offset, info.length)
            require(len(data) == info.length - info.start_offset, f"{segment}: a read of {len(data)} bytes was short")
            self.ledger.saw(segment, info.start_offset, data, "the last reader")
            require(info.start_offset >= self.ledger.contents[segment].start, f"{segment} was truncated beyond {info}")
            ends[segment] = info.start_offset, info.length
        self.ledger.check(ends)
        for actor in self.actors:
            actor.check(container)
        self.sound.root.close()
        self._verify()
        require(not self.errors, f"logged as errors: {self.errors}")
        require(self.interrupted <= self.world.torn, "a container went offline by an interrupt that could be deferred")

    def _verify(self) -> None:
        """Look at everything in the root: no error, and no object is missing that the state names."""
        self.objects.now = EPOCH + self.world.now
        root = Root(Stores(self.objects, self.objects), self.config, self.settings, described=True)
        events = self.plan.scenario != "containers"  # where other bytes are appended
        report = verify_root(root, deep=self.plan.seed % 4 == 0) if events else verify(root)
        found = [f"{each.object}: {each.problem}" for each in report.findings if each.severity.name == "ERROR"]
        require(not report.errors, f"verify: {found}")

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Errors that the product logs are errors of the history; nothing is printed."""
        history = self

        class Heard(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                task = history.world.current
                if task is None or task.ending or history.world.failure is not None:
                    return
                history.world.note(task.host.name, f"logs {record.levelname}: {record.getMessage()}")
                history.interrupted += "KeyboardInterrupt ended its work" in record.getMessage()
                if record.levelno >= logging.ERROR:
                    history.errors.append(record.getMessage())

        handler, saved = Heard(), []
        for name in ("engine", "chunkstore", "pravega_spark", "concurrent.futures"):
            logger = logging.getLogger(name)
            saved.append((logger, logger.level, logger.propagate))
            logger.addHandler(handler)
            logger.propagate = False
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level, propagate in saved:
                logger.removeHandler(handler)
                logger.setLevel(level)
                logger.propagate = propagate
