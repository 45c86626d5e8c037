"""Passes of a fit of continuous traits over a log in a store: seconds, and memory, which does not grow with the log.

    python -m benchmarks.models.trait_passes
    python -m benchmarks.models.trait_passes --people 1e5 1e6 --variables 30 --threads 2
    python -m benchmarks.models.trait_passes --people 1e5 --dimensions 0 1 2 4 8 16 --threads 1

draws people by degree, whose answers to variables of five ordered levels are partial credit on two traits, writes them
into a partition, and fits some dimensions and the two biases of people, each number of people in a process of its own,
by three passes that read the blocks anew. `peak RSS` is the largest memory of that process, all its libraries included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

import pmflib as pmf
from pmflib.cluster.clients import open_client
from pmflib.cluster.workers import start_workers
from pmflib.core.blocks import DenseBlock
from pmflib.core.events import listen
from pmflib.display.progress import Progress
from pmflib.model.traits.trait_model import TraitModel
from pmflib.store.sample_blocks import list_blocks
from pmflib.store.sample_writer import SampleWriter
from pmflib_tasks.config import ClusterConfig

N_LEVELS, N_TRAITS, PASSES = 5, 2, 3
DRAWN = 50_000
FEW = 10_000
NAME = "0123456789abcdef01234567"


def write_people(folder: Path, n_people: int, n_variables: int) -> pmf.Schema:
    """Draw people, a fifth of whose answers are missing, and write them."""
    rng = np.random.default_rng(0)
    schema = pmf.Schema.from_cardinalities([N_LEVELS] * n_variables)
    steps = np.tile(np.arange(N_LEVELS) - (N_LEVELS - 1) / 2, n_variables)
    loadings = np.repeat(rng.normal(0, 0.5, (n_variables, N_TRAITS)), N_LEVELS, axis=0)
    base = rng.normal(0, 0.5, schema.n_levels)
    truth = TraitModel(
        schema, base, steps[:, None] * loadings, np.zeros(N_TRAITS), np.eye(N_TRAITS)
    )
    writer = SampleWriter(folder / NAME / "samples", schema, sparse=False)
    for start in range(0, n_people, DRAWN):
        rows = np.arange(start, min(start + DRAWN, n_people))
        factors = truth.find_factors(rng.standard_normal((rows.size, N_TRAITS)))
        codes = np.empty((rows.size, n_variables), np.int8)
        for index in range(n_variables):
            ends = factors[schema.rows_of(index)].cumsum(axis=0)
            codes[:, index] = (rng.random(rows.size) > ends[:-1]).sum(axis=0)
        codes[rng.random(codes.shape) < 0.2] = -1
        writer.append(DenseBlock(codes), rows % 2, rows)
    writer.close()
    return schema


def fit_people(folder: Path, dimensions: int, n_threads: int) -> dict[str, float]:
    """Fit what a folder has; seconds and memory of this process."""
    blocks = list_blocks(folder / NAME / "samples")
    schema = pmf.Schema.load(folder / "schema.json")
    times = []

    def note(progress: Progress) -> None:
        if progress.total == PASSES:
            times.append((time.monotonic(), time.process_time()))

    options = {"shrinkage": 1.0, "passes": PASSES, "n_states": 100}
    with (
        start_workers(ClusterConfig(workers=n_threads)) as address,
        open_client(address) as client,
        listen(note, Progress),
    ):
        # nothing is kept: every pass reads all blocks
        samples = pmf.StoredSamples(blocks, schema, client)
        pmf.fit_traits(samples, dimensions=dimensions, **options)  # type: ignore[arg-type]
    walls, cpus = np.diff(np.array(times), axis=0).T
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cells": samples.n_observed, "wall": walls.min(), "cpu": cpus.min(), "peak": peak}


def run(n_people: int, n_variables: int, dimensions: int, n_threads: int) -> dict[str, float]:
    """Draw people here, and fit them in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        write_people(Path(name), n_people, n_variables).save(Path(name) / "schema.json")
        words = ["-m", "benchmarks.models.trait_passes", "--fit", name, "--threads", str(n_threads)]
        words += ["--dimensions", str(dimensions)]
        done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=float, nargs="*", default=[1e5, 1e6])
    parser.add_argument("--variables", type=int, default=30)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit is not None:
        print(json.dumps(fit_people(options.fit, options.dimensions[0], options.threads)))
        return
    print(f"{options.variables} variables, {options.threads} threads")
    print(
        f"{'people':>12}{'cells':>14}{'dimensions':>12}{'pass s':>9}{'CPU s':>9}{'ns a cell':>11}{'peak RSS':>12}"
    )
    # what is compiled on first use takes memory and time of no fit
    run(FEW, options.variables, options.dimensions[0], options.threads)
    for n_people, dimensions in product(map(int, options.people), options.dimensions):
        found = run(n_people, options.variables, dimensions, options.threads)
        each = found["cpu"] / found["cells"] * 1e9
        print(
            f"{n_people:>12,}{found['cells']:>14,}{dimensions:>12}{found['wall']:>9.2f}{found['cpu']:>9.2f}"
            f"{each:>11.0f}{found['peak']:>8.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
