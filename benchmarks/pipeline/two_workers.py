"""What a second worker gains EM, and what a pass costs besides its work.

    python -m benchmarks.pipeline.two_workers --rows 4e6
    python -m benchmarks.pipeline.two_workers --rows 3e5 --rounds 3  # what is not work, mostly

A log of 20 variables of 5 levels, 90 % observed, is refined at rank 8 by one worker process and by two, in turns, with
the next pass beside the score and the checkpoint of the one before, and one after the other. Printed are medians:
seconds by the clock, processor time of the client with the scheduler, and of the workers, each for a pass. The clock
counts only on a machine that does nothing else; processor time hardly depends on that.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import pmflib as pmf
from pmflib.base.blocks import DenseBlock
from pmflib.cluster.clients import open_client
from pmflib.cluster.workers import start_workers
from pmflib.em.latent_classes import ClassState
from pmflib.em.stored_samples import StoredSamples
from pmflib.model.planted_models import planted_factors
from pmflib.model.sampling import sample_codes
from pmflib.schema import Schema
from pmflib.store.sample_blocks import list_blocks
from pmflib.store.sample_writer import SampleWriter
from pmflib_tasks.config import ClusterConfig

LEVELS, RANK, N_FOLDS = [5] * 20, 8, 16
DRAWN_ROWS = 1 << 18


class OneByOne(StoredSamples):
    """Samples of which no pass is started before the model is scored and kept."""

    def start_each(self, *arguments: Any, **options: Any) -> Callable[[], list[Any]]:
        """Start nothing: the work is done when its result is requested."""
        return lambda: self.map_each(*arguments, **options)


def write(folder: Path, n_rows: int) -> Schema:
    """Write a drawn log."""
    schema, rng = Schema.from_cardinalities(LEVELS), np.random.default_rng(0)
    prior, factors = planted_factors(LEVELS, RANK, rng)
    writer = SampleWriter(folder, schema, sparse=False)
    for start in range(0, n_rows, DRAWN_ROWS):
        rows = np.arange(start, min(start + DRAWN_ROWS, n_rows))
        codes = sample_codes(prior, factors, schema.offsets, rows.size, rng, observed=0.9)
        writer.append(DenseBlock(codes), rows % N_FOLDS, rows)
    writer.close()
    return schema


def read_times() -> tuple[float, float, float]:
    """Time by the clock, and processor time of this process and of the workers, seconds."""
    mine = psutil.Process()
    workers = sum(sum(each.cpu_times()[:2]) for each in mine.children(recursive=True))
    return time.perf_counter(), sum(mine.cpu_times()[:2]), workers


def measure(training: StoredSamples, held_out: StoredSamples, passes: int) -> list[float]:
    """Fit once; milliseconds of a pass after the first by the clock, of the client and of the workers."""
    seen: list[tuple[float, float, float]] = []

    def note(run: str, state: ClassState) -> None:
        seen.append(read_times())

    with tempfile.TemporaryDirectory() as folder:
        pmf.fit_em(
            training,
            rank=RANK,
            validation=held_out,
            start="random",
            pseudo_count=1.0,
            max_passes=passes,
            tol=0.0,
            patience=passes,
            checkpoint=Path(folder),
            on_pass=note,
        )
    return [1e3 * (b - a) / (len(seen) - 1) for a, b in zip(seen[0], seen[-1], strict=True)]


def main() -> None:
    """Take turns, and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: dict[tuple[str, int], list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        schema = write(Path(name) / "samples", int(options.rows))
        blocks = list_blocks(Path(name) / "samples")
        parts = [[b for b in blocks if b.fold < N_FOLDS - 1], [b for b in blocks if b.fold == 15]]
        for _ in range(options.rounds):
            for n in (1, 2):
                # one cluster at a time: another would take the cores now and then, though it idles
                with (
                    start_workers(ClusterConfig(processes=True, workers=n)) as address,
                    open_client(address) as client,
                ):
                    for words, kind in (("one by one", OneByOne), ("beside", StoredSamples)):
                        training, held_out = (kind(p, schema, client, 1 << 34) for p in parts)
                        # the first fit loads blocks and kernels
                        measure(training, held_out, 3)
                        taken = measure(training, held_out, options.passes)
                        found.setdefault((words, n), []).append(taken)
    print("passes      workers  clock ms  client ms  workers ms")
    medians = {
        key: [statistics.median(each) for each in zip(*rows, strict=True)]
        for key, rows in found.items()
    }
    for (words, n), (clock, client, workers) in medians.items():
        print(f"{words:12}{n:7}{clock:10.1f}{client:11.1f}{workers:12.1f}")
    for words in ("one by one", "beside"):
        print(f"{words}: two gain {medians[words, 1][0] / medians[words, 2][0]:.2f}")


if __name__ == "__main__":
    main()
