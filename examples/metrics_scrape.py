"""Metrics: serve the metrics of a process to Prometheus, and read them as a scraper does."""

import tempfile
import urllib.request

from prometheus_client import start_http_server

from pravega_spark import StreamManager, default_metrics


def run(root: str) -> str:
    """Write some events, then scrape this process; return the scraped text."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=default_metrics().registry)
    try:
        with StreamManager(root) as manager:
            manager.create_scope("examples")
            manager.create_stream("examples", "clicks")
            with manager.create_writer("examples", "clicks") as writer:
                for number in range(100):
                    writer.write_event(f"click {number}")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text: str = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    print(*[line for line in text.splitlines() if "put_frame" in line and "_count" in line], sep="\n")
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
