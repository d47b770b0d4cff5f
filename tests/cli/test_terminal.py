"""The command line in front of a person: colours and progress on a terminal, none in a pipe, and Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pravega_spark import StreamManager
from pravega_spark.console.interrupts import until_interrupted

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
LIMIT = 60.0


class Terminal(NamedTuple):
    """A process on a pseudo-terminal, and the other end of that."""

    process: subprocess.Popen[bytes]
    end: int

    @classmethod
    def start(cls, *arguments: str) -> Terminal:
        end, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "pravega_spark.cli", *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            env=environment(),
        )
        os.close(terminal)
        return cls(process, end)

    def shown(self, until: Callable[[str], bool] = lambda text: False) -> str:
        """What it shows, up to what is wanted, or to its end."""
        data, deadline = b"", time.monotonic() + LIMIT
        while not until(data.decode(errors="replace")):
            ready, _, _ = select.select([self.end], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"nothing more came after {data!r}")
            try:
                data += os.read(self.end, 1 << 16)
            except OSError:  # the process has closed it
                break
        return data.decode(errors="replace")

    def ended(self) -> int:
        code = self.process.wait(LIMIT)
        os.close(self.end)
        return code


def environment(**others: str) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**plain, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **others}


def piped(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pravega_spark.cli", *arguments]
    return subprocess.run(command, input=given, capture_output=True, env=environment(), timeout=LIMIT)


@pytest.fixture
def url(tmp_path: Path) -> str:
    with StreamManager(tmp_path / "root") as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("first")
            writer.write_event("\x1b[31mred")
    return str(tmp_path / "root")


def test_colours_and_progress_are_for_terminals(url: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"x" * 50 + b"\n" + b"line\n" * 3000)
    terminal = Terminal.start("--root", url, "stream", "write", "sc/one", str(lines))
    shown = terminal.shown()
    assert terminal.ended() == 0 and "3,001 events (35.2 KiB) were written" in shown
    assert "\x1b[" in shown and "━" in shown and "to sc/one" in shown
    done = piped("--root", url, "stream", "write", "sc/one", str(lines))
    assert done.returncode == 0 and done.stderr == b"" and b"3,001 events" in done.stdout and b"\x1b" not in done.stdout


@pytest.mark.long
def test_tables_and_refusals(url: str) -> None:
    terminal = Terminal.start("--root", url, "stream", "list")
    shown = terminal.shown()
    assert terminal.ended() == 0 and "\x1b[1m" in shown and "sc/one" in shown
    assert b"\x1b" not in piped("--root", url, "stream", "list").stdout
    terminal = Terminal.start("--root", url, "stream", "seal", "sc/one")
    shown = terminal.shown()
    assert terminal.ended() == 1 and "\x1b[33mThis would seal" in shown and "\x1b[31mpravega-spark:\x1b[0m" in shown
    done = piped("--root", url, "stream", "seal", "sc/one")
    assert done.returncode == 1 and b"\x1b" not in done.stdout + done.stderr and done.stderr.count(b"\n") == 1


def test_names_are_not_folded(url: str) -> None:
    """Where a table would be wider than the terminal, each row is a record."""
    name = "a-stream-with-a-name-that-is-rather-long-for-a-terminal"
    with StreamManager(url) as manager:
        manager.create_stream("sc", name)
    terminal = Terminal.start("--root", url, "segment", "list")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown()).replace("\r", "")
    assert terminal.ended() == 0
    assert re.search(rf"^segment    sc/{name}/0\.#epoch\.0#index\ncontainer  [0-9]+$", shown, re.MULTILINE)
    terminal = Terminal.start("--root", url, "segment", "list", "sc/one")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown()).replace("\r", "")
    assert terminal.ended() == 0 and re.search(r"^ sc/one/0\.#epoch\.0#index +[0-9]+ *$", shown, re.MULTILINE)


def test_a_row_is_one_line_in_a_pipe_unless_it_is_told_how_wide_that_is(url: str) -> None:
    name = "a-stream-with-a-name-that-is-rather-long-for-eighty-columns-of-a-page"
    with StreamManager(url) as manager:
        manager.create_stream("sc", name)
    command = [sys.executable, "-m", "pravega_spark.cli", "--root", url, "segment", "list"]
    for told, wanted in (
        ({}, rf"^ sc/{name}/0\.#epoch\.0#index +[0-9]+ *$"),
        ({"COLUMNS": "80"}, rf"^segment    sc/{name}"),
    ):
        shown = subprocess.run(command, capture_output=True, text=True, env=environment(**told), timeout=LIMIT).stdout
        assert re.search(wanted, shown, re.MULTILINE), shown


@pytest.mark.long
def test_events_do_not_change_the_terminal(url: str) -> None:
    terminal = Terminal.start("--root", url, "stream", "read", "sc/one")
    shown = terminal.shown()
    assert terminal.ended() == 0 and shown == "first\r\n\\x1b[31mred\r\n"
    assert piped("--root", url, "stream", "read", "sc/one").stdout == b"first\n\x1b[31mred\n"


def test_following_ends_with_ctrl_c(url: str) -> None:
    terminal = Terminal.start("--root", url, "stream", "tail", "sc/one", "--from", "head", "--poll", "0.05")
    assert "first" in terminal.shown(lambda text: "red" in text)
    with StreamManager(url) as manager, manager.create_writer("sc", "one") as writer:
        writer.write_event("while you look")
    assert "while you look\r\n" in terminal.shown(lambda text: "look\r\n" in text)
    terminal.process.send_signal(signal.SIGINT)
    rest = terminal.shown()
    assert terminal.ended() == 0 and not re.search("Abort|Trace|Error", rest)


@pytest.fixture
def usual_interrupts() -> Iterator[None]:
    """Whoever starts the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_interrupts")
def test_ctrl_c_is_not_lost_where_exceptions_are() -> None:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with until_interrupted() as stop:
        assert not stop.is_set()
        Dying()
        assert stop.wait(LIMIT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with until_interrupted() as stop:
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.long
def test_whoever_reads_the_output_may_stop(url: str) -> None:
    with StreamManager(url) as manager, manager.create_writer("sc", "one") as writer:
        writer.write_events(["x" * 1000] * 3000)
    command = f'"{sys.executable}" -m pravega_spark.cli --root "{url}" stream read sc/one | head -n 1'
    done = subprocess.run(command, shell=True, capture_output=True, env=environment(), timeout=LIMIT)
    assert (done.stdout, done.stderr) == (b"first\n", b"")
