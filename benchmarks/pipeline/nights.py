"""A log that is delivered night by night: what every night costs, and whether its counts are those of a full recount.

    python -m benchmarks.pipeline.nights ../shared/data/ml-100k
    python -m benchmarks.pipeline.nights --triples 2e7

The first delivers the ratings of MovieLens 100K of movies with 100 ratings or more in the order of their times, the
second a drawn log whose users arrive over time and of whom some return. After each delivery the pipeline runs, as
``pmf run`` does, in one process that goes on from night to night, so that imports and compiled kernels count once.
Times are processor seconds of this process with its threads, without the Prefect server, which runs beside it. "To
refit" ends where evaluation begins. Source bytes are those of the files opened, as often as they were; "other" bytes
are all that was read besides, the store's; "written" are bytes of new files in the store, without checkpoints, which
are gone. On nights that are checked, all deliveries so far are ingested and counted once more in a store of their own,
and each fold's counts are compared bit for bit. At the end nothing new is run once more, and a full run in a fresh
store gives the ratio; the test samples say whose model is better.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.models.movielens import read_log
from benchmarks.pipeline.deliveries import Deliveries
from pmflib.base.errors import PmfError
from pmflib.cluster.workers import start_workers
from pmflib.counts.pair_counts import PairCounts, load_shape
from pmflib.em.stored_samples import StoredSamples
from pmflib.model import JointPMF
from pmflib.model.planted_models import planted_factors
from pmflib.schema import Schema, Variable
from pmflib.store.artefacts import Store
from pmflib.store.run_records import list_records
from pmflib_tasks.config import load_config
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.ingest import ingest

MIN_RATINGS = 100
"""Ratings of a movie that make it a variable of the first log."""
N_MOVIES, PER_USER, DRAWN_RANK = 60, 20, 8
"""Size of the drawn log: movies, ratings of a user, latent states."""
APART = ("tmp", "work", ".prefect")
"""Folders of a store that hold no artefacts, nor what is said of them."""

CONFIG = """
[source]
path = "{log}"
layout = "long"
sample = "user"
variable = "movie"
value = "rating"
time = "ts"
[schema]
file = "{schema}"
[store]
path = "{store}"
[model]
rank = {rank}
"""


@dataclass(frozen=True)
class Log:
    """A log to deliver.

    Parameters
    ----------
    schema
        The movies and their ratings.
    rank
        Number of latent states to fit.
    nights
        Rows of each delivery.
    """

    schema: Schema
    rank: int
    nights: Iterator[pa.Table]


def open_movielens(path: Path, n_nights: int) -> Log:
    """MovieLens by the times of the ratings."""
    log = read_log(path).astype(np.int64)
    popular = np.flatnonzero(np.bincount(log[:, 1]) >= MIN_RATINGS)
    log = log[np.isin(log[:, 1], popular)]
    log = log[np.argsort(log[:, 3], kind="stable")]
    columns = ("user", "movie", "rating", "ts")
    parts = np.array_split(log, n_nights)
    tables = (pa.table(dict(zip(columns, part.T, strict=True))) for part in parts)
    return Log(make_schema([str(movie) for movie in popular]), 5, tables)


def open_drawn(n_triples: int, n_nights: int) -> Log:
    """Log drawn from a planted model."""
    rng = np.random.default_rng(0)
    cardinalities = [5] * N_MOVIES
    prior, factors = planted_factors(cardinalities, DRAWN_RANK, rng)
    names = [f"m{movie:03}" for movie in range(1, N_MOVIES + 1)]
    schema = make_schema(names)
    nights = Deliveries(n_triples, n_nights, PER_USER).draw(prior, factors, schema.offsets, rng)
    return Log(schema, DRAWN_RANK, nights)


def make_schema(names: list[str]) -> Schema:
    """Movies rated from 1 to 5."""
    levels = tuple(map(str, range(1, 6)))
    return Schema(tuple(Variable(name, levels, tuple(map(float, levels))) for name in names))


def read_clock() -> float:
    """Processor seconds of this process and of its children that have ended; the server runs on."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class ReadBytes:
    """Bytes that this process has read: of sources, and of all else."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}{os.sep}"
        self._sources = 0
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(self._folder):
            # read whole, or at least in part: an upper bound
            self._sources += os.stat(arguments[0]).st_size

    def read(self) -> tuple[int, int]:
        """Return both, since the process began."""
        everything = int(Path("/proc/self/io").read_text().split()[1])
        return self._sources, max(0, everything - self._sources)


def list_sizes(store: Path) -> dict[Path, int]:
    """Files of a store and their sizes, bytes."""
    found = {}
    for folder, inner, names in os.walk(store):
        if Path(folder) == store:
            inner[:] = [name for name in inner if name not in APART]
        for name in names:
            path = Path(folder) / name
            found[path] = path.stat().st_size
    return found


@dataclass(frozen=True)
class Night:
    """What a run cost.

    Parameters
    ----------
    to_refit, whole
        Processor seconds up to and with the refit, and of the whole run.
    source, other
        Bytes read of sources, and of all else.
    written
        Bytes of new files in the store.
    outcome
        As the record of the run says.
    """

    to_refit: float
    whole: float
    source: int
    other: int
    written: int
    outcome: str


class Replay:
    """A pipeline in a folder, to which deliveries come.

    Parameters
    ----------
    folder
        Empty folder.
    log
        What is delivered.
    """

    def __init__(self, folder: Path, log: Log) -> None:
        self.folder, self._rank = folder, log.rank
        (folder / "log").mkdir()
        log.schema.save(folder / "schema.json")
        self.config = self.write_config("nights")
        self._bytes = ReadBytes(folder / "log")

    def write_config(self, name: str) -> Path:
        """Write a pipeline with a store of its own."""
        folder = self.folder / name
        folder.mkdir()
        text = CONFIG.format(
            log=self.folder / "log" / "*.csv",
            schema=self.folder / "schema.json",
            store=folder / "store",
            rank=self._rank,
        )
        (folder / "pipeline.toml").write_text(text)
        return folder / "pipeline.toml"

    def deliver(self, night: int, table: pa.Table) -> None:
        """Put a file into the source folder, last changed some nights ago."""
        path = self.folder / "log" / f"night-{night:03}.csv"
        pyarrow.csv.write_csv(table, path)
        then = time.time() - 86400 * (365 - night)
        os.utime(path, (then, then))

    def run(self, config: Path) -> Night:
        """Run a pipeline as ``pmf run`` does."""
        from pmflib_flows import etl
        from pmflib_tasks.stages import order

        store = Path(load_config(config).resolve("store"))
        before, read = list_sizes(store), self._bytes.read()
        at_refit = [0.0]

        def note(*arguments: Any, **options: Any) -> Any:
            at_refit[0] = at_refit[0] or read_clock()
            return evaluate(*arguments, **options)

        start = read_clock()
        outcome = None
        with mock.patch.object(order, "evaluate", note):
            try:
                etl.etl(str(config))
            except PmfError as error:
                outcome = f"{type(error).__name__}: {error}"
        end = read_clock()
        now = self._bytes.read()
        outcome = outcome or list_records(Store(store), load_config(config).name)[-1].outcome
        written = sum(size for path, size in list_sizes(store).items() if path not in before)
        return Night(
            (at_refit[0] or end) - start,
            end - start,
            now[0] - read[0],
            now[1] - read[1],
            written,
            outcome,
        )

    def recount_equals(self) -> bool:
        """Whether the counts of the last run are those of all deliveries, counted in a store of their own."""
        config = load_config(self.config)
        name = "recount"
        again = load_config(self.write_config(name))
        with start_workers(again.cluster) as address:
            recount = count.fn(again, ingest.fn(again, address), address)
        stores = [Store(each.resolve("store")) for each in (config, again)]
        last = list_records(stores[0], config.name)[-1].stages["counts"]
        paths = [
            store.locate(each) / "pairs"
            for store, each in zip(stores, (last, recount), strict=True)
        ]
        _, n_folds = load_shape(paths[1])
        try:
            for fold in range(n_folds):
                mine, theirs = (PairCounts.load_total(path, folds=[fold]) for path in paths)
                if mine.n_rows[0] != theirs.n_rows[0] or (mine.tables != theirs.tables).any():
                    return False
            return True
        finally:
            shutil.rmtree(self.folder / name)


def compare_models(night: Path, full: Path) -> str:
    """Sentence on how much likelier the test samples are under the model of a night than under that of a full run."""
    config, models = load_config(night), []
    for each in (night, full):
        store = Store(load_config(each).resolve("store"))
        stages = list_records(store, load_config(each).name)[-1].stages
        models.append(JointPMF.load(store.locate(stages["model"]) / "model"))
    # both have the same samples in these folds; the last store is that of the full run
    schema, folds = models[0].schema, config.fold_split.test
    test = StoredSamples.open(store, stages["dataset"], schema, folds)
    first, second = [[(model.prior, model.factors)] for model in models]
    gain, error = test.compare(first, second)
    return (
        f"gain of its model over the full run's {gain:+.5f} +- {error:.5f} nats a held-out sample"
    )


HEADER = (
    "night",
    "rows",
    "to refit, s",
    "whole run, s",
    "source read, MB",
    "other read, MB",
    "written, MB",
    "outcome",
    "counts equal a recount",
)


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_night(name: object, n_rows: object, night: Night, equal: str) -> None:
    """Print what a night cost."""
    print_row(
        name,
        n_rows,
        f"{night.to_refit:.2f}",
        f"{night.whole:.2f}",
        *(f"{size / 1e6:.2f}" for size in (night.source, night.other, night.written)),
        night.outcome,
        equal,
    )


def main() -> None:
    """Deliver a log night by night, and print what every night cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, nargs="?", help="a MovieLens folder")
    parser.add_argument("--triples", type=float, default=2e7, help="size of the drawn log")
    parser.add_argument("--nights", type=int, default=30, help="number of deliveries")
    parser.add_argument("--stop", type=int, help="last night to run; by default all")
    parser.add_argument("--check-every", type=int, default=1, help="nights between recounts")
    parser.add_argument("--full", type=int, nargs="*", help="nights with a full run too")
    parser.add_argument("--folder", type=Path, help="for all files; by default a temporary one")
    parser.add_argument("--json", type=Path, help="file for the figures, besides the table")
    options = parser.parse_args()
    log = (
        open_movielens(options.path, options.nights)
        if options.path
        else open_drawn(int(options.triples), options.nights)
    )
    last = options.stop or options.nights
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name).resolve()
        figures = replay(Replay(folder, log), log, last, options.check_every, options.full)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


def replay(
    pipeline: Replay, log: Log, last: int, check_every: int, full_nights: list[int] | None
) -> list[dict[str, Any]]:
    """Run all nights, print their table and what follows from it; return the figures."""
    figures: list[dict[str, Any]] = []
    ratios = []

    def note(name: object, n_rows: object, night: Night, equal: str = "") -> None:
        print_night(name, n_rows, night, equal)
        figures.append({"night": name, "rows": n_rows, "equal": equal, **vars(night)})

    print_row(*HEADER)
    print_row(*["---"] * len(HEADER))
    nights = []
    for number, table in zip(range(1, last + 1), log.nights, strict=False):
        pipeline.deliver(number, table)
        nights.append(pipeline.run(pipeline.config))
        is_checked = number % check_every == 0 or number == last
        equal = ("yes" if pipeline.recount_equals() else "NO") if is_checked else ""
        note(number, table.num_rows, nights[-1], equal)
        if number in (full_nights or [last]):
            config = pipeline.write_config(f"full-{number}")
            full = pipeline.run(config)
            gain = compare_models(pipeline.config, config)
            shutil.rmtree(config.parent)
            note(f"{number}, a full run in a fresh store", "all", full)
            ratios.append(
                f"night {number}: {nights[-1].to_refit / full.to_refit:.1%} of a full run's processor time up to and "
                f"with the refit, {nights[-1].written / full.written:.1%} of its bytes written; {gain}"
            )
    note("nothing new", 0, pipeline.run(pipeline.config))
    median: dict[str, Callable[[Night], float]] = {
        "s to refit": lambda night: night.to_refit,
        "s in all": lambda night: night.whole,
        "MB of sources": lambda night: night.source / 1e6,
        "MB written": lambda night: night.written / 1e6,
    }
    said = (f"{statistics.median(map(of, nights)):.2f} {unit}" for unit, of in median.items())
    print(f"\nmedian night: {', '.join(said)}")
    print("\n".join(ratios))
    return figures


if __name__ == "__main__":
    main()
