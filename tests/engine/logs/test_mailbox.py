"""Mailboxes: messages between the processes of one host (W18)."""

from __future__ import annotations

import gc
import os
import select
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.logs.mailbox import LARGEST, Delivery, Kind, Mailbox, Message, no_mailbox, open_mailbox


def writer() -> bytes:
    return os.urandom(16)


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of mailboxes, in a short path: that of a socket has a hundred bytes. pytest makes its own first, so
    that it is not made in here."""
    tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short, f"pravega-{os.getuid()}")


@pytest.fixture
def pair() -> Iterator[tuple[Mailbox, Mailbox]]:
    first, second = Mailbox(writer()), Mailbox(writer())
    yield first, second
    first.close()
    second.close()


def test_a_message_and_its_answer_arrive(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    assert first.send(second.writer, Kind.SUBMISSION, b"data") is Delivery.SENT
    (message,) = second.receive()
    assert message[:2] == (Kind.SUBMISSION, b"data")
    second.answer(message.sender, Kind.DURABLE, b"1")
    assert [answer[:2] for answer in first.receive()] == [(Kind.DURABLE, b"1")]
    assert first.receive() == second.receive() == []


def test_messages_keep_their_order(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    for number in range(5):
        first.send(second.writer, Kind.SUBMISSION, b"%d" % number)
    assert [message.data for message in second.receive()] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_writer_without_a_mailbox_and_one_that_closed_it_are_nobody(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    assert first.send(writer(), Kind.SUBMISSION, b"") is Delivery.NOBODY
    second.close()
    assert first.send(second.writer, Kind.SUBMISSION, b"") is Delivery.NOBODY


def test_a_process_that_ended_without_closing_its_mailbox_is_dead(pair: tuple[Mailbox, Mailbox]) -> None:
    first, _ = pair
    name = writer()
    child = os.fork()
    if not child:
        kept = Mailbox(name)
        os._exit(kept is None)
    os.waitpid(child, 0)
    assert first.send(name, Kind.SUBMISSION, b"") is Delivery.DEAD


def test_the_socket_of_a_dead_process_is_removed_and_those_of_others_stay(
    pair: tuple[Mailbox, Mailbox], folder: Path
) -> None:
    dead = writer()
    child = os.fork()
    if not child:
        kept = Mailbox(dead)
        os._exit(kept is None)
    os.waitpid(child, 0)
    third = Mailbox(writer())
    assert {path.name for path in folder.iterdir()} == {each.writer.hex() for each in (*pair, third)}
    third.close()


def test_a_fork_that_ends_leaves_the_mailbox_of_its_parent(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    child = os.fork()
    if not child:
        second.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert first.send(second.writer, Kind.SUBMISSION, b"") is Delivery.SENT


def test_a_second_mailbox_of_one_writer_is_refused_and_leaves_the_first_one(pair: tuple[Mailbox, Mailbox]) -> None:
    """As the other life of a cloned process opens it."""
    first, second = pair
    assert open_mailbox(second.writer) is None
    gc.collect()
    assert first.send(second.writer, Kind.SUBMISSION, b"") is Delivery.SENT


def test_a_message_that_is_too_large_is_not_sent(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    assert first.send(second.writer, Kind.SUBMISSION, bytes(LARGEST)) is Delivery.SENT
    assert first.send(second.writer, Kind.SUBMISSION, bytes(LARGEST + 1)) is Delivery.NOBODY
    assert [len(message.data) for message in second.receive()] == [LARGEST]


def test_a_receiver_that_reads_nothing_does_not_hold_its_sender_up_for_ever(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    sent = [first.send(second.writer, Kind.SUBMISSION, bytes(LARGEST)) for _ in range(20)]
    assert Delivery.SENT in sent
    assert sent[-1] is Delivery.NOBODY


def test_waiting_ends_with_a_message_or_a_wake(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    for wake in (second.wake, lambda: first.send(second.writer, Kind.DURABLE, b"")):
        wake()
        second.wait(None)
        second.receive()
    begun = time.monotonic()
    second.wait(0.01)
    assert time.monotonic() - begun >= 0.009, "and else with the time"


def test_a_message_of_an_unknown_kind_is_passed_over(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    first.send(second.writer, Kind.DURABLE, b"one")
    with_kind = os.path.join(tempfile.gettempdir(), f"pravega-{os.getuid()}", second.writer.hex())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as foreign:
        foreign.sendto(b"?what", with_kind)
        foreign.sendto(b"", with_kind)
        foreign.sendto(b"Sanonymous", with_kind)
    assert second.receive()[1:] == [Message(Kind.SUBMISSION, b"anonymous", "")]


def test_a_folder_that_others_can_enter_is_not_used(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    assert open_mailbox(writer()) is None
    folder.rmdir()
    folder.symlink_to(folder.parent)
    assert open_mailbox(writer()) is None
    folder.unlink()
    mailbox = open_mailbox(writer())
    assert mailbox is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    mailbox.close()


def test_without_room_for_the_name_there_is_no_mailbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    for opening in (open_mailbox, no_mailbox):
        assert opening(writer()) is None


def test_a_system_without_such_sockets_has_no_mailboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "poll")
    assert open_mailbox(writer()) is None
