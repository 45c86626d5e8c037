"""Tables I to V of the joint-PMF papers: error of the factors on synthetic data, all methods on the same samples.

    python benchmarks/joint_pmf.py --table 1 --trials 5 --samples 1000,10000
    python benchmarks/joint_pmf.py --table 4 --trials 3 --samples 10000 --methods spa,opt,auto+em,oracle

prints, per cell and method: the published value, the error by the published definition (Tables I to III carry a slip of
about 0.021) and the plain mean squared error, mean and median, with the worst ratio to the oracle in a trial. The
oracle is EM run to convergence from the true model on the same samples. `mirror` is CNMF-OPT as published, slow;
`opt` reaches its loss by closed-form updates. `auto+em` is `fit_em` as it comes: what it takes is chosen on a fifth of
the samples, held out, then all are fitted.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

import pmflib as pmf
from pmflib.datasets import published_factors
from pmflib.fitting import Method
from pmflib.metrics import factor_mse, published_factor_mse
from pmflib.sampling import sample_codes

N_LEVELS = 10
PUBLISHED_NAMES = {
    "spa": "CNMF-SPA",
    "mirror": "CNMF-OPT",
    "opt": "CNMF-OPT",
    "spa+em": "CNMF-SPA-EM",
    "random+em": "RAND-EM",
}
SLIPPED_TABLES = (1, 2, 3)


@dataclass(frozen=True)
class Cell:
    """One column of a published table."""

    table: int
    n_samples: int
    observed: float

    @property
    def sizes(self) -> tuple[int, int]:
        """Variables and rank."""
        return (5, 5) if self.table <= 3 else (15, 10)

    @property
    def separability(self) -> float | None:
        """The published label of the generator."""
        return {1: 0.1, 2: 0.3, 3: 0.1}.get(self.table)

    @property
    def column(self) -> str:
        """How the reference file names the column."""
        if self.table == 3:
            return f"p={self.observed:g}"
        return f"S=1e{round(np.log10(self.n_samples))}"


@dataclass
class Scores:
    """Errors of one method in one cell, a number per trial."""

    plain: list[float] = field(default_factory=list)
    slipped: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """Samples of one model, and the model."""

    codes: np.ndarray
    counts: pmf.PairCounts
    truth: pmf.JointPMF


def list_cells(table: int, samples: list[int]) -> list[Cell]:
    """Columns of a table; Table III varies the share of observed entries instead of the samples."""
    if table == 3:
        return [Cell(3, 100_000, observed) for observed in (0.1, 0.05, 0.01, 0.005)]
    return [Cell(table, n_samples, 0.2 if table == 5 else 0.5) for n_samples in samples]


def draw_trial(cell: Cell, seed: int) -> Trial:
    """Draw a model by the released generator, and samples of it."""
    rng = np.random.default_rng([cell.table, cell.n_samples, round(cell.observed * 1000), seed])
    n_variables, rank = cell.sizes
    prior, factors = published_factors(n_variables, N_LEVELS, rank, rng, cell.separability)
    schema = pmf.Schema.from_cardinalities([N_LEVELS] * n_variables)
    codes = sample_codes(
        prior, factors, schema.offsets, cell.n_samples, rng, observed=cell.observed
    )
    truth = pmf.JointPMF(prior, factors, schema)
    return Trial(codes, pmf.count_pairs(codes, schema), truth)


def fit_method(method: str, trial: Trial) -> pmf.JointPMF:
    """Fit the samples of a trial."""
    if method == "oracle":
        return refine(trial.codes, trial.truth, smoothing=0.0)
    start, _, refined = method.partition("+")
    if method == "auto+em":
        return pmf.fit_em(trial.codes, rank=trial.truth.rank, schema=trial.truth.schema).model
    model = pmf.fit(trial.counts, trial.truth.rank, method=cast(Method, start)).model
    if not refined:
        return model
    # as published: nothing is smoothed, nothing held out
    return refine(trial.codes, open_model(model), smoothing=0.0)


def refine(codes: np.ndarray, start: pmf.JointPMF, *, smoothing: float) -> pmf.JointPMF:
    """EM to convergence."""
    return pmf.fit_em(codes, start, smoothing=smoothing, max_passes=MAX_PASSES, tol=1e-7).model


def open_model(model: pmf.JointPMF) -> pmf.JointPMF:
    """Rule nothing out: EM never leaves a zero."""
    sizes = model.schema.cardinalities
    flat = np.repeat(1 / sizes, sizes)[:, None]
    prior = 0.99 * model.prior + 0.01 / model.rank
    return pmf.JointPMF(prior, 0.99 * model.factors + 0.01 * flat, model.schema)


def run_cell(cell: Cell, methods: list[str], n_trials: int) -> dict[str, Scores]:
    """Fit all methods to the same samples, trial by trial."""
    scores = {method: Scores() for method in methods}
    for seed in range(n_trials):
        trial = draw_trial(cell, seed)
        truth = trial.truth.prior, trial.truth.factors
        for method in methods:
            began = time.process_time()
            with warnings.catch_warnings():
                # the published limits of iterations belong to the methods
                warnings.simplefilter("ignore", pmf.ConvergenceWarning)
                model = fit_method(method, trial)
            mine = scores[method]
            mine.seconds.append(time.process_time() - began)
            mine.plain.append(factor_mse(model.prior, model.factors, *truth, cell.sizes[0]))
            mine.slipped.append(
                published_factor_mse(model.prior, model.factors, *truth, model.schema.offsets)
            )
    return scores


def read_published(path: Path, cell: Cell) -> dict[str, float]:
    """Published errors of a cell by the name of the method."""
    with path.open(newline="") as file:
        return {
            row["algorithm"]: float(row["value"])
            for row in csv.DictReader(file)
            if row["table"] == f"jp-{cell.table}"
            and row["metric"] == "MSE"
            and cell.column in row["setting"].split()
        }


def print_cell(cell: Cell, scores: dict[str, Scores], published: dict[str, float]) -> None:
    """Print a table of one cell."""
    print(f"\nTable {cell.table}, S={cell.n_samples}, p={cell.observed:g}")
    print(
        f"{'method':<12}{'published':>10}{'as defined':>11}{'plain mean':>11}{'median':>9}"
        f"{'/oracle':>9}{'worst':>7}{'CPU s':>8}"
    )
    oracle = scores["oracle"].plain if "oracle" in scores else None
    for method, mine in scores.items():
        value = published.get(PUBLISHED_NAMES.get(method, ""))
        defined = mine.slipped if cell.table in SLIPPED_TABLES else mine.plain
        ratios = [e / o for e, o in zip(mine.plain, oracle, strict=True)] if oracle else []
        mean = statistics.mean(mine.plain)
        print(
            f"{method:<12}{'' if value is None else f'{value:.4f}':>10}{statistics.mean(defined):>11.4f}"
            f"{mean:>11.4f}{statistics.median(mine.plain):>9.4f}"
            + (f"{mean / statistics.mean(oracle):>9.2f}{max(ratios):>7.2f}" if oracle else " " * 16)
            + f"{statistics.median(mine.seconds):>8.2f}",
            flush=True,
        )


MAX_PASSES = 1000
METHODS = "spa,opt,symnmf,auto,spa+em,random+em,auto+em,oracle"


def main() -> None:
    """Run the cells of one table, or of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=int, choices=range(1, 6), help="default: all five")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--samples", default="1000,10000,100000", help="not used by Table III")
    parser.add_argument("--methods", default=METHODS, help="of these and mirror, which is slow")
    parser.add_argument("--reference", type=Path, default=Path("../shared/reference/joint-pmf.csv"))
    options = parser.parse_args()
    samples = [int(float(each)) for each in options.samples.split(",")]
    for table in [options.table] if options.table else range(1, 6):
        for cell in list_cells(table, samples):
            scores = run_cell(cell, options.methods.split(","), options.trials)
            published = (
                read_published(options.reference, cell) if options.reference.exists() else {}
            )
            print_cell(cell, scores, published)


if __name__ == "__main__":
    main()
