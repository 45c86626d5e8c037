"""What `pmf recommend` costs: processor seconds of the command by the number of users, and its memory.

    python -m benchmarks.pipeline.recommending --users 6040 50000

draws a log of ratings with about 165 of 3,700 movies per user, popular ones more often, and ingests it. The command
recommends 20 movies to every user into a Parquet file, in a fresh process with compiled code cached. User and system
seconds are those of all its processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pmflib as pmf
from pmflib.store.run_records import RunRecord, append_record, now
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.stage import open_store
from pmflib_tasks.stages.ingest import ingest

N_ITEMS, N_LEVELS, TOP = 3_700, 5, 20
MEAN_RATINGS = 165
CONFIG = """
name = "ratings"
[source]
path = "log.parquet"
layout = "long"
sample = "user"
variable = "movie"
value = "rating"
[schema]
file = "schema.json"
[model]
rank = 20
"""


def main() -> None:
    """Make a pipeline for each number of users, and measure the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, nargs="+", default=[6_040])
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    print("| users | ratings | processor seconds | rows written | peak MiB |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for n_users in options.users:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            n_ratings = draw_log(folder / "log.parquet", n_users)
            (folder / "pipeline.toml").write_text(CONFIG, "utf-8")
            make_run(load_config(folder / "pipeline.toml"))
            out, found = folder / "recs.parquet", []
            words = ["recommend", str(folder / "pipeline.toml"), "--output", str(out), "--top"]
            if n_users == options.users[0]:
                # compiles the kernels, and makes another artefact
                measure([*words, str(TOP - 1)])
            for _ in range(options.repeats):
                for path in (folder / "store" / "predictions").glob("*"):
                    forget(folder, path.name)
                found.append(measure([*words, str(TOP)]))
            seconds, peak = min(found)
            n_rows = pq.read_metadata(out).num_rows
        print(f"| {n_users:,} | {n_ratings:,} | {seconds:.1f} | {n_rows:,} | {peak:.0f} |")


def forget(folder: Path, name: str) -> None:
    """Take a published artefact out of the manifest, so that it is made again."""
    for path in (folder / "store" / "manifest").glob("*.json"):
        if name in path.read_text("utf-8"):
            path.unlink()


def draw_log(path: Path, n_users: int) -> int:
    """Write ratings of users, each movie at most once per user; return their number."""
    rng = np.random.default_rng(0)
    popularity = 1 / (20 + np.arange(N_ITEMS))
    n_drawn = 20 + rng.geometric(1 / (MEAN_RATINGS - 20), n_users)
    users = np.repeat(np.arange(n_users), n_drawn)
    items = rng.choice(N_ITEMS, users.size, p=popularity / popularity.sum())
    users, items = np.divmod(np.unique(users * N_ITEMS + items), N_ITEMS)
    names = [f"m{n:04}" for n in range(N_ITEMS)]
    columns = {
        "user": pa.array([f"u{n:07}" for n in range(n_users)]).take(pa.array(users)),
        "movie": pa.array(names).take(pa.array(items)),
        "rating": pa.array(rng.integers(1, N_LEVELS + 1, users.size)),
    }
    pq.write_table(pa.table(columns), path)
    levels = tuple(str(n) for n in range(1, N_LEVELS + 1))
    values = tuple(float(level) for level in levels)
    pmf.Schema(tuple(pmf.Variable(name, levels, values) for name in names)).save(
        path.with_name("schema.json")
    )
    return users.size


def make_run(config: PipelineConfig) -> None:
    """Ingest the log, and record a run without a model."""
    store = open_store(config)
    stages = {"dataset": ingest.fn(config, "")}
    record = RunRecord("run", "promoted", "drawn", now(), now(), "", stages)
    append_record(store, config.name, record)


def measure(words: list[str]) -> tuple[float, float]:
    """Processor seconds of a command with its processes, and the largest memory of one, MiB."""
    command = [sys.executable, "-m", "pmflib_flows", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with exit status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
