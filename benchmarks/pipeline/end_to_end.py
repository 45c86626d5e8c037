"""A large log end to end: from Parquet files to a live model by ``pmf run``, with the share of each stage.

    python -m benchmarks.pipeline.end_to_end [--rows 1e7] [--files 16] [--rank 10] [--samples] [--folder FOLDER]

Rows of a planted model of 30 variables with 5 levels, texts, of which 5 % are missing, are drawn into Parquet files and
run as a user would run them, without a server. ``--samples`` gives every row an identifier: it is then hashed, put in
a partition and sorted, in two passes. Printed are the seconds of each stage as the record of the run has them, the peak
of the resident memory of the command with its children, and the bytes of the sources and of the store. ``--folder``
keeps files and store, and draws no files that are there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.batch_scoring import LEVELS, MISSING, make_model
from pmflib.model import JointPMF

DRAWN_ROWS = 1 << 19
PIPELINE = """
[source]
path = "rows/*.parquet"
layout = "wide"
{sample}
[schema]
file = "schema.json"

[store]
path = "store"

[model]
rank = {rank}

[cluster]
workers = {workers}
"""


def write_files(folder: Path, model: JointPMF, n_rows: int, n_files: int, samples: bool) -> None:
    """Draw rows into files, in memory that does not grow with their number."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = np.linspace(0, n_rows, n_files + 1).astype(np.int64).tolist()
    levels = pa.array(LEVELS)
    for index in range(n_files):
        path = folder / f"part-{index:04}.parquet"
        if path.exists():
            continue
        draft, writer = path.with_suffix(".draft"), None
        for start in range(edges[index], edges[index + 1], DRAWN_ROWS):
            n = min(DRAWN_ROWS, edges[index + 1] - start)
            codes = model.sample(n, start)
            hidden = np.random.default_rng(start).random(codes.shape, np.float32) < MISSING
            columns = {
                variable.name: pa.DictionaryArray.from_arrays(
                    pa.array(codes[:, column].astype(np.int8), mask=hidden[:, column]), levels
                )
                for column, variable in enumerate(model.schema.variables)
            }
            if samples:
                columns["id"] = pa.array(np.arange(start, start + n))
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(draft, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
            draft.rename(path)


def watch(command: list[str]) -> tuple[float, int]:
    """Run a command; seconds, and the peak of its resident memory with its children, bytes."""
    began = time.perf_counter()
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    peak, over = 0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not over.wait(0.2):
            try:
                family = [process, *process.children(recursive=True)]
                peak = max(peak, sum(one.memory_info().rss for one in family))
            except psutil.Error:
                continue

    watcher = threading.Thread(target=look)
    watcher.start()
    status = process.wait()
    over.set()
    watcher.join()
    if status:
        raise SystemExit(f"{' '.join(command)} ended with exit status {status}")
    return time.perf_counter() - began, peak


def measure_folder(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Draw, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0, help="threads; by default one per core")
    parser.add_argument("--samples", action="store_true", help="give rows identifiers")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    n_rows = int(options.rows)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        model = make_model(options.rank)
        write_files(folder / "rows", model, n_rows, options.files, options.samples)
        model.schema.save(folder / "schema.json")
        sample = 'sample = "id"' if options.samples else ""
        config = folder / "pipeline.toml"
        config.write_text(
            PIPELINE.format(sample=sample, rank=options.rank, workers=options.workers), "utf-8"
        )
        pmf = [sys.executable, "-m", "pmflib_flows"]
        seconds, peak = watch([*pmf, "run", str(config)])
        found = subprocess.run(
            [*pmf, "history", str(config), "--json"], capture_output=True, text=True, check=True
        )
        timings = json.loads(found.stdout)["runs"][-1]["facts"]["timings"]
        sizes = measure_folder(folder / "rows"), measure_folder(folder / "store")
    print(
        f"{n_rows:,} rows in {options.files} files, {sizes[0] / 1e9:.2f} GB: {seconds:.1f} s, "
        f"peak {peak / 2**20:,.0f} MiB, store {sizes[1] / 1e9:.2f} GB"
    )
    rest = seconds - sum(each["seconds"] for each in timings)
    for each in [*timings, {"stage": "the rest", "seconds": rest}]:
        share = 100 * each["seconds"] / seconds
        print(f"  {each['stage']:10} {each['seconds']:8.1f} s  {share:5.1f} %")


if __name__ == "__main__":
    main()
