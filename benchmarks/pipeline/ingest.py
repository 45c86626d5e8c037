"""Ingest of a long log: rows per second and peak memory, for two sizes.

    python -m benchmarks.pipeline.ingest --rows 5000000 20000000

generates each log (1,000 items, ratings 1 to 5, two CSV files), ingests it in a process of its own with one worker
thread, and prints rows per second, and the peak of resident memory above that of an ingest of 1,000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pmflib.ingest.options import make_source
from pmflib.schema import Schema, Variable
from pmflib.synthetic.planted_models import planted_factors
from pmflib.synthetic.raw_logs import Format, write_rating_log
from pmflib_tasks.config.loading import draft_config

N_ITEMS = 1000
RATINGS_EACH = 40

CHILD = """
import json, resource, sys, time
from pmflib_tasks.config import load_config
from pmflib_tasks.ingest import ingest
from pmflib_tasks.stage import open_store
config = load_config(sys.argv[1])
start = time.perf_counter()
reference = ingest.fn(config)
seconds = time.perf_counter() - start
summary = open_store(config).find(reference.identity).summary
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "peak": peak, **summary}))
"""


def main() -> None:
    """Generate, ingest and report each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000_000, 20_000_000])
    parser.add_argument("--format", choices=["csv", "csv.gz", "parquet"], default="csv")
    options = parser.parse_args()
    floor = measure(1000, options.format)["peak"]
    for n_rows in options.rows:
        found = measure(n_rows, options.format)
        assert found["rows_in"] == found["rows_encoded"] + found["rows_quarantined"]
        print(
            f"{found['rows_in']:,} rows in, {found['rows_quarantined']:,} quarantined, {found['samples']:,} samples: "
            f"{found['seconds']:.1f} s, {found['rows_in'] / found['seconds']:,.0f} rows/s, peak "
            f"{found['peak'] / 2**20:.0f} MiB ({(found['peak'] - floor) / 2**20:+.0f} to 1,000 rows)"
        )


def measure(n_rows: int, form: Format) -> dict[str, float]:
    """Ingest one log in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        prior, factors = planted_factors([5] * N_ITEMS, 5, rng)
        offsets = np.arange(N_ITEMS + 1, dtype=np.int64) * 5
        written = write_rating_log(
            folder / "log",
            prior,
            factors,
            offsets,
            n_samples=max(2, n_rows // RATINGS_EACH),
            ratings_per_sample=RATINGS_EACH,
            rng=rng,
            n_files=2,
            format=form,
            dirt=0.001,
        )
        levels = tuple("12345")
        Schema(
            tuple(Variable(v, levels, (1.0, 2.0, 3.0, 4.0, 5.0)) for v in written.variables)
        ).save(folder / "schema.json")
        columns = {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
        source = make_source({"path": "log", "layout": "long", **columns})
        config = draft_config(source, rank=2) + "[cluster]\nworkers = 1\n"
        (folder / "pipeline.toml").write_text(config)
        command = [sys.executable, "-c", CHILD, str(folder / "pipeline.toml")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
        return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
