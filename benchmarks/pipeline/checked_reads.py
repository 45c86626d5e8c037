"""What checks of integrity cost: opening a partition, an EM pass over its blocks, and verifying the store.

    python -m benchmarks.pipeline.checked_reads

A partition of complete codes, 30 variables with 5 levels, in 200 blocks. Printed are medians of processor time: of a
pass over all blocks in one thread; of opening the partition, and the part of it that is the check against digests; and
the bytes per second of `verify_store`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.core.blocks import DenseBlock
from pmflib.em.latent_classes import evaluate_models
from pmflib.em.stored_samples import StoredSamples
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.file_digests import check_files
from pmflib.store.sample_blocks import list_blocks
from pmflib.store.sample_writer import SampleWriter
from pmflib.store.verification import verify_store
from pmflib.store.zarr_arrays import open_group

N_VARIABLES = 30
RANK = 8


def main() -> None:
    """Write a partition, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--block-rows", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    schema = Schema.from_cardinalities(np.full(N_VARIABLES, 5))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        path = write_partition(store, schema, options.blocks, options.block_rows)
        samples = StoredSamples(list_blocks(path), schema)
        rng = np.random.default_rng(0)
        factors = rng.dirichlet(np.ones(5), (N_VARIABLES, RANK)).transpose(0, 2, 1)
        model = np.full(RANK, 1 / RANK), factors.reshape(schema.n_levels, RANK)
        one_pass = measure(lambda: evaluate_models(samples, [model]), options.repeats)
        opened = measure(lambda: open_group(path), options.repeats)
        checked = measure(lambda: check_files(path, "zarr.json"), options.repeats)
        print(f"pass over {len(samples.blocks)} blocks: {1e3 * one_pass:.0f} ms")
        print(
            f"opening the partition: {1e3 * opened:.2f} ms, of which check {1e3 * checked:.2f} ms"
        )
        n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        seconds = measure(lambda: verify_store(store), options.repeats)
        print(f"verify: {n_bytes / seconds / 1e6:.0f} MB/s of {n_bytes / 1e6:.0f} MB")


def write_partition(store: Store, schema: Schema, n_blocks: int, block_rows: int) -> Path:
    """Publish a partition of drawn codes; return its group."""
    rng = np.random.default_rng(0)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        writer = SampleWriter(folder / "samples", schema, sparse=False, block_rows=block_rows)
        for _ in range(n_blocks):
            codes = rng.integers(0, 5, (block_rows, N_VARIABLES)).astype(schema.code_dtype)
            rows = np.arange(block_rows)
            writer.append(DenseBlock(codes), np.zeros(block_rows, np.int64), rows)
        return asdict(writer.close())

    entry = store.build("samples", inputs={}, options={}, version=1, write=write)
    return store.locate(entry.reference) / "samples"


def measure(work: Callable[[], object], repeats: int) -> float:
    """Median processor time of some work, seconds, after a first time that is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
