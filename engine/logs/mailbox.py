"""A mailbox: where processes of one user on one host hand each other messages without the storage (W18).

Owns a Unix datagram socket in a folder that only this user can enter, named after the writer that receives there. What
comes by it is what would come as an object, so the same rules hold: a message is never evidence, and may be lost or
come twice. Where no such socket can be had, there is none, and submissions are objects.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import random
import select
import socket
import stat
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from engine.waiting import CHECK_AGAIN

logger = logging.getLogger(__name__)

LARGEST = 96 << 10
"""Bytes of the largest message; a system takes some 200 KiB of a datagram at most."""

SEND_MICROSECONDS = 50_000
"""A sender waits at most so long for room in the receiver's queue, which has 10 places on Linux."""

_SWEPT = 64
"""At most so many sockets of other processes are checked when a mailbox is opened: killed processes leave theirs."""

_WAKE = b"W"
_TIMEVAL = struct.Struct("ll")


class Kind(bytes, enum.Enum):
    """What a message is."""

    SUBMISSION = b"S"
    """A submission, in the form of its object (`engine.logs.submission`)."""

    DURABLE = b"D"
    """The log is durable up to an address, which answers to what its receiver submitted, or makes that void."""


class Delivery(enum.Enum):
    """What became of a message. DEAD: the process that received there has ended."""

    SENT = enum.auto()
    NOBODY = enum.auto()
    DEAD = enum.auto()


class Message(NamedTuple):
    """A message, and the path of its sender's socket ("" if it has none)."""

    kind: Kind
    data: bytes
    sender: str


class Mailbox:
    """Receives messages for a writer, and sends messages to other writers.

    Args:
        writer: the unique id of the writer, 16 bytes.

    Raises OSError if no socket can be made. `wait` is for one thread; any thread may call the other methods.
    """

    def __init__(self, writer: bytes) -> None:
        folder = _folder()
        _sweep(folder)
        self.writer = writer
        self._process = os.getpid()
        self._path = _path(folder, writer)
        self._folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(self._path)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, SEND_MICROSECONDS))
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        except BaseException:
            self.abandon()  # the path may be that of another life of this process
            raise

    def send(self, writer: bytes, kind: Kind, data: bytes) -> Delivery:
        """Send a message to the process that is this writer, if it has a mailbox on this host."""
        return self._send(_path(self._folder, writer), kind, data)

    def answer(self, message_sender: str, kind: Kind, data: bytes) -> None:
        """Send a message back. That it is lost costs its receiver time only."""
        self._send(message_sender, kind, data)

    def _send(self, path: str, kind: Kind, data: bytes) -> Delivery:
        if len(data) > LARGEST:
            return Delivery.NOBODY
        try:
            self._socket.sendto(kind.value + data, path)
        except ConnectionRefusedError:
            return Delivery.DEAD
        except OSError:  # there is none, or it is full
            return Delivery.NOBODY
        return Delivery.SENT

    def receive(self) -> list[Message]:
        """All messages that are there; does not wait."""
        messages = []
        with contextlib.suppress(OSError):  # nothing more
            while True:
                data, sender = self._socket.recvfrom(LARGEST + 1, socket.MSG_DONTWAIT)
                if data[:1] != _WAKE:
                    with contextlib.suppress(ValueError):  # another version's
                        messages.append(Message(Kind(data[:1]), data[1:], sender or ""))
        return messages

    def wait(self, seconds: float | None) -> None:
        """Wait until there is a message, or `wake` is called, at most so long, and at most CHECK_AGAIN."""
        self._poll.poll(max(min(CHECK_AGAIN if seconds is None else seconds, CHECK_AGAIN), 0.0) * 1000)

    def wake(self) -> None:
        """Let the thread that waits go on."""
        with contextlib.suppress(OSError):  # what is full wakes it too
            self._socket.sendto(_WAKE, socket.MSG_DONTWAIT, self._path)

    def close(self) -> None:
        """Receive nothing more: a sender learns that there is no mailbox. In a fork it stays that of its process."""
        if os.getpid() == self._process:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):  # it may not have come that far
            self.close()

    def abandon(self) -> None:
        """Receive nothing more, as a process that is killed: a sender learns that it is dead."""
        self._process = -1
        self._socket.close()


def open_mailbox(writer: bytes) -> Mailbox | None:
    """The mailbox of a writer; None where this host has none."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(select, "poll"):
        return None
    try:
        return Mailbox(writer)
    except OSError as error:
        logger.info("processes of this host exchange messages through the storage only: %s", str(error))
        return None


def no_mailbox(_: bytes) -> None:
    """In place of `open_mailbox`, for a log whose submissions are objects."""


class OwnMailbox:
    """The mailbox of the writer that this process is now, and the messages that came by it.

    open_mailbox: opens the mailbox of a writer; None where there is none. messages: received, and not acted on. Any
    thread may call `wake`; `wait` and `receive` are for one thread; callers of the rest hold the processor's log
    lock.
    """

    def __init__(self, open_mailbox: Callable[[bytes], Mailbox | None]) -> None:
        self.open_mailbox = open_mailbox
        self.mailbox: Mailbox | None = None
        self.messages: deque[Message] = deque()
        self._writer = b""  # for which one was opened, or could not be
        self._polled = False

    def open(self, writer: bytes) -> Mailbox | None:
        """The mailbox of the writer that this process is."""
        if self._writer != writer:
            self.close()
            self._writer = writer
            self.mailbox = self.open_mailbox(writer)
        return self.mailbox

    def close(self) -> None:
        """Receive nothing more."""
        mailbox, self.mailbox = self.mailbox, None
        if mailbox is not None:
            mailbox.wake()  # a thread that polls a closed socket would wait on
            mailbox.close()

    def receive(self) -> None:
        """Take the messages out of the mailbox."""
        if self.mailbox is not None:
            self.messages.extend(self.mailbox.receive())

    def answer(self, senders: Iterable[str], address: int) -> None:
        """Send to these senders that the log is durable up to an address, which answers to what they submitted, or has
        made it void."""
        for sender in senders:
            if self.mailbox is not None:
                self.mailbox.answer(sender, Kind.DURABLE, address.to_bytes(8, "big"))

    def begin_to_wait(self) -> Mailbox | None:
        """The mailbox that the thread waits for next, which `wake` ends from now on; None: there is none."""
        self._polled = self.mailbox is not None
        return self.mailbox

    def wait(self, mailbox: Mailbox, seconds: float | None) -> None:
        """Wait for a message, or for `wake`, at most so long."""
        mailbox.wait(seconds)
        self._polled = False
        self.receive()

    def wake(self) -> None:
        """Let the thread that waits for a message go on."""
        if self._polled and self.mailbox is not None:
            self._polled = False  # one message is enough
            self.mailbox.wake()


def _folder() -> str:
    """The folder of this user's sockets. Raises OSError if other users can enter it."""
    folder = os.path.join(tempfile.gettempdir(), f"pravega-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder!r} is not a folder of this user alone")
    return folder


def _path(folder: str, writer: bytes) -> str:
    return os.path.join(folder, writer.hex())


def _sweep(folder: str) -> None:
    """Remove the sockets of processes that were killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        names = os.listdir(folder)
        for name in random.sample(names, min(len(names), _SWEPT)):
            path = os.path.join(folder, name)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            except OSError:
                continue
