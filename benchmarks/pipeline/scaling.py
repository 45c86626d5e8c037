"""Time and memory against the number of samples: linear, and flat.

    python -m benchmarks.pipeline.scaling  # 1e5 to 1e7 samples, a few minutes
    python -m benchmarks.pipeline.scaling --largest 1e8  # 3 GB of codes, streamed from 1.1 GB of blocks

Samples of 30 variables with 5 levels, 90 % observed, are drawn from a planted model and written as the pipeline
writes them. For each size a process of its own counts all pairs, fold by fold, and makes EM passes of rank 20, both as
a map over blocks that are read from the store each time; then it says how much memory it took at most. One thread
works, and kernels are compiled before. Times are CPU seconds of the process, Dask, reading and decompressing included;
peaks are of the resident memory, and "growth" is what they are above the memory of a process that has made its first
small count and pass.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.blocks import DenseBlock
from pmflib.cluster.clients import open_client
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.workers import start_workers
from pmflib.counts import block_counting
from pmflib.counts.stored_pairs import count_group_pairs, merge_tables
from pmflib.em.latent_classes import evaluate_group
from pmflib.model.planted_models import planted_factors
from pmflib.model.sampling import sample_codes
from pmflib.model.sufficient_statistics import merge_each
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    COUNTING_COARSENESS,
    BlockReference,
    group_blocks,
    list_blocks,
)
from pmflib.store.sample_writer import SampleWriter
from pmflib_tasks.config import ClusterConfig

N_VARIABLES, N_LEVELS, RANK, OBSERVED = 30, 5, 20, 0.9
N_FOLDS = 16
PARTITION_ROWS = 4_000_000
DRAWN_ROWS = 1 << 18
DISK_BYTES = 14
"""Room that a sample takes on disk, rounded up."""


def write_samples(folder: Path, n_rows: int) -> None:
    """Draw samples and write them, in memory that does not grow with their number."""
    schema = Schema.from_cardinalities([N_LEVELS] * N_VARIABLES)
    rng = np.random.default_rng(0)
    prior, factors = planted_factors([N_LEVELS] * N_VARIABLES, RANK, rng)
    folder.mkdir(parents=True)
    for first in range(0, n_rows, PARTITION_ROWS):
        writer = SampleWriter(folder / f"part-{first:010}", schema, sparse=False)
        last = min(first + PARTITION_ROWS, n_rows)
        for start in range(first, last, DRAWN_ROWS):
            rows = np.arange(start, min(start + DRAWN_ROWS, last))
            codes = sample_codes(prior, factors, schema.offsets, rows.size, rng, observed=OBSERVED)
            writer.append(DenseBlock(codes), rows % N_FOLDS, rows)
        writer.close()


def list_samples(folder: Path) -> list[BlockReference]:
    """Blocks of all partitions, in order."""
    return [block for part in sorted(folder.iterdir()) for block in list_blocks(part)]


def read_memory(name: str) -> int:
    """Resident memory of this process (VmRSS), or its peak (VmHWM), bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"no {name} in /proc/self/status")


def watch(call: Callable[[], object]) -> tuple[float, float, int]:
    """CPU seconds and wall seconds of a call, and the peak of resident memory meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - cpu, time.perf_counter() - wall, read_memory("VmHWM")


def measure(folder: Path, n_passes: int) -> dict[str, object]:
    """Count the samples of a folder, and make EM passes; what both took."""
    schema = Schema.from_cardinalities([N_LEVELS] * N_VARIABLES)
    offsets = schema.offsets
    blocks = list_samples(folder)
    folds = [[block for block in blocks if block.fold == fold] for fold in range(N_FOLDS)]
    groups = group_blocks(blocks)
    model = planted_factors([N_LEVELS] * N_VARIABLES, RANK, np.random.default_rng(1))
    # what a long job chooses, from the first block on
    block_counting.COMPILE_NS.update({"planes": 0, "tiles": 0})
    cluster = ClusterConfig(processes=False, workers=1)
    with start_workers(cluster) as address, open_client(address) as client:

        def count(parts: list[list[BlockReference]]) -> int:
            n_counted = 0
            for part in parts:
                if part:
                    fold = group_blocks(part, COUNTING_COARSENESS)
                    table = run_blocks(client, count_group_pairs, fold, merge_tables, offsets)
                    n_counted += int(np.trace(table))
            return n_counted

        def make_passes(items: list[list[BlockReference]], n: int) -> None:
            # the M-step is a division of two small tables
            for _ in range(n):
                run_blocks(client, evaluate_group, items, merge_each, offsets, [model])

        count([blocks[:1]])
        make_passes([blocks[:1]], 1)
        base = read_memory("VmRSS")
        n_counted = 0

        def count_all() -> None:
            nonlocal n_counted
            n_counted = count(folds)

        counting = watch(count_all)
        passes = watch(lambda: make_passes(groups, n_passes))
    if n_counted != sum(block.n_observed for block in blocks):
        raise RuntimeError("the counts miss some answers")
    return {
        "rows": sum(block.n_rows for block in blocks),
        "blocks": len(blocks),
        "base": base,
        "count": counting,
        "em": (passes[0] / n_passes, passes[1] / n_passes, passes[2]),
    }


def main() -> None:
    """Write samples of all sizes in turn, have each measured by a process of its own, and print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--largest", type=float, default=1e7, help="number of samples, at least 1e5"
    )
    parser.add_argument("--folder", type=Path, help="for the samples; by default a temporary one")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--passes", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.passes)))
        return
    sizes = [10**power for power in range(5, 13) if 10**power <= options.largest]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        free = shutil.disk_usage(name).free
        if sizes[-1] * DISK_BYTES > free:
            sys.exit(
                f"{sizes[-1]:,} samples need {sizes[-1] * DISK_BYTES / 1e9:.1f} GB in {name}, "
                f"which has {free / 1e9:.1f} GB free; lower --largest, or name another --folder"
            )
        print(
            "        rows |  count s   Mrows/s   peak MiB  growth | EM pass s  Mrows/s   peak MiB  growth"
        )
        for n_rows in sizes:
            folder = Path(name) / str(n_rows)
            write_samples(folder, n_rows)
            print_line(measure_apart(folder, max(1, min(5, 10**7 // n_rows))))
            shutil.rmtree(folder)


def measure_apart(folder: Path, n_passes: int) -> dict[str, Any]:
    """Measure in a process of its own, whose peak of memory is of this size alone."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.pipeline.scaling",
        "--measure",
        str(folder),
        "--passes",
        str(n_passes),
    ]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_line(found: dict[str, Any]) -> None:
    """Print what a process found."""
    text = f"{found['rows']:12,} |"
    for (cpu, _, peak), width in ((found["count"], 8), (found["em"], 9)):
        text += (
            f" {cpu:{width}.2f} {found['rows'] / cpu / 1e6:9.2f} {peak / 2**20:9.0f}"
            f" {(peak - found['base']) / 2**20:8.0f} |"
        )
    print(text, flush=True)


if __name__ == "__main__":
    main()
