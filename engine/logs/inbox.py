"""The inbox: what other processes submit to this one, as long as it makes the frames of an epoch (W18).

Keeps of W18 what binds a maker. It takes in what is addressed to its own epoch only (rule epoch), each submission once,
whatever is listed later (ahead), and those of one owner in increasing order only (mono). What it took in is queued like
its own transactions. A listing is always under way while there is company, at a pace that slows down when nothing
comes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from chunkstore import ObjectInfo, Range, StorageError, Store
from chunkstore.decoding import InvalidData
from chunkstore.metrics import default_metrics
from engine.errors import BadSignature, InvalidOperation
from engine.logs.mailbox import Message
from engine.logs.submission import Address, Carrying, address_in, address_of, decode, inbox_folder, submission_path
from engine.logs.transaction import Transaction

logger = logging.getLogger(__name__)

_METRICS = default_metrics().layer("log")

MOST_BYTES = 8 << 20
"""What is taken in at once at most."""

MOST_AT_FIRST = 32
"""Submissions of the first listing of an epoch that are read at most; twice as many each time that there are more: the
maker's next frame does not wait for those of a thousand owners, who would take it for dead."""

MOST_AT_ONCE = 256
"""Submissions that are read at once at most."""

OWN_WAIT = 2
"""From so many submissions of one listing on, the maker's own transactions wait for the round that is under way: it
would make frames for itself alone otherwise, which all others have to read."""

WAIT_TRIPS = 4
"""Round trips for which they wait at most, or WAIT_ROUNDS times what the last round took: it takes long to read what
many submitted."""

WAIT_ROUNDS = 2
"""See WAIT_TRIPS."""

LONGEST_WAIT = 2.0
"""Seconds for which they wait at most by WAIT_ROUNDS: the storage may have hung, and may hang again."""

GATHERED_SENDERS = 3
"""From so many senders by the mailbox on, a frame waits for those that the last one answered."""

PAUSE_WITHOUT_THREAD = 0.1
"""Seconds until a listing is tried again for which no thread could be had."""

LONGEST_PAUSE = 3
"""Round trips between two listings that brought nothing, at most: an owner waits for half of it as a rule."""

GATHER_TRIPS = 4
"""Round trips after a frame for which the next one waits for those that it answered, and that come by the mailbox."""

DELETED_AT_ONCE = 64
"""So many objects that are dealt with are deleted together, and what is left of them when the container closes."""


class Found(NamedTuple):
    """Submissions that were listed and read, and when the listing began. more: some were left for the next one."""

    epoch: int
    began: float
    read: list[tuple[Address, bytes]]
    more: bool = False


class Inbox:
    """The inbox of one container, as its maker sees it.

    Args:
        store: the root of the log. container: its number. submit: carries out a request, maybe in the background.
        clock: seconds.

    listing: the request that is under way, a future; None if there is none. unsettled: how many transactions of each
    submission were taken in, and are not settled.
    """

    def __init__(self, store: Store, container: int, submit: Callable[..., Any], clock: Callable[[], float]) -> None:
        self._store = store
        self._container = container
        self._submit = submit
        self._clock = clock
        self._epoch = -1
        self._newest: dict[bytes, int] = {}  # that was taken in, by owner
        self.unsettled: Counter[Address] = Counter()
        self._done: list[str] = []
        self.listing: Any = None
        self._next = 0.0
        self._pause = 0.0
        self._came = 0
        self._began = 0.0
        self._round = 0.0
        self._most = MOST_AT_FIRST
        self._reached = b""  # the owner whose submission was read last
        self._received: list[Message] = []
        self._forged: set[str] = set()  # submissions whose signatures do not fit
        self._void: set[str] = set()  # the senders of what came for another epoch
        self._messages: set[Address] = set()  # what came by it, and is not settled
        self._senders: dict[bytes, str] = {}  # of owners whose submissions came by the mailbox
        self._gathered = 0  # submissions that came by it since the last frame
        self._expected = 0  # that the last frame answered
        self._answered = 0.0  # when that was

    def receive(self, message: Message) -> None:
        """A submission came by the mailbox."""
        self._received.append(message)
        self._gathered += 1

    @property
    def gathers(self) -> bool:
        """Whether so many submit by the mailbox that one frame at a time is made for all of them: fewer frames, of
        which they read all."""
        return len(self._senders) >= GATHERED_SENDERS

    def gathers_until(self, round_trip: float) -> float:
        """When the next frame leaves, whether or not as many submissions have come by the mailbox as the last one
        answered; 0 if they have, or if these are few."""
        if self._expected < GATHERED_SENDERS or self._gathered >= self._expected:
            return 0.0
        return self._answered + GATHER_TRIPS * round_trip

    @property
    def next_look(self) -> float:
        """When the next listing is due."""
        return self._next

    def in_rounds(self, round_trip: float) -> bool:
        """Whether so much comes that own transactions are to wait for the round that is under way."""
        longest = max(WAIT_TRIPS * round_trip, min(WAIT_ROUNDS * self._round, LONGEST_WAIT))
        return self._came >= OWN_WAIT and self.listing is not None and self._clock() - self._began < longest

    def look(self, epoch: int, done: Callable[[Any], None] | None) -> None:
        """Begin to list what was submitted to the maker of `epoch`. done: called when the answer is there."""
        if epoch != self._epoch:
            self._begin(epoch)
        self._began = self._clock()
        gone, self._done = (self._done, []) if len(self._done) >= DELETED_AT_ONCE else ([], self._done)
        try:
            self.listing = self._submit(self._found, epoch, self._began, gone)
        except Exception as error:  # no thread can be started: no submission is carried meanwhile
            logger.warning("the inbox of container %d is not listed: %s", self._container, repr(error))
            self._next = self._began + PAUSE_WITHOUT_THREAD
            return
        if done is not None:
            self.listing.add_done_callback(done)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._newest, self.unsettled, self._came, self._pause = {}, Counter(), 0, 0.0
        self._most = MOST_AT_FIRST
        self._senders, self._messages, self._expected = {}, set(), 0
        self._forged = set()

    def _found(self, epoch: int, began: float, gone: list[str]) -> Found:
        """List and read; in the background."""
        self._delete(gone)
        listed = self._listed(epoch)
        wanted: list[tuple[Address, Range]] = []
        size = 0
        for address, info in listed[: self._most]:
            size += info.size
            if size > MOST_BYTES and wanted:
                break
            wanted.append((address, Range(info.path, 0, info.size)))
        data = self._read([where for _, where in wanted]) if wanted else []
        read = [(address, each) for (address, _), each in zip(wanted, data, strict=True) if each is not None]
        return Found(epoch, began, read, len(wanted) < len(listed))

    def _read(self, wanted: list[Range]) -> list[bytes | None]:
        """What submissions hold; None for one that is gone, and for one whose signature does not fit (W20): that is not
        carried, and its owner, if it has one, makes a frame itself."""
        try:
            return self._store.read_ranges(wanted)
        except BadSignature as error:
            if len(wanted) > 1:
                return [each for one in wanted for each in self._read([one])]
            logger.error("%s", str(error))
            self._forged.add(wanted[0].path)
            return [None]

    def _listed(self, epoch: int) -> list[tuple[Address, ObjectInfo]]:
        """What is listed and was not taken in, by owner: those behind the one that was read last come first, so that
        all get their turn."""
        listed: list[tuple[Address, ObjectInfo]] = []
        for info in self._store.list(inbox_folder(self._container, epoch)):
            address = address_in(info.path)
            if address is None or address.epoch != epoch or info.path in self._forged:
                continue
            if self._is_new(address):
                listed.append((address, info))
        reached = self._reached
        return sorted(listed, key=lambda each: (each[0].owner <= reached, each[0].owner, each[0].number))

    def _is_new(self, address: Address) -> bool:
        """Whether it comes behind all that was taken in of its owner (rules ahead, mono)."""
        return address.number > self._newest.get(address.owner, -1)

    def take_received(self, epoch: int) -> list[Transaction]:
        """The transactions of what came by the mailbox, addressed to the maker of `epoch`."""
        if epoch != self._epoch:
            self._begin(epoch)
        received, self._received = self._received, []
        batch: list[Transaction] = []
        for message in received:
            try:
                address = address_of(message.data)
            except InvalidData as problem:
                logger.warning("a message to container %d is skipped: %s", self._container, str(problem))
                continue
            if address.epoch != epoch:
                self._void.add(message.sender)
            elif self._is_new(address):
                self._senders[address.owner] = message.sender
                self._messages.add(address)
                batch += self._transactions(address, message.data)
        return batch

    def in_vain(self, epoch: int, makes_frames: bool) -> set[str]:
        """The senders whose submissions will not be carried, as they were for another epoch or are for another maker.
        An answer lets them read the log at once."""
        senders, self._void = self._void, set()
        if not makes_frames or epoch != self._epoch:
            senders |= {*self._senders.values(), *(message.sender for message in self._received)}
            self._senders, self._received = {}, []
        return senders - {""}

    def take_in(self, round_trip: float) -> list[Transaction]:
        """The transactions of what was found, once the listing has its answer."""
        listing, self.listing = self.listing, None
        batch: list[Transaction] = []
        try:
            found: Found = listing.result()
        except Exception as error:  # also an undeclared one: it only delays the owners
            logger.warning("the inbox of container %d could not be read: %s", self._container, repr(error))
            found = Found(self._epoch, self._began, [])
        came = 0
        if found.epoch == self._epoch:
            if found.more:
                self._most = min(2 * self._most, MOST_AT_ONCE)
            if found.read:
                self._reached = found.read[-1][0].owner
            for address, data in sorted(found.read, key=_by_number):
                if self._is_new(address):
                    batch += self._transactions(address, data)
                    came += 1
        self._came = came
        self._round = self._clock() - self._began
        self._pause = 0.0 if came else min(max(2 * self._pause, round_trip / 4), LONGEST_PAUSE * round_trip)
        self._next = self._clock() + self._pause
        return batch

    def _transactions(self, address: Address, data: bytes) -> list[Transaction]:
        """The transactions of one submission. One that cannot be decoded is skipped: its owner makes a frame itself."""
        self._newest[address.owner] = address.number
        try:
            batch = [Transaction(operations) for operations in decode(data, self._container, address)]
        except (InvalidData, InvalidOperation) as problem:
            logger.warning("%s is skipped: %s", submission_path(self._container, address), str(problem))
            return []
        for place, transaction in enumerate(batch):
            transaction.carrying = Carrying(address, place)
            transaction.abandon()  # no thread of this process waits for it
        self.unsettled[address] = len(batch)
        return batch

    def settled(self, batch: Iterable[Transaction]) -> set[str]:
        """A live frame answers to these. The senders of those that came by the mailbox."""
        carries = False
        senders = set()
        for transaction in batch:
            if transaction.carrying is None:
                continue
            carries = True
            _METRICS.add("carry", time.monotonic() - transaction.queued_at, transaction.size, None)
            address = transaction.carrying.address
            self.unsettled[address] -= 1
            sender = self._senders.get(address.owner)
            if sender:
                senders.add(sender)
            if self.unsettled[address] <= 0:
                del self.unsettled[address]
                if address not in self._messages:
                    self._done.append(submission_path(self._container, address))
                self._messages.discard(address)
        if carries:
            _METRICS.add("carrying_frame", 0.0, 0, None)
        self._expected, self._gathered, self._answered = len(senders), 0, self._clock()
        return senders

    def clear(self) -> None:
        """Delete what was dealt with; the rest is swept with the folders of past epochs."""
        gone, self._done = self._done, []
        self._delete(gone)

    def _delete(self, gone: list[str]) -> None:
        """Delete what was dealt with. A failure is ignored, as maintenance sweeps the inbox: a maker without the right
        to delete carries submissions too."""
        if gone:
            try:
                self._store.delete(gone)
            except StorageError as error:
                logger.info("%d submissions are left for a sweep: %s", len(gone), str(error))


def _by_number(found: tuple[Address, bytes]) -> int:
    return found[0].number
