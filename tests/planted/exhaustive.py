"""Breakages that some order of the requests to a log brings to light (W1, W2, W7, W18)."""

from tests.planted import Breakage

_ORDERS = "tests/exhaustive/test_exhaustive.py::test_all_orders_within_the_bounds_keep_the_promises"

BREAKAGES = [
    Breakage(
        name="what-is-unknown-is-put-elsewhere",
        file="engine/logs/frame_settler.py",
        old="            self._context.acknowledgements.fail([transaction for transaction, _ in flight.body.accepted], error)\n",
        new="            self._context.queue.retry([transaction for transaction, _ in flight.body.accepted])\n",
        tests=[f"{_ORDERS}[races]"],
    ),
    Breakage(
        name="a-predecessor-is-known-by-its-address",
        file="engine/logs/frames.py",
        old="        return (address, writer, seal) == (other.address, other.writer, other.seal)\n",
        new="        return bool(address == other.address)\n",
        tests=[f"{_ORDERS}[pipelines]"],
    ),
    Breakage(
        name="truncated-one-frame-too-far",
        file="engine/logs/truncation.py",
        old="frames = [info.path for info in listed if address_of(info.path) < limit]",
        new="frames = [info.path for info in listed if address_of(info.path) <= limit]",
        tests=[f"{_ORDERS}[sleepers]"],
    ),
    Breakage(
        name="truncated-without-a-grace-period",
        file="engine/logs/truncation.py",
        old="if info.modified < now - grace and address_of(info.path) <= covered]",
        new="if info.modified <= now and address_of(info.path) <= covered]",
        tests=[f"{_ORDERS}[stops]"],
    ),
    Breakage(
        name="settled-with-other-bytes",
        file="engine/logs/log.py",
        old="            self._start(flight)\n\n    # --- reading",
        new="            flight.data = frames.encode(\n"
        "                self.container, flight.position, self._new_attempt(), self.head, bytes(memoryview(flight.data[0])[frames.HEADER :])\n"
        "            )\n"
        "            self._start(flight)\n\n    # --- reading",
        tests=[f"{_ORDERS}[settled]"],
    ),
    Breakage(
        name="acknowledged-before-the-storage-answers",
        file="engine/logs/log.py",
        old="                put: Put = flight.future.result()\n",
        new="                put = Put(Outcome.MINE, None)\n",
        tests=[f"{_ORDERS}[pipelines]"],
    ),
    Breakage(
        name="a-sleeper-believes-what-it-made",
        file="engine/logs/log.py",
        old="            self._trust(flight.position.address, stamp)\n",
        new="",
        tests=[f"{_ORDERS}[stops]"],
    ),
    Breakage(
        name="carried-in-a-later-epoch",
        file="engine/logs/frame_sender.py",
        old="(each.carrying is None or each.carrying.address.epoch == epoch)",
        new="(each.carrying is None or each.carrying.address.epoch <= epoch)",
        tests=[f"{_ORDERS}[queue-losses]"],
    ),
]
