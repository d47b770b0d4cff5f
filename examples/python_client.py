"""Write events, read them, follow the tail: the Python client without Spark."""

import tempfile
import threading

from pravega_spark import StreamManager


def run(root: str) -> list[str]:
    """Write ten readings of two sensors while another thread follows the stream; return the events that it read."""
    seen: list[str] = []
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "readings", 2)

        def follow() -> None:
            # Ends by itself: the stream is sealed below.
            head = manager.stream_info("examples", "readings").head
            seen.extend(event.data.decode() for event in manager.tail("examples", "readings", start=head))

        follower = threading.Thread(target=follow)
        follower.start()
        with manager.create_writer("examples", "readings") as writer:
            for number in range(10):
                writer.write_event(f"reading {number}", routing_key=f"sensor-{number % 2}")
            writer.flush()  # all ten are durable now
        manager.seal_stream("examples", "readings")
        follower.join()

        for event in manager.read_events("examples", "readings"):
            print(event.segment_id, event.offset, event.data.decode())
    return seen


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
