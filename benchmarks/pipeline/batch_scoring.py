"""Scores of wide files: rows per second, share of each step, peak memory, and what copying the files costs.

    python -m benchmarks.pipeline.batch_scoring --rows 1e6 1e7

draws rows of a planted model of 30 variables with 5 levels, texts, of which 5 % are missing, into one Parquet and one
CSV file, and scores each with the model alone into a folder of Parquet files, in a process of its own. Printed are
rows per second, processor time, and the peak of resident memory above that of 10,000 rows; for the smallest number of
rows also the processor time of each step in one thread. Peers: pyarrow reads the file and writes its columns to Parquet
(the floor of whatever reads and writes; in one thread, and in all), and polars does the same, scanning and sinking.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

from pmflib.model import JointPMF
from pmflib.model.planted_models import planted_factors
from pmflib.schema import Schema, Variable

N_VARIABLES = 30
LEVELS = ("never", "seldom", "sometimes", "often", "always")
MISSING = 0.05
DRAWN_ROWS = 1 << 20

CHILD = """
import json, os, resource, sys, time
from pathlib import Path
from pmflib import JointPMF
from pmflib.apps import score_file
from pmflib.model.row_scores import ReferenceScores
folder = Path(sys.argv[1])
model = JointPMF.load(folder / "model")
reference = ReferenceScores.load(folder / "reference")
score_file(model, folder / sys.argv[3], folder / "warm", reference=reference)
before, started = os.times(), time.perf_counter()
account = score_file(model, folder / sys.argv[2], folder / "scores", reference=reference)
seconds, after = time.perf_counter() - started, os.times()
spent = after.user + after.system - before.user - before.system
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "spent": spent, "peak": peak, "samples": account["samples"]}))
"""


def main() -> None:
    """Draw, score and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(options.rank)
        model.save(folder / "model")
        from pmflib.model.row_scores import ReferenceScores

        ReferenceScores.draw(model).save(folder / "reference")
        sizes = [int(rows) for rows in options.rows]
        for kind in ("parquet", "csv"):
            write_rows(folder / f"small.{kind}", model, 10_000)
            floor = score(folder, f"small.{kind}", 1, kind)["peak"]
            for n_rows in sizes:
                path = folder / f"rows.{kind}"
                write_rows(path, model, n_rows)
                report(folder, path, n_rows, floor, options.repeats)
                if n_rows == min(sizes):
                    report_steps(path, model)
                path.unlink()


def make_model(rank: int) -> JointPMF:
    """Draw a model."""
    rng = np.random.default_rng(0)
    prior, factors = planted_factors([len(LEVELS)] * N_VARIABLES, rank, rng, concentration=0.3)
    values = tuple(map(float, range(len(LEVELS))))
    variables = (Variable(f"q{index:02}", LEVELS, values) for index in range(N_VARIABLES))
    return JointPMF(prior, factors, Schema(tuple(variables)))


def write_rows(path: Path, model: JointPMF, n_rows: int) -> None:
    """Draw rows into a file, some million at a time."""
    tables = draw_tables(model, n_rows)
    first = next(tables)
    with (
        pq.ParquetWriter(path, first.schema)
        if path.suffix == ".parquet"
        else pyarrow.csv.CSVWriter(path, first.schema)
    ) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def draw_tables(model: JointPMF, n_rows: int) -> Iterator[pyarrow.Table]:
    """Rows as tables of texts."""
    for start in range(0, n_rows, DRAWN_ROWS):
        codes = model.sample(min(DRAWN_ROWS, n_rows - start), start)
        codes[np.random.default_rng(start).random(codes.shape) < MISSING] = -1
        yield model.schema.decode(codes)


def score(folder: Path, name: str, repeats: int, kind: str) -> dict[str, float]:
    """Score a file in a process of its own; the best of several times."""
    found = []
    for _ in range(repeats):
        for old in ("warm", "scores"):
            subprocess.run(["rm", "-rf", str(folder / old)], check=True)
        out = subprocess.run(
            [sys.executable, "-c", CHILD, str(folder), name, f"small.{kind}"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        found.append(json.loads(out.stdout))
    return min(found, key=lambda each: each["seconds"])


def report(folder: Path, path: Path, n_rows: int, floor: float, repeats: int) -> None:
    """Print rows per second, memory, and the peers."""
    found = score(folder, path.name, repeats, path.suffix[1:])
    assert found["samples"] == n_rows
    print(
        f"{path.suffix[1:]}, {n_rows:,} rows of {path.stat().st_size / 1e6:,.0f} MB: "
        f"{n_rows / found['seconds']:,.0f} rows/s ({found['seconds']:.2f} s, processor {found['spent']:.2f} s), "
        f"peak {found['peak'] / 2**20:.0f} MiB ({(found['peak'] - floor) / 2**20:+.0f} to 10,000 rows)"
    )
    out = folder / "copy.parquet"
    peers: dict[str, Callable[[], None]] = {
        "pyarrow, one thread": lambda: copy_by_arrow(path, out, threads=False),
        "pyarrow": lambda: copy_by_arrow(path, out, threads=True),
        "polars": lambda: copy_by_polars(path, out),
    }
    for name, copy in peers.items():
        seconds = min(measure(copy) for _ in range(repeats))
        print(
            f"  copied by {name}: {n_rows / seconds:,.0f} rows/s; scoring takes "
            f"{found['seconds'] / seconds:.2f} times as long"
        )


def copy_by_arrow(path: Path, out: Path, *, threads: bool) -> None:
    """Read all columns of a file in batches, and write them to Parquet."""
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        batches = file.iter_batches(70_000, use_threads=threads)
        schema = file.schema_arrow
    else:
        reading = pyarrow.csv.ReadOptions(use_threads=threads, block_size=2 << 20)
        batches = pyarrow.csv.open_csv(path, reading)
        schema = batches.schema
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def copy_by_polars(path: Path, out: Path) -> None:
    """Scan a file, and sink it to Parquet."""
    import polars

    scan = polars.scan_parquet if path.suffix == ".parquet" else polars.scan_csv
    scan(path).sink_parquet(out, compression="zstd")


def measure(work: Callable[[], object]) -> float:
    """Seconds that a function takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def report_steps(path: Path, model: JointPMF) -> None:
    """Print the processor time of each step, in one thread, over the whole file."""
    from pmflib.answering.sample_tables.parts import list_origins
    from pmflib.apps.scoring.score_tables import TableScorer
    from pmflib.ingest.dataset.row_screening import RowDecisions, Screen
    from pmflib.ingest.dataset.wide import WideEncoder
    from pmflib.ingest.options import SchemaOptions, make_source
    from pmflib.ingest.readers import read_rows
    from pmflib.ingest.sources import digest_source, find_sources
    from pmflib.model.row_scores import ReferenceScores, RowScorer
    from pmflib.store.table_files import write_options

    config = make_source({"path": str(path), "layout": "wide"})
    (source,) = find_sources(str(path))
    scorer = TableScorer(model, ReferenceScores.draw(model))
    rows, encoder = RowScorer(model), WideEncoder(model.schema, SchemaOptions())
    spent = dict.fromkeys(("digest", "read", "encode", "score", "tables", "write"), 0.0)
    writer = None

    def clock(step: str, started: float) -> float:
        now = time.process_time()
        spent[step] += now - started
        return now

    at = time.process_time()
    digest_source(source)
    at, n_rows = clock("digest", at), 0
    for raw in read_rows(source, config, model.schema.names, coded=model.schema.names):
        at = clock("read", at)
        screen = Screen(source, config, SchemaOptions())
        kept, codes = encoder.encode(raw, RowDecisions(raw.batch.num_rows), screen)
        at = clock("encode", at)
        found = rows.score(codes)
        at = clock("score", at)
        table, _ = scorer.make_table(codes, found, list_origins(source, raw, kept, ()))
        at = clock("tables", at)
        if writer is None:
            writer = pq.ParquetWriter(
                path.with_name("steps.parquet"), table.schema, **write_options(table.schema)
            )
        writer.write_table(table)
        at = clock("write", at)
        n_rows += len(codes)
    assert writer is not None
    writer.close()
    clock("write", at)
    total = sum(spent.values())
    shares = ", ".join(f"{step} {1e6 * each / n_rows:.2f}" for step, each in spent.items())
    print(f"  microseconds per row in one thread: {shares}; together {1e6 * total / n_rows:.2f}")


if __name__ == "__main__":
    main()
