"""Segments without streams: append-only files in a folder or bucket that survive a crash of their writer."""

import tempfile

from chunkstore import SegmentStore, StorageNotPrimary


def run(root: str) -> bytes:
    """Write two segments, join them, and read them as the next process would; return what it reads."""
    first = SegmentStore.open(root)
    first.create("logs/app")
    first.append("logs/app", b"started\n")
    first.create("logs/app.part")
    first.append("logs/app.part", [b"worked\n", b"stopped\n"])
    first.seal("logs/app.part")
    first.concat("logs/app", "logs/app.part")
    first.truncate("logs/app", len(b"started\n"))

    with SegmentStore.open(root) as store:  # recovers what `first` wrote, and fences it
        info = store.info("logs/app")
        content = store.read("logs/app", info.start_offset, info.length - info.start_offset)
        try:
            first.append("logs/app", b"from a zombie\n")
        except StorageNotPrimary as error:
            print(error)
        store.collect_garbage()
    first.close()
    print(content.decode(), end="")
    return content


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
