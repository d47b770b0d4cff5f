"""A producer that writes each line of a file exactly once, however often it is killed and started again."""

import sys
import tempfile
from itertools import islice
from pathlib import Path

from pravega_spark import StreamManager


def run(root: str, source: Path) -> int:
    """Write the lines that are not in the stream yet; return how many. The number of an event is that of its line."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "lines", 4)
        with (
            manager.create_writer("examples", "lines", producer=f"file:{source.name}") as writer,
            source.open() as lines,
        ):
            done = 0 if writer.last_number is None else writer.last_number + 1
            written = 0
            for line in islice(lines, done, None):
                writer.write_event(line.rstrip("\n"))
                written += 1
            return written


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(run(sys.argv[1], Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "source.txt")
            path.write_text("".join(f"line {number}\n" for number in range(1000)))
            print(run(f"{folder}/root", path), run(f"{folder}/root", path))
