"""A reader group: two readers share the segments of a stream, and a third one continues where the first stopped."""

import asyncio
import tempfile

from pravega_spark import StreamManager, StreamReader


async def read(reader: StreamReader, most: int) -> list[str]:
    """Read up to `most` events, and release them, so that no other reader gets them again."""
    found: list[str] = []
    while len(found) < most:
        piece = await reader.get_segment_slice_async()
        events = [event.data.decode() for event in piece]
        reader.release_segment(piece)
        if not events:
            break
        found += events
    return found


def run(root: str) -> list[str]:
    """Write 100 events, read them with the readers of one group; return all events that they read."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "orders", 4)
        with manager.create_writer("examples", "orders") as writer:
            for number in range(100):
                writer.write_event(f"order {number}", routing_key=str(number))

        group = manager.create_reader_group("billing", "examples", "orders")
        first = group.create_reader("worker-1")
        found = asyncio.run(read(first, most=1))
        first.reader_offline()  # its segments are free, from the last released position on

        second = group.create_reader("worker-2")
        found += asyncio.run(read(second, most=100 - len(found)))
        second.reader_offline()
        print(len(found), "events; the group has read up to", group.get_streamcut())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
