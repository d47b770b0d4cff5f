"""Disaster recovery: a root is lost and restored from a backup; a write-ahead log is lost and recovered from LTS."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pravega_spark import StreamManager


def pravega(root: Path, *command: str) -> str:
    """Run a command of pravega-spark; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pravega_spark.cli", "--root", str(root), *command],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def write(root: Path, words: str) -> None:
    """Write each word as an event."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "words")
        with manager.create_writer("examples", "words") as writer:
            for word in words.split():
                writer.write_event(word, routing_key="all")


def read(root: Path) -> str:
    """The words of the stream."""
    with StreamManager(root) as manager:
        return " ".join(event.data.decode() for event in manager.read_events("examples", "words"))


def run(folder: Path) -> tuple[str, str]:
    """Lose a root, then a log; return the words that could be read after each."""
    root, backup = folder / "root", folder / "backup"
    write(root, "in the backup")
    pravega(root, "backup", str(backup))
    write(root, "and not in it")

    shutil.rmtree(root)  # the first disaster
    pravega(root, "restore", str(backup))
    restored = read(root)
    print("restored:", restored)

    write(root, "and written later")
    pravega(root, "container", "flush")  # moves data that is only in the log to LTS
    for container in (root / "_system" / "containers").iterdir():  # the second disaster: the logs are gone, LTS is not
        for part in ("wal", "checkpoints"):
            shutil.rmtree(container / part, ignore_errors=True)
    for container in sorted((root / "_system" / "containers").iterdir()):
        pravega(root, "container", "recover", container.name, "--yes")
    recovered = read(root)
    print("recovered:", recovered)
    return restored, recovered


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        run(Path(temporary))
