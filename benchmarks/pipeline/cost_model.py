"""The cost model of `pmf plan` against real runs: what is counted, to be equal; times, as ratios.

    python -m benchmarks.pipeline.cost_model --rows 1e6 1e7  # about six minutes
    python -m benchmarks.pipeline.cost_model --rows 1e8      # half an hour, 9 GB in --folder

A wide log of 30 variables with 5 levels, 90 % observed, is drawn from a planted model, and written as CSV in four
files, with identifiers of nine digits or, with --plain, without. A pipeline of rank 20 and five passes of EM ingests
it, counts, fits, refines and evaluates, on workers of one thread in this process. A plug-in of the scheduler counts
tasks as they finish. The files of the store are counted, and their bytes. The model is given the sizes of the log, and
speeds that are measured first, and its lines stand below those of the run. Seconds are CPU seconds of everything:
client, scheduler and workers, which are all in this process; of the model, the sum of what it gives to the three. Those
of the clock, "wall", depend on what else the machine does; the model knows as many threads as there are cores, for more
workers than that share them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from distributed.diagnostics.plugin import SchedulerPlugin

from pmflib.core.machine import count_processors
from pmflib.model.sampling import sample_codes
from pmflib.schema import Schema, Variable
from pmflib.store.artefacts import Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.synthetic.planted_models import planted_factors
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize
from pmflib_tasks.operations.planning.speeds import Speeds
from pmflib_tasks.operations.planning.whole_run import RunPlan, show_bytes

N_VARIABLES, N_LEVELS, RANK, OBSERVED, PASSES = 30, 5, 20, 0.9, 5
DRAWN_ROWS = 1 << 17
STAGES = ("ingest", "count", "fit", "refine", "evaluate")
NAME_DIGITS = 9


class TaskCounter(SchedulerPlugin):  # type: ignore[misc]
    """Counts tasks as they finish, by the stage that is under way."""

    def __init__(self) -> None:
        self.stage = ""
        self.finished: dict[str, set[Any]] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note a task that is done."""
        if (start, finish) == ("processing", "memory"):
            self.finished.setdefault(self.stage, set()).add(key)

    def count(self, stage: str) -> int:
        """Number of tasks of a stage."""
        return len(self.finished.get(stage, ()))


@dataclass
class CountedRun:
    """What was counted of a run.

    Parameters
    ----------
    tasks, seconds, cpu_seconds
        By stage; of the clock, and of the processor.
    files, disk_bytes
        Files of the store and their bytes, by kind of artefact.
    entries
        Entries of the manifest.
    block_bytes, n_blocks
        Bytes in memory of the blocks of the dataset, and their number.
    """

    tasks: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    disk_bytes: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    block_bytes: int = 0
    n_blocks: int = 0


def write_log(
    folder: Path, n_rows: int, n_files: int, *, named: bool, n_variables: int = N_VARIABLES
) -> LogSize:
    """Draw a wide log and write it as CSV, with its schema and a pipeline, in memory that does not grow with it."""
    folder.mkdir(parents=True)
    digits = tuple(map(str, range(N_LEVELS)))
    schema = Schema(
        tuple(Variable(f"v{index}", digits, missing=("?",)) for index in range(n_variables))
    )
    schema.save(folder / "schema.json")
    rng = np.random.default_rng(0)
    prior, factors = planted_factors([N_LEVELS] * n_variables, RANK, rng)
    header = ",".join([*(["id"] if named else []), *schema.names]) + "\n"
    n_bytes = 0
    for index in range(n_files):
        first, last = index * n_rows // n_files, (index + 1) * n_rows // n_files
        stream_path = folder / f"part-{index:05}.csv"
        with stream_path.open("wb") as stream:
            stream.write(header.encode())
            for start in range(first, last, DRAWN_ROWS):
                rows = np.arange(start, min(start + DRAWN_ROWS, last))
                codes = sample_codes(
                    prior, factors, schema.offsets, rows.size, rng, observed=OBSERVED
                )
                stream.write(format_rows(rows, codes, named=named))
        n_bytes += stream_path.stat().st_size
    sample = '\nsample = "id"' if named else ""
    (folder / "pipeline.toml").write_text(
        f'[source]\npath = "part-*.csv"\nlayout = "wide"{sample}\n[schema]\nfile = "schema.json"\n'
        f'[model]\nrank = {RANK}\nmethod = "random"\n'
        f"[em]\nmax_passes = {PASSES}\npseudo_count = 1.0\ntol = 0.0\n"
    )
    return LogSize(
        n_rows,
        n_rows,
        n_variables,
        schema.n_levels,
        OBSERVED,
        n_files,
        n_bytes,
        n_bytes,
        identified=named,
        identifier_bytes=NAME_DIGITS if named else 0,
    )


def format_rows(rows: np.ndarray, codes: np.ndarray, *, named: bool) -> bytes:
    """Rows of CSV of fixed width: a digit for each code, a question mark where missing."""
    fields = np.full((rows.size, 2 * codes.shape[1]), ord(","), np.uint8)
    fields[:, ::2] = np.where(codes < 0, ord("?"), codes + ord("0"))
    fields[:, -1] = ord("\n")
    if named:
        powers = 10 ** np.arange(NAME_DIGITS - 1, -1, -1)
        names = (rows[:, None] // powers % 10 + ord("0")).astype(np.uint8)
        comma = np.full((rows.size, 1), ord(","), np.uint8)
        fields = np.hstack([names, comma, fields])
    return fields.tobytes()


FIT = FitSize(RANK, PASSES, runs=1, start="random")
"""Size of the fit of these pipelines."""


@contextmanager
def start_counted(n_workers: int) -> Iterator[tuple[str, TaskCounter]]:
    """Start workers of one thread in this process; yields the address of their scheduler, and what counts its tasks."""
    import dask
    from distributed import LocalCluster

    quiet: dict[str, list[str]] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        dask.config.set(quiet),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            # they share the memory of this process: none of them is to pause for what all hold
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
    ):
        counter = TaskCounter()
        cluster.scheduler.add_plugin(counter)
        yield cluster.scheduler_address, counter


def run_counted(config: PipelineConfig, n_workers: int) -> CountedRun:
    """Run the stages of a pipeline, and count."""
    from pmflib_tasks.choose import choose
    from pmflib_tasks.count import count
    from pmflib_tasks.evaluate import evaluate
    from pmflib_tasks.fit import fit
    from pmflib_tasks.fit_traits import fit_traits
    from pmflib_tasks.ingest import ingest
    from pmflib_tasks.refine import refine

    run = CountedRun()
    made: dict[str, Any] = {}
    with start_counted(n_workers) as (address, counter):
        calls: dict[str, Callable[[], Any]] = {
            "ingest": lambda: ingest.fn(config, address),
            "count": lambda: count.fn(config, made["ingest"], address),
        }
        model = "fit_traits"
        if not config.has_traits:
            model = "refine"
            calls["fit"] = lambda: fit.fn(config, made["count"])
            calls["refine"] = lambda: refine.fn(
                config, made["ingest"], made["count"], made["fit"], address
            )
        if config.has_traits or config.compares_traits:
            calls["fit_traits"] = lambda: fit_traits.fn(config, made["ingest"], None, address)
        if config.compares_traits:
            model = "choose"
            calls["choose"] = lambda: choose.fn(
                config, made["ingest"], made["refine"], made["fit_traits"], "", address
            )
        calls["evaluate"] = lambda: evaluate.fn(
            config, made["ingest"], made["count"], made[model], address
        )
        for stage, call in calls.items():
            counter.stage, start, cpu = stage, time.perf_counter(), time.process_time()
            made[stage] = call()
            run.seconds[stage] = time.perf_counter() - start
            run.cpu_seconds[stage] = time.process_time() - cpu
            run.tasks[stage] = counter.count(stage)
    store = Store(config.resolve(config.store.path))
    for kind in ("samples", "spill", "spill-list", "cuts", "manifest"):
        sizes = [path.stat().st_size for path in (store.root / kind).rglob("*") if path.is_file()]
        run.files[kind], run.disk_bytes[kind] = len(sizes), sum(sizes)
    run.entries = run.files.pop("manifest")
    blocks = list_dataset_blocks(store, made["ingest"], range(config.store.folds))
    run.block_bytes, run.n_blocks = sum(block.nbytes for block in blocks), len(blocks)
    return run


def plan_tasks_by_stage(plan: RunPlan) -> dict[str, int]:
    """Tasks that the model counts, by the stages of a run."""
    tasks = {stage.stage: stage.tasks for stage in plan.stages}
    found = {"ingest": tasks.pop("read") + tasks.pop("sort"), **tasks}
    if "traits" in found:
        found["fit_traits"] = found.pop("traits")
    if "forests" in found:
        found["refine"] += found.pop("forests")
    return found


def main() -> None:
    """Run and plan logs of several sizes, and print both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 16])
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--plain", action="store_true", help="samples without identifiers")
    parser.add_argument("--folder", type=Path, help="for the logs; by default a temporary one")
    options = parser.parse_args()
    from pmflib_tasks.operations.planning.calibration import measure_speeds

    speeds = measure_speeds(Speeds())
    print("tasks, CPU s, wall s of" + "".join(f"{stage:>27}" for stage in STAGES))
    for n_rows in map(int, options.rows):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name) / "log"
            log = write_log(folder, n_rows, options.files, named=not options.plain)
            config = load_config(folder / "pipeline.toml")
            for n_workers in options.workers:
                run = run_counted(config, n_workers)
                print_run(run, log, n_workers, speeds)
                remove_store(config)


def print_run(run: CountedRun, log: LogSize, n_workers: int, speeds: Speeds) -> None:
    """Print a run, and below it what the model says."""
    n_cores = min(n_workers, count_processors())
    timed = RunPlan(log, FIT, ClusterSize(n_cores), speeds)
    counted = RunPlan(log, FIT, ClusterSize(n_workers), speeds)
    walls = {stage.stage: stage.wall_seconds for stage in timed.stages}
    cpus = {
        stage.stage: stage.worker_seconds + stage.scheduler_seconds + stage.client_seconds
        for stage in timed.stages
    }
    for each in (walls, cpus):
        each["ingest"] = each.pop("read") + each.pop("sort")
    planned = plan_tasks_by_stage(counted)
    for what, tasks, cpu, seconds in (
        ("run", run.tasks, run.cpu_seconds, run.seconds),
        ("model", planned, cpus, walls),
    ):
        cells = "".join(f"{tasks[s]:9} {cpu[s]:8.2f} {seconds[s]:8.2f}" for s in STAGES)
        print(f"{log.rows:<10,} {n_workers:3} {what:>5} |{cells}", flush=True)
    planner = counted.planner
    part = planner.gather(0, planner.fit.folds)
    print(
        f"    blocks {run.n_blocks:,} / {part.n_blocks:,}; in memory {show_bytes(run.block_bytes)} / "
        f"{show_bytes(part.n_bytes)}; partitions {run.files['samples']:,} / {planner.count_sample_files():,} files, "
        f"{show_bytes(run.disk_bytes['samples'])} / {show_bytes(planner.sample_bytes)}; spills "
        f"{show_bytes(run.disk_bytes['spill'])} / {show_bytes(planner.spill_bytes)}",
        flush=True,
    )


def remove_store(config: PipelineConfig) -> None:
    """Delete what a run has made."""
    import shutil

    shutil.rmtree(config.resolve(config.store.path))


if __name__ == "__main__":
    main()
