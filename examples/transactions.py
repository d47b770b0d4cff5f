"""Transactions: events that become readable together, or not at all, also after a restart of their writer."""

import tempfile

from pravega_spark import StreamManager


def run(root: str) -> list[str]:
    """Commit one transfer, abort another; return the events that readers see."""
    with StreamManager(root) as manager:
        manager.create_scope("bank")
        manager.create_stream("bank", "bookings", 4)
        writer = manager.create_transaction_writer("bank", "bookings")

        transfer = writer.begin_txn()
        transfer.write_event("-100", routing_key="alice")
        transfer.write_event("+100", routing_key="bob")
        transfer.flush()
        print("before the commit:", [event.data for event in manager.read_events("bank", "bookings")])

        # Another process that knows the id can continue it, for example after a crash.
        same = writer.get_txn(transfer.get_txn_id())
        same.commit()

        mistake = writer.begin_txn()
        mistake.write_event("-999", routing_key="alice")
        mistake.abort()

        booked = sorted(event.data.decode() for event in manager.read_events("bank", "bookings"))
        print("after it:", booked)
    return booked


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
