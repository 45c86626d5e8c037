"""Public functions next to their kernels: arguments in and answer out, against the kernel on arrays that are ready.

    python -m benchmarks.public [--json public.json]  # a minute and a half
    python -m benchmarks.public --short  # half a minute; fails below half a target

Each function has a process of its own, with bytecode and compiled kernels on disk: its first call, then calls of the
function and of its kernel in turn, process CPU time, one thread, medians. "Ready" is checked, in folds, hidden and
encoded, with memory for the result. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

SIZES = [(400_000, 30), (20_000, 80)]
"""Rows and variables, or labels and workers; five levels or classes."""
N_LEVELS, RANK, N_PASSES, N_FOLDS = 5, 20, 20, 16
LEAST_SPEED, MOST_EXTRA = 0.6, 0.4
"""Share of the kernel's speed from the second call on, and seconds that the first call may take longer."""
GOOD_SHARE = 0.5
"""Share of a target below which a short run fails."""
LABELS_PER_TASK = 10

Case = tuple[Callable[[], Any], Callable[[], Any]]
"""A public function and its kernel, both ready to be called."""


@dataclass(frozen=True)
class Measured:
    """CPU time of one function at one size, milliseconds: medians, and of the first call."""

    name: str
    n_rows: int
    n_columns: int
    first: float
    public: float
    kernel: float

    @property
    def speed(self) -> float:
        """Share of the kernel's speed."""
        return self.kernel / self.public

    @property
    def extra(self) -> float:
        """Seconds that the first call takes longer."""
        return (self.first - self.public) / 1e3

    def find_failures(self, share: float) -> list[str]:
        """What is below a share of its target."""
        name = f"{self.name}, {self.n_rows} x {self.n_columns}"
        found = []
        if self.speed < share * LEAST_SPEED:
            found.append(f"{name}: {self.speed:.2f} of the kernel's speed")
        if self.extra > MOST_EXTRA / share:
            found.append(f"{name}: the first call takes {self.extra:.2f} s longer")
        return found


def draw_codes(n_rows: int, n_columns: int) -> np.ndarray:
    """Complete codes, int8."""
    return np.random.default_rng(0).integers(0, N_LEVELS, (n_rows, n_columns), dtype=np.int8)


def prepare_count_pairs(n_rows: int, n_columns: int) -> Case:
    """All folds, against the bit planes of the rows of each fold, which lie together."""
    import pmflib as pmf
    from pmflib.base.hashing import assign_folds

    codes, schema = (
        draw_codes(n_rows, n_columns),
        pmf.Schema.from_cardinalities([N_LEVELS] * n_columns),
    )
    folds = assign_folds(np.arange(n_rows), N_FOLDS)
    parts = [codes[folds == fold] for fold in range(N_FOLDS)]
    tables = np.zeros((N_FOLDS, schema.n_levels, schema.n_levels), np.int64)

    def kernel() -> None:
        from pmflib.counts.kernels.planes import add_planes

        for part, table in zip(parts, tables, strict=True):
            add_planes(part, schema.offsets, table)

    return lambda: pmf.count_pairs(codes, schema, n_folds=N_FOLDS), kernel


def draw_model(n_columns: int) -> Any:
    """A model with random factors."""
    import pmflib as pmf

    schema = pmf.Schema.from_cardinalities([N_LEVELS] * n_columns)
    factors = np.random.default_rng(1).dirichlet(np.ones(N_LEVELS), (n_columns, RANK))
    stacked = factors.transpose(0, 2, 1).reshape(-1, RANK)
    return pmf.JointPMF(np.full(RANK, 1 / RANK), stacked, schema)


def prepare_fit_em(n_rows: int, n_columns: int) -> Case:
    """A fit of so many passes, against as many E-steps."""
    import pmflib as pmf
    from pmflib.base.blocks import DenseBlock
    from pmflib.model.sufficient_statistics import em_statistics, take_logs

    codes, model = draw_codes(n_rows, n_columns), draw_model(n_columns)
    block, logs = DenseBlock(codes), take_logs(model.prior, model.factors)

    def kernel() -> None:
        for _ in range(N_PASSES):
            em_statistics(block, model.schema.offsets, *logs)

    return lambda: pmf.fit_em(codes, model, max_passes=N_PASSES, tol=0.0), kernel


def prepare_log_prob(n_rows: int, n_columns: int) -> Case:
    """Every row's log-probability, against the row kernel."""
    from pmflib.base.blocks import DenseBlock
    from pmflib.model.row_tables import score_block
    from pmflib.model.sufficient_statistics import take_logs

    codes, model = draw_codes(n_rows, n_columns), draw_model(n_columns)
    block, logs = DenseBlock(codes), take_logs(model.prior, model.factors)
    scores, nothing = np.empty(n_rows), np.empty((n_rows, 0))
    return (
        lambda: model.log_prob(codes),
        lambda: score_block(block, model.schema.offsets, *logs, scores, nothing),
    )


def prepare_predict_proba(n_rows: int, n_columns: int) -> Case:
    """Probabilities of the first variable, against the row kernel and the product with the factor."""
    from pmflib.base.blocks import DenseBlock
    from pmflib.model.row_tables import score_block
    from pmflib.model.sufficient_statistics import take_logs

    codes, model = draw_codes(n_rows, n_columns), draw_model(n_columns)
    block = DenseBlock(codes).hide(0, model.schema.offsets)
    logs, factor = take_logs(model.prior, model.factors), model.factor(0).T
    scores, posteriors = np.empty(n_rows), np.empty((n_rows, RANK))
    found = np.empty((n_rows, N_LEVELS))

    def kernel() -> None:
        score_block(block, model.schema.offsets, *logs, scores, posteriors)
        np.matmul(posteriors, factor, out=found)

    return lambda: model.predict_proba(codes, 0), kernel


def prepare_aggregate(n_labels: int, n_workers: int) -> Case:
    """A label log in random order, against the choice of its model and the passes over its blocks."""
    import pyarrow as pa

    from benchmarks.em.passes import draw_labels
    from pmflib.apps import crowd
    from pmflib.apps.crowd.aggregation import fit_crowd_model
    from pmflib.apps.crowd.dawid_skene import plan_passes
    from pmflib.apps.crowd.e_step import LabelsInMemory
    from pmflib.apps.crowd.methods import LABEL_LIMITS
    from pmflib.apps.crowd.model_choice import choose_model

    workers, codes = draw_labels(n_labels, n_workers, N_LEVELS)
    order = np.random.default_rng(0).permutation(n_labels)
    tasks = np.repeat(np.arange(len(codes)), LABELS_PER_TASK)
    columns = {"task": tasks, "worker": workers.ravel(), "label": codes[codes >= 0]}
    table = pa.table({name: column[order] for name, column in columns.items()})
    log, plan = (
        crowd.read_labels(table),
        plan_passes("auto", LABEL_LIMITS.max_passes, LABEL_LIMITS.tol),
    )
    most, tol = plan.max_passes, plan.tol

    def kernel() -> None:
        source = LabelsInMemory.from_log(log)
        choice = choose_model(source, plan.annotator_model, plan.limits)
        fit_crowd_model(log, choice.annotator_model, max_passes=most, tol=tol)

    return lambda: crowd.aggregate(table), kernel


PREPARE: dict[str, Callable[[int, int], Case]] = {
    "count_pairs": prepare_count_pairs,
    "fit_em": prepare_fit_em,
    "JointPMF.log_prob": prepare_log_prob,
    "JointPMF.predict_proba": prepare_predict_proba,
    "crowd.aggregate": prepare_aggregate,
}


def measure(name: str, n_rows: int, n_columns: int, rounds: int) -> Measured:
    """Measure one function in this process, which has called nothing yet."""

    def take_time(call: Callable[[], Any]) -> float:
        began = time.process_time()
        call()
        return (time.process_time() - began) * 1e3

    public, kernel = PREPARE[name](n_rows, n_columns)
    first = take_time(public)
    take_time(kernel)
    times = [(take_time(public), take_time(kernel)) for _ in range(rounds)]
    own, kernels = zip(*times, strict=True)
    return Measured(
        name, n_rows, n_columns, first, statistics.median(own), statistics.median(kernels)
    )


def run_fresh(name: str, size: tuple[int, int], rounds: int) -> Measured:
    """Measure one function in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.public",
        "--one",
        name,
        *map(str, size),
        str(rounds),
    ]
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    found = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | threads
    )
    return Measured(**json.loads(found.stdout.splitlines()[-1]))


def main() -> int:
    """Measure everything; 1 if a short run misses half a target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="compare with half targets")
    parser.add_argument("--json", type=Path, help="where to save the times")
    parser.add_argument(
        "--one", nargs=4, metavar=("NAME", "ROWS", "COLUMNS", "ROUNDS"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.one:
        name, *numbers = options.one
        print(json.dumps(asdict(measure(name, *map(int, numbers)))))
        return 0
    results = []
    # Python writes bytecode when it first imports a module, unless an environment forbids it
    compileall.compile_dir(Path(__file__).parents[1] / "pmflib", quiet=1)
    # a process that has little to count leaves them to the background, and ends before they are compiled
    from pmflib.counts.kernels.readiness import fold_planes_work, planes_work

    assert planes_work()
    assert fold_planes_work()
    print(
        "| function | size | first call, s more | later calls, ms | kernel, ms | share of the kernel's speed |"
    )
    print("|---|---|---|---|---|---|")
    for name in PREPARE:
        # code that is not on disk yet is compiled by a process that is not measured
        run_fresh(name, SIZES[0], 1)
        for size in SIZES:
            found = run_fresh(name, size, 5 if options.short else 21)
            results.append(found)
            print(
                f"| `{name}` | {size[0]:,} x {size[1]} | {found.extra:.2f} | {found.public:.1f} | {found.kernel:.1f} | "
                f"{found.speed:.2f} |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in results], indent=1))
    missed = [
        line
        for each in results
        for line in each.find_failures(GOOD_SHARE if options.short else 1.0)
    ]
    print(
        *(f"misses {'half of ' if options.short else ''}its target: {line}" for line in missed),
        sep="\n",
    )
    return int(options.short and bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
