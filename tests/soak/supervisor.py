"""Processes of actors: started, signalled with all of their children, started again when they end, and their memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")


class Process:
    """An actor's process, in a session of its own. unexpected: how it ended when nothing had ended it."""

    def __init__(self, family: str, specification: dict[str, Any], environment: dict[str, str]) -> None:
        self.name: str = specification["name"]
        self.family = family
        self.starts = 0
        self.unexpected: list[str] = []
        self.samples: list[tuple[int, float, int]] = []
        self._folder = Path(specification["folder"])
        self._command = [sys.executable, "-m", "tests.soak.actor", family, json.dumps(specification)]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[str] | None = None
        self._killed = False

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with (self._folder / "logs" / f"{self.name}.err").open("a") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env=self._environment,
                start_new_session=True,
                text=True,
            )
        self.starts += 1
        self._killed = False

    def kill(self) -> None:
        """Kill it and all of its children."""
        self._killed = True
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._close_input()

    def stop(self) -> None:
        """Stop it and all of its children."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()

    def end(self) -> None:
        """Let it finish in order."""
        self._killed = True
        self._close_input()

    def wait(self, seconds: float) -> str:
        """Wait for its end; what is wrong with that, or "". It is killed if it does not end."""
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not end within {seconds:.0f} s"
        return "" if code == 0 else f"{self.name} ended with exit code {code}: {self.last_words()}"

    def watch(self) -> None:
        """Start it again if it ended by itself."""
        if self._process is not None and not self._killed and self._process.poll() is not None:
            self.unexpected.append(f"{self.name} ended with {self._process.returncode}: {self.last_words()}")
            self._close_input()
            self.start()

    def sample(self) -> None:
        """Note how much memory is resident."""
        if self._process is not None:
            with suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
                if pages:
                    self.samples.append((self._process.pid, time.time(), pages * PAGE))

    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return (self._folder / "logs" / f"{self.name}.err").read_text(errors="replace")[-1500:]

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _signal(self, number: int) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        """Its processes: all of its session. Children of a JVM are in groups of their own."""
        if self._process is None or self._process.poll() is not None:
            return []
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError, IndexError, ValueError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid:
                    found.append(int(folder.name))
        return found
