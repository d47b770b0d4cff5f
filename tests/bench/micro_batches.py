"""Micro-batches in fast motion: what a batch costs, and what there is of the root, from the first to the last; a plot.

MICRO_BATCHES: how many (20,000). PLOT: where the picture goes (bench-micro-batches.svg).
"""

from __future__ import annotations

import os

import pytest

from tests.source.fast_motion import FastMotion, Row

PANELS = {
    "milliseconds": "CPU ms a batch, all processes",
    "requests": "requests a batch",
    "objects": "objects other than chunks",
    "chunks": "chunks",
    "checkpoint_bytes": "bytes of a checkpoint",
    "resident": "MiB resident, storage included",
}


def measure() -> None:
    """Print a row for each hundredth, and draw them."""
    number = int(os.environ.get("MICRO_BATCHES", "20000"))
    print(f"\n{number:,} micro-batches from stream to stream in fast motion\n ", *Row._fields)
    with pytest.MonkeyPatch.context() as patch:
        motion = FastMotion(patch)
        rows = motion.run(number, 100, lambda row: print(" ", *row, flush=True))
        motion.check_copied()
        motion.close()
    plot(rows, os.environ.get("PLOT", "bench-micro-batches.svg"))


def plot(rows: list[Row], file: str) -> None:
    """A small picture with a panel for each figure, from 0 on."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # texts as texts: a small file
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 3, figsize=(9, 4), sharex=True, layout="constrained")
    for axes, (field, title) in zip(panels.flat, PANELS.items(), strict=True):
        values = [getattr(row, field) for row in rows]
        axes.plot([row.batches for row in rows], values, linewidth=1)
        axes.set_ylim(0, 1.3 * max(values))
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.locator_params(nbins=4)
        axes.grid(alpha=0.3)
    for axes in panels[1]:
        axes.set_xlabel("batches", fontsize=8)
    figure.savefig(file, metadata={"Date": None} if file.endswith(".svg") else None)
    pyplot.close(figure)
