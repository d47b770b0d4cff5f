"""Segments under bad luck, compared with a model: failovers, overtaken instances that go on, requests and commits lost.

A `SegmentSimulation` draws operations from a seed and carries them out on several instances over one simulated store
and one table. The model is one byte string per segment. After every operation it must hold that

- what succeeded is what the model allows, by an owner that was not overtaken; what raised a SegmentError did nothing;
  after any other error it happened wholly or not at all;
- the chunks' bytes, cut at the lengths that the metadata says, are the model's bytes;
- lists, counts, index and epochs agree, and no chunk belongs to two segments;
- every chunk that no segment has is in the garbage queue, and each object was written only by who made it.

`Violation` names the seed, so that the same run can be had again.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from unittest import mock

from chunkstore.chunk_names import made_for
from chunkstore.errors import StorageError
from chunkstore.garbage_collector import GarbageCollector, GarbageConfig
from chunkstore.metadata.garbage_queue import GarbageKind
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    Record,
    RecordStatus,
    StoredSegmentRecord,
    decode,
    segment_key,
)
from chunkstore.metadata.store import MemoryMetadataStore, MemoryTable, WithOperations
from chunkstore.port import Data, Parts, Store
from chunkstore.segments.chunk_list import ChunkList, WrittenChunk
from chunkstore.segments.copying import copy_chunks
from chunkstore.segments.errors import SegmentError, StorageNotPrimary
from chunkstore.segments.segment_reads import ReadConfig, SegmentReads
from chunkstore.segments.storage import ChunkedSegmentStorage, SegmentStorageConfig
from chunkstore.testing.simulated import SimulatedExecutor, SimulatedStore
from chunkstore.wrapping import Request, Result, WrappingStore
from tests.support.flaky_metadata import FlakyMetadataStore
from tests.support.garbage_queue import StoreGarbageQueue

NAMES = ("s/a/0", "s/a/1", "s/b/0")
DELAY = 60.0


class Violation(AssertionError):
    """The segments are not what they should be."""


@dataclass
class ModelSegment:
    """What a segment should be. `content` has all bytes from offset 0 on, those that were truncated away included."""

    content: bytes = b""
    start: int = 0
    sealed: bool = False


State = dict[str, ModelSegment]


class MarkedStore(WrappingStore):
    """The store as one instance sees it: it writes chunks of its own epoch only, each name once but for appends."""

    def __init__(self, inner: Store, epoch: int, made: set[str]) -> None:
        super().__init__(inner)
        self._epoch = epoch
        self._made = made

    def put(self, path: str, data: Parts) -> None:
        if made_for(path) is not None:
            self._check_mine(path)
            if path in self._made:
                raise Violation(f"{path!r} is made twice")
            self._made.add(path)
        super().put(path, data)

    def append(self, path: str, offset: int, data: Data) -> None:
        self._check_mine(path)
        super().append(path, offset, data)

    def _check_mine(self, path: str) -> None:
        if f".E-{self._epoch}-O-" not in path:
            raise Violation(f"an instance of epoch {self._epoch} writes to {path!r}")

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        return call()


class SleepyMetadataStore(FlakyMetadataStore):
    """Calls `sleep`, once, right before a commit is stored: what others do while this instance is asleep."""

    sleep: Callable[[], None] | None = None

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        sleep, self.sleep = self.sleep, None
        if sleep is not None:
            sleep()
        return super()._store(changes, expected, with_operations)


@dataclass
class Instance:
    """A process that took the segments over as `epoch`."""

    epoch: int
    metadata: SleepyMetadataStore
    chunks: Store
    segments: ChunkedSegmentStorage
    collector: GarbageCollector


@dataclass
class SegmentSimulation:
    """One run. `faults` is the share of requests and commits that fail, before or after."""

    seed: int
    faults: float = 0.08
    steps: int = 40
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.store = SimulatedStore(self.seed, can_append=self.random.random() < 0.7)
        self.table = MemoryTable()
        self.oracle = MemoryMetadataStore(self.table, cache_size=0)
        self.made: set[str] = set()
        self.state: State = {}
        self.past: dict[str, list[bytes]] = {}
        self.epochs: dict[str, int] = {}
        self.instances: list[Instance] = []
        self.asleep = False
        self.appends = self.random.random() < 0.8
        self.fail_over()
        for _ in range(4):
            self.create(self.instances[-1])

    # -- the run

    def run(self) -> None:
        """All steps, and a last collection that must leave nothing behind. Raises Violation."""
        names = random.Random(self.seed)  # they decide what comes first in a queue, so they must be the same again
        try:
            with mock.patch("uuid.uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4)):  # noqa: PT008
                for _ in range(self.steps):
                    self.step()
                self.end()
        except (Violation, StorageError) as error:  # operations may raise the latter, checks may not
            raise Violation(f"seed {self.seed}: {error}\n" + "\n".join(self.trace)) from error

    def step(self) -> None:
        """One operation of one instance, by chance an overtaken one, or a fault or failover, and the checks."""
        self.set_faults(self.faults if self.random.random() < 0.7 else 0.0)
        zombies = self.instances[:-1]
        instance = self.random.choice(zombies) if zombies and self.random.random() < 0.25 else self.instances[-1]
        if not self.asleep and self.random.random() < 0.1:
            instance.metadata.sleep = self.while_asleep(instance)
        operations = [self.write] * 12 + [self.read, self.truncate, self.concat, self.unseal, self.create] * 2
        operations += [self.seal, self.delete, self.attach, self.merge_chunks, self.collect, self.collect, self.wait]
        if instance is self.instances[-1] and self.random.random() < 0.06:
            self.fail_over()
        else:
            self.random.choice(operations)(instance)
        self.set_faults(0)
        instance.metadata.sleep = None
        self.check()

    def while_asleep(self, sleeper: Instance) -> Callable[[], None]:
        """What happens while `sleeper` is about to commit: somebody else waits, collects, writes, takes over."""

        def others_act() -> None:
            self.asleep = True
            try:
                others = [instance for instance in self.instances if instance is not sleeper]
                if not others:
                    self.fail_over()
                    others = self.instances[-1:]
                other = self.random.choice(others)
                for operation in self.random.sample([self.wait, self.collect, self.write, self.truncate], 3):
                    operation(other)
                if self.random.random() < 0.5:
                    self.store.now += DELAY + 1
                    self.collect(other)
            finally:
                self.asleep = False

        return others_act

    def end(self) -> None:
        """Collect until there is nothing left, without faults."""
        self.set_faults(0)
        self.store.arrive()
        for _ in range(6):
            self.store.now += DELAY + 1
            self.instances[-1].collector.run_once(self.store.now)
            queue = self.queue_of(self.store)
            for batch in list(queue.failed()):
                queue.retry(batch, self.store.now)
        self.check()
        left = {path for path in self.stored() if made_for(path) is not None} - self.live_chunks()
        if left:
            raise Violation(f"garbage is left: {sorted(left)}")
        records = {type(record).__name__ + " " + key for key, record in self.oracle.records()}
        for name in self.state:
            records -= {f"StoredSegmentRecord {name}$segment"} | self.records_of(name)
        if records:
            raise Violation(f"records are left: {sorted(records)}")

    def set_faults(self, share: float) -> None:
        """Let this share of requests and commits fail."""
        self.store.fail_before = self.store.fail_after = share / 2
        for instance in self.instances:
            instance.metadata.fail_before = instance.metadata.fail_after = share

    # -- operations

    def fail_over(self, _: Instance | None = None) -> None:
        """A new instance takes over. The one before may be fenced by the log, or only by what the records say."""
        epoch = len(self.instances) + 1
        if self.instances and self.random.random() < 0.5:
            self.instances[-1].metadata.fence = StorageNotPrimary("", epoch, epoch - 1)
        store = MarkedStore(self.store, epoch, self.made)
        metadata = SleepyMetadataStore(self.table, seed=self.seed + epoch, cache_size=self.random.choice([0, 5, 1000]))
        config = SegmentStorageConfig(
            appends=self.appends,
            relocate_min=8,
            relocate_max=64,
            relocate_percent=60,
            garbage_delay=DELAY,
            transaction_batch=3,
        )
        reads = SegmentReads(store, metadata, ReadConfig(part=7, ahead=3), SimulatedExecutor(self.seed))
        queue = self.queue_of(store)
        segments = ChunkedSegmentStorage(
            store, metadata, queue, epoch, config, reads=reads, clock=lambda: self.store.now
        )
        collector = GarbageCollector(store, metadata, queue, GarbageConfig(DELAY, transaction_batch=3))
        self.instances.append(Instance(epoch, metadata, store, segments, collector))
        self.trace.append(f"fail over to epoch {epoch}")

    def create(self, instance: Instance) -> None:
        name, rolling = self.random.choice(NAMES), self.random.choice([0, 10, 25])

        def apply(state: State) -> None:
            self.require(name not in state)
            state[name] = ModelSegment()

        self.attempt(instance, f"create {name} {rolling}", lambda: instance.segments.create(name, rolling), apply)

    def write(self, instance: Instance) -> None:
        name = self.a_name()
        data = self.random.randbytes(self.random.choice([0, 1, 3, 8, 20, 40]))
        cut = self.random.randrange(len(data) + 1)
        offset = self.an_end(name)

        def apply(state: State) -> None:
            segment = self.growing(state, name, offset)
            segment.content += data

        def act() -> object:
            return instance.segments.write(name, offset, [data[:cut], data[cut:]])

        self.attempt(instance, f"write {name} at {offset} {len(data)} bytes", act, apply, changes=bool(data))

    def attach(self, instance: Instance) -> None:
        name = self.a_name()
        offset = self.an_end(name)
        contents = [self.random.randbytes(self.random.randint(1, 12)) for _ in range(self.random.randint(1, 6))]
        chunks = []
        for content in contents:
            chunk = f"{name}.E-0-O-0.{self.random.getrandbits(128):032x}"
            self.store._store(chunk, content + b"more than counts")
            chunks.append(WrittenChunk(chunk, len(content)))

        def apply(state: State) -> None:
            self.growing(state, name, offset).content += b"".join(contents)

        def act() -> object:
            return instance.segments.attach(name, offset, chunks)

        self.attempt(instance, f"attach {chunks} to {name} at {offset}", act, apply)

    def seal(self, instance: Instance, sealed: bool = True, name: str | None = None) -> None:
        name = name or self.a_name()

        def apply(state: State) -> None:
            self.require(name in state)
            state[name].sealed = sealed

        act = instance.segments.seal if sealed else instance.segments.unseal
        self.attempt(instance, f"{'' if sealed else 'un'}seal {name}", lambda: act(name), apply)

    def unseal(self, instance: Instance) -> None:
        self.seal(instance, sealed=False)

    def concat(self, instance: Instance) -> None:
        target, source = self.random.sample(NAMES, 2)
        if source in self.state and not self.state[source].sealed:
            self.seal(instance, name=source)
        offset = self.an_end(target)

        def apply(state: State) -> None:
            segment = self.growing(state, target, offset)
            self.require(source in state and state[source].sealed and not state[source].start)
            self.past.setdefault(source, []).append(state[source].content)
            segment.content += state.pop(source).content

        def act() -> None:
            instance.segments.concat(target, offset, source)

        self.attempt(instance, f"concat {target} at {offset} {source}", act, apply)

    def truncate(self, instance: Instance) -> None:
        name = self.a_name()
        model = self.state.get(name, ModelSegment())
        offset = self.random.randint(model.start, len(model.content) + (self.random.random() < 0.1))

        def apply(state: State) -> None:
            self.require(name in state and offset <= len(state[name].content))
            state[name].start = max(offset, state[name].start)

        def act() -> None:
            instance.segments.truncate(name, offset)

        self.attempt(instance, f"truncate {name} at {offset}", act, apply, changes=offset > model.start)

    def delete(self, instance: Instance) -> None:
        name = self.a_name()

        def apply(state: State) -> None:
            self.require(name in state)
            self.past.setdefault(name, []).append(state.pop(name).content)

        self.attempt(instance, f"delete {name}", lambda: instance.segments.delete(name), apply)

    def merge_chunks(self, instance: Instance) -> None:
        """Put a copy in the place of some consecutive chunks, as a defragmentation does."""
        name = self.a_name()

        def act() -> None:
            layout = list(instance.segments.layout(name))
            if len(layout) < 2:
                return
            first = self.random.randrange(len(layout) - 1)
            run = layout[first : self.random.randint(first + 2, len(layout))]
            (new,) = instance.segments.track_new_chunks(name, [run[0].start])
            sources = [WrittenChunk(p.chunk.name, p.chunk.length, p.chunk.checksums) for p in run]
            checksums = copy_chunks(instance.chunks, name, sources, new.name)
            old, length = [placed.chunk.name for placed in run], run[-1].end - run[0].start
            instance.segments.replace_chunks(name, run[0].start, old, new, length, checksums)

        self.attempt(instance, f"merge chunks of {name}", act, lambda state: None, changes=False)

    def collect(self, instance: Instance) -> None:
        """Collect what is due."""
        self.attempt(
            instance, "collect", lambda: instance.collector.run_once(self.store.now), lambda state: None, changes=False
        )

    def wait(self, instance: Instance) -> None:
        """Let time pass."""
        self.store.now += self.random.choice([1, 30, DELAY + 1])

    def read(self, instance: Instance) -> None:
        """Read a range, one way or another, and compare. An overtaken instance may know an older state."""
        name = self.a_name()
        model = self.state.get(name, ModelSegment())
        start = self.random.randint(model.start, len(model.content))
        length = self.random.randint(0, len(model.content) - start)
        self.trace.append(f"{instance.epoch}: read {name} {start} {length}")
        try:
            if self.random.random() < 0.5:
                data = instance.segments.read(name, start, length)
            else:
                data = b"".join(instance.segments.scan(name, start, start + length))
        except StorageError as error:
            self.trace.append(f"    {error!r}")
            return
        possible = [segment.content for segment in (self.state.get(name),) if segment] + self.past.get(name, [])
        if not any(content[start : start + length] == data for content in possible):
            raise Violation(f"read of {name} [{start}, {start + length}) gave {data!r}")

    # -- carrying out

    def attempt(
        self,
        instance: Instance,
        what: str,
        act: Callable[[], object],
        apply: Callable[[State], None],
        *,
        changes: bool = True,
    ) -> None:
        """Carry out an operation and follow it in the model."""
        self.trace.append(f"{instance.epoch}: {what}")
        try:
            act()
            error = None
        except StorageError as raised:
            error = raised
            self.trace.append(f"    {raised!r}")
        happened = self.shape(self.state) != self.state_of_table()
        if happened and isinstance(error, SegmentError):
            raise Violation(f"{what} raised {error!r} and changed something")
        if happened or (error is None and changes):
            self.follow(instance, apply, what)

    def follow(self, instance: Instance, apply: Callable[[State], None], what: str) -> None:
        """Apply to the model what happened. It must allow it, and the segments belong to the instance now."""
        before = {name: ModelSegment(s.content, s.start, s.sealed) for name, s in self.state.items()}
        try:
            apply(self.state)
        except Violation as violation:
            raise Violation(f"{what}: {violation}") from None
        if self.state == before:
            return
        if instance.metadata.fence is not None:
            raise Violation(f"{what} by an instance that is fenced")
        for record in self.segment_records():
            changed = self.state.get(record.name) != before.get(record.name)
            if record.status & RecordStatus.ACTIVE and changed and record.owner_epoch != instance.epoch:
                raise Violation(f"{what} by epoch {instance.epoch}, and it belongs to {record.owner_epoch}")

    def require(self, condition: bool) -> None:
        """Raise unless the model allows what has happened."""
        if not condition:
            raise Violation("it happened, and the model does not allow it")

    def growing(self, state: State, name: str, offset: int) -> ModelSegment:
        """The segment, which may grow at `offset`."""
        self.require(name in state and not state[name].sealed and len(state[name].content) == offset)
        return state[name]

    def a_name(self) -> str:
        """Mostly a segment that exists."""
        return self.random.choice(sorted(self.state) if self.state and self.random.random() < 0.95 else NAMES)

    def an_end(self, name: str) -> int:
        """Mostly where the segment ends."""
        end = len(self.state[name].content) if name in self.state else 0
        return end if self.random.random() < 0.95 else max(0, end + self.random.choice([-1, 1]))

    # -- checks

    def check(self) -> None:
        """Everything that must hold between operations."""
        shape = self.state_of_table()
        if shape != self.shape(self.state):
            raise Violation(f"the metadata says {shape}, the model {self.shape(self.state)}")
        stored = self.stored()
        live: set[str] = set()
        for record in self.segment_records():
            chunks = self.check_list(record)
            for chunk in chunks:
                if chunk.name in live:
                    raise Violation(f"chunk {chunk.name!r} belongs to two segments")
                live.add(chunk.name)
                missing = chunk.name not in stored or len(stored[chunk.name]) < chunk.length
                if missing and record.status & RecordStatus.ACTIVE:  # of a deleted one the objects go first
                    raise Violation(f"chunk {chunk.name!r} has fewer bytes than the {chunk.length} that count")
            if record.status & RecordStatus.ACTIVE:
                self.check_content(record, b"".join(stored[chunk.name][: chunk.length] for chunk in chunks))
                if record.owner_epoch < self.epochs.get(record.name, 0):
                    raise Violation(f"{record.name} went back to epoch {record.owner_epoch}")
                self.epochs[record.name] = record.owner_epoch
        for name in NAMES:
            if name not in shape:
                self.epochs.pop(name, None)
        forgotten = {path for path in stored if made_for(path)} - live - self.queued()
        if forgotten:
            raise Violation(f"no metadata and no queue names {sorted(forgotten)}")

    def check_list(self, record: StoredSegmentRecord) -> list[ChunkRecord]:
        """The segment's chunks; list, counts and index must agree."""
        record.check_invariants()
        with self.oracle.begin(read_only=True) as transaction:
            layout = ChunkList(transaction, record)
            found = list(layout.walk(record.first_chunk_start, record.first_chunk, record.length))
            chunks = [placed.chunk for placed in found]
            if len(chunks) != record.chunk_count or (chunks and chunks[-1].name != record.last_chunk):
                raise Violation(f"{record.name} has chunks {chunks}, and its record says {record}")
            for placed in found:
                for offset in (placed.start, placed.end - 1):
                    if layout.find(offset) != placed:
                        raise Violation(
                            f"{record.name}: the index finds {layout.find(offset)} at {offset}, not {placed}"
                        )
            return chunks

    def check_content(self, record: StoredSegmentRecord, content: bytes) -> None:
        model = self.state[record.name]
        if content[record.start_offset - record.first_chunk_start :] != model.content[model.start :]:
            raise Violation(f"{record.name} holds {content!r} from {record.first_chunk_start}, the model has {model}")
        if content and not model.content.endswith(content):
            raise Violation(f"{record.name} holds bytes that nobody wrote there: {content!r}")

    def segment_records(self) -> Iterator[StoredSegmentRecord]:
        for key, (_, data) in list(self.table.rows.items()):
            if key == segment_key(key.removesuffix(segment_key(""))):
                record = decode(data)
                assert isinstance(record, StoredSegmentRecord)
                yield record

    def state_of_table(self) -> dict[str, tuple[int, int, bool]]:
        """Length, start and sealed of each segment that the metadata has."""
        return {
            record.name: (record.length, record.start_offset, bool(record.status & RecordStatus.SEALED))
            for record in self.segment_records()
            if record.status & RecordStatus.ACTIVE
        }

    @staticmethod
    def shape(state: State) -> dict[str, tuple[int, int, bool]]:
        return {name: (len(segment.content), segment.start, segment.sealed) for name, segment in state.items()}

    def stored(self) -> dict[str, bytes]:
        return {path: content for path, (content, _) in self.store._objects.items()}

    def live_chunks(self) -> set[str]:
        return {key for key, record in self.oracle.records() if isinstance(record, ChunkRecord)}

    def records_of(self, name: str) -> set[str]:
        """All records of a segment but its own."""
        with self.oracle.begin(read_only=True) as transaction:
            record = transaction.segment(name)
            assert record is not None
            chunks = {f"ChunkRecord {chunk.name}" for chunk in self.check_list(record)}
            return chunks | {f"IndexBlockRecord {key}" for _, key in record.blocks}

    def queued(self) -> set[str]:
        """The chunks that the queue names, and those of deleted segments that it names."""
        queue = self.queue_of(self.store)
        names: set[str] = set()
        for batch in [*queue.due(self.store.now + 10 * DELAY), *queue.failed()]:
            for task in batch.tasks:
                names.add(task.name)
                if task.kind is GarbageKind.SEGMENT:
                    with self.oracle.begin(read_only=True) as transaction:
                        record = transaction.segment(task.name)
                    names.update(chunk.name for chunk in self.check_list(record)) if record else None
        return names

    @staticmethod
    def queue_of(store: Store) -> StoreGarbageQueue:
        return StoreGarbageQueue(store, 0)
