"""What `pmf plan` says after one run, beside what the next run takes: three shapes, by stage.

    python -m benchmarks.pipeline.planned_measured             # minutes
    python -m benchmarks.pipeline.planned_measured --scale 4   # more rows
    python -m benchmarks.pipeline.planned_measured --loading   # what stages load, whatever their data

Each shape is drawn twice from planted models, the second time with another seed and twice the rows. A first run, whose
plan knows nothing, is what the plan learns from; a second one, of the other log, in a store of its own, is what it is
judged by. Both are runs from scratch on two worker processes. Time is by the clock and depends on what else the machine
does, which processor time and memory hardly do; ratios are measured over planned.

With ``--loading``, runs of few rows by one and by three workers say what stages take besides the work that is planned,
of the client and of each worker: the table ``LOADING`` of `pmflib_tasks.operations.planning.speeds`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.ingest.options import make_source
from pmflib.model.sampling import sample_codes
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.run_records import list_records
from pmflib.synthetic.demo import write_demo_log
from pmflib.synthetic.planted_models import planted_factors
from pmflib_tasks.config import load_config
from pmflib_tasks.config.loading import draft_config
from pmflib_tasks.operations.planning.learning import StageTotals, list_planned
from pmflib_tasks.operations.planning.pipeline_sizes import (
    LastRun,
    measure_fit,
    measure_log,
    read_last_run,
)
from pmflib_tasks.operations.planning.sizes import ClusterSize
from pmflib_tasks.operations.planning.speeds import LOADING, Speeds
from pmflib_tasks.operations.planning.whole_run import RunPlan

ROWS = 100_000
"""Samples of a shape at --scale 1, in its first run."""
LOADING_ROWS, ROUNDS = 20_000, 2
"""Samples of the runs of --loading, and such runs of each kind: the least that any of them took counts."""
PROGRAM = "import sys; from pmflib_flows.etl import etl; etl(sys.argv[1])"
"""A run, as a schedule starts it: what it loads is not there yet."""


def write_ratings(folder: Path, rows: int, seed: int) -> dict[str, Any]:
    """A dirty long log of 20 films, 8 ratings a person."""
    _, truth = write_demo_log(folder / "log", n_users=rows, seed=seed)
    truth.schema.save(folder / "schema.json")
    columns = {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
    return {"path": "log/*.csv", "layout": "long", **columns}


def write_survey(folder: Path, rows: int, seed: int, n_variables: int = 30) -> dict[str, Any]:
    """A wide log with identifiers, a tenth of it missing."""
    rng = np.random.default_rng(seed)
    levels = [5] * n_variables
    prior, factors = planted_factors(levels, 8, np.random.default_rng(9))
    schema = Schema.from_cardinalities(levels)
    codes = sample_codes(prior, factors, schema.offsets, rows, rng, observed=0.9)
    schema.save(folder / "schema.json")
    labels = np.array([*schema.variables[0].levels, ""])
    lines = [",".join(["id", *schema.names])]
    lines += [f"{number:09},{','.join(row)}" for number, row in enumerate(labels[codes].tolist())]
    (folder / "log.csv").write_text("\n".join([*lines, ""]))
    return {"path": "log.csv", "layout": "wide", "sample": "id"}


def write_wide(folder: Path, rows: int, seed: int) -> dict[str, Any]:
    """A log of 80 variables, of a quarter of the rows."""
    return write_survey(folder, rows // 4, seed, n_variables=80)


SHAPES: dict[str, tuple[Callable[[Path, int, int], dict[str, Any]], int]] = {
    "ratings": (write_ratings, 4),
    "survey": (write_survey, 8),
    "wide": (write_wide, 8),
}
"""What writes each shape, and its rank."""


def run(folder: Path, shape: str, rows: int, seed: int, n_workers: int = 2) -> Path:
    """Write a log, and run a pipeline of it on worker processes, in a new process; its configuration."""
    write, rank = SHAPES[shape]
    folder.mkdir()
    text = draft_config(make_source(write(folder, rows, seed)), rank=rank)
    path = folder / "pipeline.toml"
    cluster = f"[cluster]\nworkers = {n_workers}\nprocesses = true\n"
    path.write_text(f"{text}\n{cluster}", "utf-8")
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True)
    return path


def plan_run(path: Path, last: LastRun, speeds: Speeds) -> RunPlan:
    """Plan of a run by its files; rank and passes are those of another."""
    config = load_config(path)
    schema = Schema.load(config.resolve(config.schema_.file))
    # sizes are those that the files say; of the other run are its passes, and the speeds
    log, _ = measure_log(config, schema, LastRun())
    fit, _ = measure_fit(config, schema, LastRun(rank=last.rank, passes=last.passes))
    return RunPlan(log, fit, ClusterSize.of_run(config.cluster), speeds)


def read_timings(path: Path) -> list[dict[str, Any]]:
    """What the stages of a pipeline's only run took."""
    config = load_config(path)
    (record,) = list_records(Store(str(config.resolve(config.store.path))), config.name)
    facts: Any = record.facts
    timings: list[dict[str, Any]] = facts["timings"]
    return timings


def compare(first: Path, second: Path) -> list[dict[str, Any]]:
    """Stages of a run, planned with what another has shown, and measured."""
    last = read_last_run(load_config(first))
    planned = list_planned(plan_run(second, last, last.learnt.apply(Speeds())))
    return [
        {"stage": each["stage"], "planned": planned[each["stage"]], "measured": each}
        for each in read_timings(second)
        if each["stage"] in planned
    ]


def measure_loading() -> None:
    """Print what stages of few rows take besides their planned work, processor seconds: of client and each worker."""
    idle = Speeds(loading=tuple((stage, 0.0) for stage in LOADING))
    numbers = (1, 3)
    besides: dict[tuple[str, int], float] = {}
    for n_workers in [*numbers] * ROUNDS:
        with tempfile.TemporaryDirectory() as name:
            path = run(Path(name) / "run", "survey", LOADING_ROWS, 1, n_workers)
            planned = list_planned(plan_run(path, read_last_run(load_config(path)), idle))
            for each in read_timings(path):
                if (stage := each["stage"]) in planned:
                    took = each["processor_seconds"] - planned[stage].processor_seconds
                    before = besides.get((stage, n_workers), took)
                    besides[stage, n_workers] = min(before, took)
    print("stage; the client, in the table; each worker, in the table")
    for stage in dict.fromkeys(stage for stage, _ in besides):
        one, several = (besides[stage, number] for number in numbers)
        worker = (several - one) / (numbers[1] - numbers[0])
        client, table = one - numbers[0] * worker, LOADING[stage]
        print(f"{stage}; {client:.2f}, {table[0]}; {worker:.2f}, {table[1]}")


def main() -> None:
    """Run the shapes, and print a line for each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--shapes", nargs="*", choices=[*SHAPES], default=[*SHAPES])
    parser.add_argument("--loading", action="store_true", help="only what stages load")
    options = parser.parse_args()
    if options.loading:
        measure_loading()
        return
    kinds = list(StageTotals.__dataclass_fields__)
    print("shape", "stage", *(f"{kind}: planned, measured, ratio" for kind in kinds), sep="; ")
    for shape in options.shapes:
        with tempfile.TemporaryDirectory() as name:
            rows = round(options.scale * ROWS)
            first = run(Path(name) / "first", shape, rows, seed=1)
            found = compare(first, run(Path(name) / "second", shape, 2 * rows, seed=2))
        for each in found:
            cells = []
            for kind in kinds:
                planned, measured = getattr(each["planned"], kind), each["measured"][kind]
                ratio = measured / planned if planned else float("nan")
                cells.append(f"{planned:.4g}, {measured:.4g}, {ratio:.2f}")
            print(shape, each["stage"], *cells, sep="; ", flush=True)
        print(json.dumps({"shape": shape, "rows": 2 * rows}), flush=True)


if __name__ == "__main__":
    main()
