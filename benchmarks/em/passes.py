"""EM passes and scoring next to other implementations, one thread, process CPU time, all timed alternately.

    python -m benchmarks.em.passes [--plants plants.train.data.gz] [--json em.json] [--short]

prints a line per measurement: nanoseconds per row, and how many times as long the others take, next to the ratio
aimed at. With --short (half a minute without StepMix and the like,
the least of several rounds instead of the median) the exit status is 1 if a ratio is below half of what is aimed at.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pmflib as pmf
from benchmarks.em import peers
from pmflib.base.blocks import SPARSE_BELOW, Block, DenseBlock
from pmflib.base.compiled.lanes import make_lanes
from pmflib.base.defaults import Limits
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.blocks import merge_duplicates
from pmflib.em.family import run_em
from pmflib.em.latent_classes import LatentClasses
from pmflib.model.row_tables import RowTables, allocate, choose_panels, iterate_lists
from pmflib.model.sufficient_statistics import em_statistics, m_step, take_logs

OURS, LIMIT = "pmflib", "limit"
TARGETS: dict[str, dict[str, float]] = {
    "a": {"numpy": 15, "scipy": 8, "stepmix": 25, "pomegranate": 100},
    "b": {"numpy": 10, "scipy": 8, "stepmix": 25, "pomegranate": 100},
    "b p=0.1": {"scipy": 6, "stepmix": 90},
    "c": {"numpy": 5, "scipy": 5, "stepmix": 9, "pomegranate": 100},
    "dawid-skene": {"crowd-kit": 80, "scipy": 6},
    "plants": {"numpy": 2.5, "stepmix": 7},
}
LABELS_PER_TASK = 10
LIMIT_ROWS = 16
"""Rows of a table that stays in the nearest cache, next to another one, up to 64 states."""
MAX_LATE = 1.15
PLANTS_MERGED, PLANTS_ALL = 2.5, 5.0
"""Milliseconds of a pass at rank 50."""
FEWER_PASSES = 1.7

CASES = {
    "a": (50_000, 15, 10, 10, 1.0),
    "b": (50_000, 30, 5, 20, 1.0),
    "b p=0.1": (50_000, 30, 5, 20, 0.1),
    "c": (10_000, 100, 5, 50, 1.0),
}
"""Rows, variables, levels, rank, share observed."""


@dataclass
class Report:
    """What was measured, and what fell short of half its target."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, **more: Any) -> None:
        """Print and keep a figure."""
        self.figures.append({"name": name, "value": float(value), "unit": unit, **more})
        print(f"{name:44} {value:10.4g} {unit}", flush=True)

    def compare(
        self, name: str, value: float, target: float, *, at_most: bool = False, gated: bool = True
    ) -> None:
        """Print and keep a figure that has a target."""
        met = value <= target if at_most else value >= target
        failed = value > 2 * target if at_most else value < target / 2
        sign = "<=" if at_most else ">="
        self.figures.append(
            {"name": name, "value": float(value), "target": target, "met": bool(met)}
        )
        print(
            f"{name:44} {value:10.4g} {sign} {target:g}{'' if met else '   short of it'}",
            flush=True,
        )
        if failed and gated:
            self.failures.append(name)


def time_alternately(
    timers: Mapping[str, peers.Timer],
    repeats: int,
    pick: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Medians over rounds in which every timer runs once; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(repeats + 1):
        for name, timer in timers.items():
            seconds = timer()
            if number:
                times[name].append(seconds)
    return {name: pick(values) for name, values in times.items()}


def draw_codes(n_rows: int, n: int, size: int, rank: int, observed: float) -> np.ndarray:
    """Samples of a random model."""
    rng = np.random.default_rng(0)
    model = pmf.JointPMF(
        rng.dirichlet(np.full(rank, 5.0)),
        np.vstack([rng.dirichlet(np.full(size, 0.7), rank).T for _ in range(n)]),
        pmf.Schema.from_cardinalities([size] * n),
    )
    codes = np.array(model.sample(n_rows, 1))
    codes[rng.random(codes.shape) >= observed] = -1
    return codes


def draw_start(offsets: np.ndarray, rank: int, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Random model to start from."""
    rng = np.random.default_rng(seed)
    factors = [rng.dirichlet(np.full(size, 3.0), rank).T for size in np.diff(offsets)]
    return np.full(rank, 1 / rank), np.vstack(factors)


def go_on(block: Block, offsets: np.ndarray, model: Any, passes: int) -> Any:
    """Model after some passes of EM."""
    for _ in range(passes):
        model = make_pass(block, offsets, model)
    return model


def make_pass(block: Block, offsets: np.ndarray, model: Any) -> Any:
    """One pass of EM, both steps."""
    statistics_ = em_statistics(block, offsets, *take_logs(*model))
    return m_step(statistics_, offsets, PseudoCounts(np.zeros(offsets[-1])), *model)


def run_cases(report: Report, repeats: int, short: bool) -> None:
    """Settings a, b, b with a tenth observed, c: at an initial and at a late iterate."""
    absent: set[str] = set()
    for name in CASES:
        codes, offsets, block, models = prepare_case(name)
        matrix = peers.make_matrix(codes, offsets)
        for iterate, model in models.items():
            if short and iterate == "late":
                continue
            makers = {} if short else list_peers(name, iterate, codes, offsets, model)
            makers["numpy"] = partial(peers.time_numpy, matrix, offsets, *model)
            makers["scipy"] = partial(peers.time_scipy, matrix, offsets, *model)
            makers[OURS] = partial(peers.timed, partial(make_pass, block, offsets, model))
            makers[LIMIT] = partial(time_limit, block, offsets, model)
            timers, missing = peers.collect(makers)
            absent.update(missing)
            # a loaded machine only adds to times
            times = time_alternately(timers, repeats, min if short else statistics.median)
            mine, limit = times.pop(OURS), times.pop(LIMIT)
            report.add(f"{name}, {iterate}", mine / len(codes) * 1e9, "ns per row")
            report.add(f"{name}, {iterate}: share of the limit", limit / mine, "")
            for peer, seconds in times.items():
                label = f"{name}, {iterate}: times {peer}"
                if peer in TARGETS[name]:
                    report.compare(label, seconds / mine, TARGETS[name][peer])
                else:
                    report.add(label, seconds / mine, "x")
        both = {
            key: peers.timed(partial(make_pass, block, offsets, model))
            for key, model in models.items()
        }
        medians = time_alternately(both, 2 * repeats + 1)
        label = f"{name}, late / initial"
        report.compare(label, medians["late"] / medians["initial"], MAX_LATE, at_most=True)
    print(*sorted(absent), sep="\n")


def time_limit(block: Block, offsets: np.ndarray, model: Any) -> peers.Timer:
    """Time of the loads, products, sums and stores of a pass alone: long lists of table rows in the nearest cache."""
    import numba

    tables = RowTables(block, offsets, *take_logs(*model))
    width, n_vectors, n_panels = choose_panels(model[0].size)
    lanes, padded = make_lanes(width, n_vectors), tables.padded
    lists = iterate_lists(block, offsets, tables.layout, tables.numbering)
    n_listed = int(sum((stops - starts).sum() for _, (_, starts, stops) in lists))
    rows = np.arange(LIMIT_ROWS, dtype=np.int32)
    starts, stops = np.zeros(1, np.int64), np.full(1, LIMIT_ROWS)
    table, mass, one, sums, ones, states = allocate(
        LIMIT_ROWS * padded, LIMIT_ROWS * padded, padded, 8, 1, padded
    )
    table[:] = one[:] = ones[:] = 1.0
    multiply, spread = lanes.multiply, lanes.spread

    @numba.njit
    def move(n_rounds, table, rows, starts, stops, one, products, sums, ones, mass, states):  # type: ignore[no-untyped-def]
        for _ in range(n_rounds):
            for panel in range(n_panels):
                at = panel * width * n_vectors
                multiply(table, rows, 0, rows.size, padded, at, one, at, products, at, 0.0, sums, 0)
                spread(mass, rows, starts, stops, 0, 1, padded, at, products, ones, states)

    arrays = (table, rows, starts, stops, one, np.zeros(padded), sums, ones, mass, states)
    return peers.timed(lambda: move(n_listed // LIMIT_ROWS, *arrays))


def prepare_case(name: str) -> tuple[np.ndarray, np.ndarray, Block, dict[str, Any]]:
    """Codes, offsets, the block that the pipeline would keep, and two iterates."""
    n_rows, n, size, rank, observed = CASES[name]
    codes = draw_codes(n_rows, n, size, rank, observed)
    offsets = np.arange(0, n * size + 1, size)
    dense = DenseBlock(codes)
    block: Block = dense if observed > SPARSE_BELOW else dense.to_sparse(offsets)
    initial = draw_start(offsets, rank)
    return codes, offsets, block, {"initial": initial, "late": go_on(block, offsets, initial, 40)}


def list_peers(
    name: str, iterate: str, codes: np.ndarray, offsets: np.ndarray, model: Any
) -> dict[str, Callable[[], peers.Timer]]:
    """Peers with an EM loop of their own, most on some of the rows: their initial or their late passes."""
    _, _, size, rank, observed = CASES[name]
    n_rows = 5000 if rank < 50 else 1000
    initial = iterate == "initial"
    passes = (1, 5) if initial else (15, 25)
    makers: dict[str, Callable[[], peers.Timer]] = {
        "stepmix": partial(peers.time_stepmix, codes, rank, passes, n_rows)
    }
    if initial and observed == 1:
        makers["mixle"] = partial(peers.time_mixle, codes, offsets, *model)
        makers["pomegranate"] = partial(
            peers.time_pomegranate, codes, size, rank, n_rows // (2 if rank < 50 else 5)
        )
    return makers


def run_labels(report: Report, repeats: int, short: bool) -> None:
    """Dawid-Skene on label logs: workers are variables, the truth is the latent state."""
    for n_labels, n_workers, size in ((300_000, 30, 5), (200_000, 200, 4)):
        workers, codes = draw_labels(n_labels, n_workers, size)
        offsets = np.arange(0, n_workers * size + 1, size)
        block = DenseBlock(codes).to_sparse(offsets)
        confusion = 0.4 / (size - 1) + (0.6 - 0.4 / (size - 1)) * np.eye(size)
        model = (np.full(size, 1 / size), np.tile(confusion, (n_workers, 1)))
        log = np.repeat(np.arange(len(codes)), LABELS_PER_TASK), workers.ravel(), codes[codes >= 0]
        matrix = peers.make_matrix(codes, offsets)
        timers, absent = peers.collect(
            {
                OURS: partial(peers.timed, partial(make_pass, block, offsets, model)),
                "scipy": partial(peers.time_scipy, matrix, offsets, *model),
                "crowd-kit": partial(peers.time_crowdkit, *log),
                LIMIT: partial(time_limit, block, offsets, model),
            }
        )
        times = time_alternately(timers, repeats, min if short else statistics.median)
        name = f"dawid-skene, {n_workers} workers, {size} labels"
        report.add(name, times[OURS] / n_labels * 1e9, "ns per label")
        report.add(f"{name}: share of the limit", times[LIMIT] / times[OURS], "")
        for peer, target in TARGETS["dawid-skene"].items():
            if peer in times:
                # the products of scipy on its own label logs are near enough to half the target to fail by chance
                ratio, gated = times[peer] / times[OURS], peer != "scipy"
                report.compare(f"{name}: times {peer}", ratio, target, gated=gated)
        print(*absent, sep="\n", end="\n" if absent else "")


def draw_labels(n_labels: int, n_workers: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Workers of each task, in increasing order, and their labels as codes of shape (n_tasks, n_workers)."""
    rng = np.random.default_rng(0)
    n_tasks = n_labels // LABELS_PER_TASK
    truth = rng.integers(0, size, (n_tasks, 1))
    order = np.argsort(rng.random((n_tasks, n_workers)), axis=1)
    workers = np.sort(order[:, :LABELS_PER_TASK], axis=1)
    right = rng.random(workers.shape) < rng.uniform(0.4, 0.9, n_workers)[workers]
    labels = np.where(right, truth, rng.integers(0, size, workers.shape)).astype(np.int8)
    codes = np.full((n_tasks, n_workers), -1, np.int8)
    np.put_along_axis(codes, workers, labels, axis=1)
    return workers, codes


def run_plants(report: Report, path: Path, repeats: int, ranks: Sequence[int]) -> None:
    """Real data: binary, complete, half of the rows are repeated."""
    with gzip.open(path) as file:
        codes = np.loadtxt(file, delimiter=",", dtype=np.int8)
    offsets = np.arange(0, 2 * codes.shape[1] + 1, 2)
    block = DenseBlock(codes)
    merged = merge_duplicates(block)
    for rank in ranks:
        model = go_on(merged, offsets, draw_start(offsets, rank), 30)
        makers: dict[str, Callable[[], peers.Timer]] = {
            "merged": partial(peers.timed, partial(make_pass, merged, offsets, model)),
            "all": partial(peers.timed, partial(make_pass, block, offsets, model)),
            "numpy": partial(peers.time_numpy, peers.make_matrix(codes, offsets), offsets, *model),
        }
        if rank == 50:
            makers["stepmix"] = partial(peers.time_stepmix, codes, 50, (2, 12), len(codes))
        timers, absent = peers.collect(makers)
        times = time_alternately(timers, repeats)
        name = f"plants, rank {rank}"
        if rank == 50:
            report.compare(
                f"{name}, merged rows, ms", times["merged"] * 1e3, PLANTS_MERGED, at_most=True
            )
            report.compare(f"{name}, all rows, ms", times["all"] * 1e3, PLANTS_ALL, at_most=True)
        else:
            report.add(f"{name}, merged rows", times["merged"] * 1e3, "ms")
            report.add(f"{name}, all rows", times["all"] * 1e3, "ms")
        for peer, target in TARGETS["plants"].items():
            if peer in times:
                report.compare(
                    f"{name}, all rows: times {peer}", times[peer] / times["all"], target
                )
        print(*absent, sep="\n", end="\n" if absent else "")


def run_scoring(report: Report, repeats: int) -> None:
    """Rows scored per second by a model of 30 variables, rank 20."""
    codes = draw_codes(200_000, 30, 5, 20, 1.0)
    schema = pmf.Schema.from_cardinalities([5] * 30)
    model = pmf.JointPMF(*draw_start(schema.offsets, 20), schema)
    scores: dict[str, Callable[[], Any]] = {
        "log_prob": lambda: model.log_prob(codes),
        "posterior": lambda: model.posterior(codes),
        "predict_proba": lambda: model.predict_proba(codes, 0),
    }
    times = time_alternately({name: peers.timed(score) for name, score in scores.items()}, repeats)
    for name, seconds in times.items():
        report.add(f"scoring, {name}", len(codes) / seconds / 1e6, "million rows per s")


def run_acceleration(report: Report, n_starts: int) -> None:
    """Passes to within 1e-6 of the optimum that plain and accelerated EM share."""
    ratios, worse = [], 0
    for n, size, rank, observed in (
        (15, 10, 10, 1.0),
        (15, 10, 10, 0.5),
        (30, 5, 20, 0.5),
        (8, 4, 4, 1.0),
    ):
        codes = draw_codes(4000, n, size, rank, observed)
        offsets = np.arange(0, n * size + 1, size)
        block = merge_duplicates(DenseBlock(codes))

        source = BlocksInMemory([block], offsets)
        shape = PseudoCounts(np.full(offsets[-1], 0.5))
        for seed in range(n_starts):
            losses = []
            for accelerate in (False, True):
                family = LatentClasses(offsets, shape, accelerate=accelerate)
                start = family.begin([draw_start(offsets, rank, seed)])
                state = run_em(family, source, start, limits=Limits(3000, 1e-9))
                losses.append(np.array(state.loss_history))
            scale = abs(losses[0][-1])
            # nothing can be said of starts that end in different optima
            if abs(losses[0][-1] - losses[1][-1]) < 2e-6 * scale:
                near = max(each[-1] for each in losses) + 1e-6 * scale
                plain, fast = (int(np.argmax(each <= near)) + 1 for each in losses)
                ratios.append(plain / fast)
            worse += losses[1][-1] > losses[0][-1] + 2e-6 * scale
    report.add("acceleration: starts with the same optimum", len(ratios), f"of {4 * n_starts}")
    report.add("acceleration: starts with a worse optimum", worse, f"of {4 * n_starts}")
    if ratios:
        report.compare(
            "acceleration: times fewer passes, median", statistics.median(ratios), FEWER_PASSES
        )


FIRST_CALL = """
import time
import numpy as np
from pmflib.base.blocks import DenseBlock
from pmflib.model.sufficient_statistics import em_statistics, take_logs
codes = np.zeros((1000, 30), np.int8)
model = take_logs(np.full(20, 0.05), np.full((150, 20), 0.2))
began = time.process_time()
em_statistics(DenseBlock(codes), np.arange(0, 151, 5), *model)
print(time.process_time() - began)
"""


def run_first_call(report: Report) -> None:
    """What a new process pays before its first block: compilation."""
    output = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], check=True, capture_output=True, text=True
    )
    report.add("first call in a new process", float(output.stdout), "s of CPU")


def main() -> int:
    """Measure everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plants", type=Path, help="training rows of plants, gzipped CSV")
    parser.add_argument("--json", type=Path, help="where to save the figures")
    parser.add_argument(
        "--short", action="store_true", help="about a minute; compare with half targets"
    )
    options = parser.parse_args()
    repeats = 5
    report = Report()
    began = time.time()
    run_first_call(report)
    run_cases(report, repeats, options.short)
    run_labels(report, 3 * repeats, options.short)
    if options.plants:
        run_plants(report, options.plants, repeats, (50,) if options.short else (50, 400))
    else:
        print("plants skipped: give --plants")
    run_scoring(report, repeats)
    run_acceleration(report, 1 if options.short else 4)
    report.add("all of this", time.time() - began, "s")
    if options.json:
        options.json.write_text(json.dumps(report.figures, indent=1))
    if options.short and report.failures:
        print("below half of the target:", *report.failures, sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
