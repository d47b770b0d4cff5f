"""Files as events: each file becomes one event of up to 1 GiB, in bounded memory, completely or not at all."""

import shutil
import tempfile
from pathlib import Path

from pravega_spark import StreamManager


def store(manager: StreamManager, path: Path) -> str:
    """Write a file as an event, once however often this is repeated; return the text of its pointer."""
    # With a name, an upload continues after a crash where it stopped; a committed name raises EventExists.
    with manager.begin_event("examples", "files", path.name, name=path.name) as event, path.open("rb") as source:
        source.seek(event.tell())
        shutil.copyfileobj(source, event)
        return str(event.commit())


def fetch(manager: StreamManager, pointer: str, path: Path) -> None:
    """Write an event's payload to a file, in pieces."""
    with manager.open_event(pointer) as event, path.open("wb") as target:
        shutil.copyfileobj(event, target)


def run(root: str, source: Path, size: int = 24 << 20) -> bool:
    """Store a file of `size` bytes and fetch it again; return whether both are the same."""
    path, copy = source / "video.bin", source / "copy.bin"
    path.write_bytes(bytes(range(256)) * (size // 256))
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "files")
        pointer = store(manager, path)
        print("stored as", pointer)
        fetch(manager, pointer, copy)
    return path.read_bytes() == copy.read_bytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as files:
        run(folder, Path(files))
