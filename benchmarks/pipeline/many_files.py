"""What many files and many buckets cost the ingest: seconds of each pass, memory of the client, bytes of the manifest.

    python -m benchmarks.pipeline.many_files --files 1000 --buckets 4096

Draws a long log in as many small files, and builds its dataset with two worker processes; the scheduler is in this
process, whose largest memory is shown beside what it was before. Then one file is added, and the dataset is built upon
the first. Spill openings are the groups of buckets times the files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from pmflib.cluster.clients import Client, open_client
from pmflib.cluster.workers import start_workers
from pmflib.ingest.dataset.building import build_dataset
from pmflib.ingest.dataset.identifiers import estimate_csv_bytes, group_buckets
from pmflib.ingest.sources import find_sources
from pmflib.schema import Schema, Variable
from pmflib.store.artefacts import Reference, Store
from pmflib_tasks.config import ClusterConfig, PipelineConfig, make_config

N_VARIABLES = 20
N_LEVELS = 4


def main() -> None:
    """Draw the files, build the dataset twice, print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--buckets", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=500, help="rows of a file")
    parser.add_argument("--folds", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Build the dataset, and build upon it."""
    rng = np.random.default_rng(19)
    (folder / "log").mkdir()
    for index in range(options.files):
        write_file(folder / "log" / f"{index:05}.csv", rng, options)
    levels = tuple(map(str, range(N_LEVELS)))
    schema = Schema(tuple(Variable(f"v{index}", levels) for index in range(N_VARIABLES)))
    reading = {"layout": "long", "sample": "who", "variable": "what", "value": "answer"}
    config = make_config(
        {
            "source": {"path": "log", **reading},
            "store": {"folds": options.folds, "buckets": options.buckets},
            "model": {"rank": 2},
        },
        base=folder,
    )
    n_bytes = estimate_csv_bytes(find_sources(config.source_paths))
    n_groups = len(group_buckets(n_bytes, options.buckets))
    print(
        f"{options.files:,} files, {options.files * options.rows:,} rows, {options.buckets:,} buckets: "
        f"{n_groups:,} partitions, {n_groups * options.files:,} spill openings"
    )
    store = Store(folder / "store")
    cluster = ClusterConfig(processes=True, workers=2)
    with start_workers(cluster) as address, open_client(address) as client:
        base = build("built afresh", client, store, config, schema, None)
        write_file(folder / "log" / f"{options.files:05}.csv", rng, options)
        build("one file more", client, store, config, schema, base)


def write_file(path: Path, rng: np.random.Generator, options: argparse.Namespace) -> None:
    """Draw one file; a sample has rows in about four of them."""
    n_samples = max(1, options.files * options.rows // 4)
    columns = [
        rng.integers(n, size=options.rows).tolist() for n in (n_samples, N_VARIABLES, N_LEVELS)
    ]
    rows = zip(*columns, strict=True)
    lines = [f"s{sample:08},v{variable},{level}" for sample, variable, level in rows]
    path.write_text("\n".join(["who,what,answer", *lines, ""]))


def build(
    name: str,
    client: Client,
    store: Store,
    config: PipelineConfig,
    schema: Schema,
    base: Reference | None,
) -> Reference:
    """Build the dataset, and print a line for each pass and one for the whole."""
    me, before = psutil.Process(), psutil.Process().memory_info().rss
    most, started, since = before, time.perf_counter(), time.perf_counter()

    def on_step(step: str, done: int, total: int, n_rows: int) -> None:
        nonlocal most, since
        most = max(most, me.memory_info().rss)
        if done == total:
            now = time.perf_counter()
            print(f"{name}: {step}: {total:,} items, {now - since:.1f} s", flush=True)
            since = now

    entry = build_dataset(client, store, config.dataset_options, schema, base=base, on_step=on_step)
    seconds = time.perf_counter() - started
    most = max(most, me.memory_info().rss)
    entries = [path.stat().st_size for path in (store.root / "manifest").iterdir()]
    print(
        f"{name}: {seconds:.1f} s, memory {before / 2**20:.0f} to {most / 2**20:.0f} MiB, manifest "
        f"{sum(entries) / 1e6:.1f} MB in {len(entries):,} entries, largest {max(entries) / 1e3:.0f} kB; "
        f"{entry.summary['samples']:,} samples, {entry.summary['blocks']:,} blocks",
        flush=True,
    )
    return entry.reference


if __name__ == "__main__":
    main()
