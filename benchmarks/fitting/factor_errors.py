"""Tables I to VI of the joint-PMF paper: error of the factors on synthetic data, all methods on the same samples.

    python -m benchmarks.fitting.factor_errors --table 1 --trials 5 --samples 1000,10000
    python -m benchmarks.fitting.factor_errors --table 4 --trials 3 --samples 10000 --methods opt,auto,oracle
    python -m benchmarks.fitting.factor_errors --table 6 --trials 3

prints, per cell and method: the published error, the error by the published definition (Tables I to III carry a slip of
about 0.021) and the plain mean squared error, mean and median, with the mean and the worst ratio to the oracle; the
relative error of the full joint PMF as published, by that definition (divided by the norm of the estimate) and relative
to the truth, where it has few enough cells; and seconds, published ones for Table VI.

The oracle is EM run to convergence from the true model on the same samples. `auto` is `pmf.fit_em(codes, rank=rank)`,
all else by default. The others are the paper's methods, without pseudo-counts, EM of 30 passes: `mirror` is CNMF-OPT as
published, slow; `opt` reaches its loss by closed-form updates; `ctd` is the least squares fit of all triples;
`mle-ad+em` starts at the fit of all triples in KL divergence.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

import pmflib as pmf
from benchmarks.published import REFERENCE, read_published
from pmflib.counts.triple_counts import TripleCounts
from pmflib.fits.from_counts import Loss
from pmflib.model.planted_models import published_factors
from pmflib.model.sampling import sample_codes
from pmflib.papers.metrics import factor_mse, published_factor_mse, relative_error

N_LEVELS = 10
PUBLISHED_NAMES = {
    "spa": "CNMF-SPA",
    "mirror": "CNMF-OPT",
    "opt": "CNMF-OPT",
    "ctd": "CTD",
    "spa+em": "CNMF-SPA-EM",
    "random+em": "RAND-EM",
    "mle-ad+em": "MLE-AD-EM",
}
SLIPPED_TABLES = (1, 2, 3)
PUBLISHED_PASSES = 30
METHODS = "spa,opt,ctd,spa+em,random+em,ctd+em,mle-ad+em,auto,oracle"


@dataclass(frozen=True)
class Cell:
    """One column of a published table."""

    table: int
    n_samples: int
    observed: float
    n_variables: int

    @property
    def rank(self) -> int:
        """Latent states of the true model."""
        return 5 if self.n_variables == 5 else 10

    @property
    def separability(self) -> float | None:
        """The published label of the generator."""
        if self.n_variables != 5:
            return None
        return 0.3 if self.table == 2 else 0.1

    @property
    def column(self) -> str:
        """How the reference file names the column."""
        if self.table == 3:
            return f"p={self.observed:g}"
        if self.table == 6:
            return f"N={self.n_variables}"
        return f"S=1e{round(np.log10(self.n_samples))}"


@dataclass
class Scores:
    """Errors of one method in one cell, a number per trial."""

    plain: list[float] = field(default_factory=list)
    slipped: list[float] = field(default_factory=list)
    by_estimate: list[float] = field(default_factory=list)
    by_truth: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """Samples of one model, and the model."""

    codes: np.ndarray
    counts: pmf.PairCounts
    truth: pmf.JointPMF

    @cached_property
    def triples(self) -> TripleCounts:
        """Counts for the methods that want them."""
        return pmf.counts.count_triples(self.codes, self.truth.schema)


def list_cells(table: int, samples: list[int]) -> list[Cell]:
    """Columns of a table; Table III varies the share of observed entries, Table VI the variables."""
    if table == 3:
        return [Cell(3, 100_000, observed, 5) for observed in (0.1, 0.05, 0.01, 0.005)]
    if table == 6:
        return [Cell(6, 100_000, 0.5, n_variables) for n_variables in (5, 15)]
    observed = 0.2 if table == 5 else 0.5
    return [Cell(table, n_samples, observed, 5 if table <= 2 else 15) for n_samples in samples]


def draw_trial(cell: Cell, seed: int) -> Trial:
    """Draw a model by the released generator, and samples of it."""
    rng = np.random.default_rng([cell.table, cell.n_samples, round(cell.observed * 1000), seed])
    sizes = cell.n_variables, N_LEVELS, cell.rank
    prior, factors = published_factors(*sizes, rng, cell.separability)
    schema = pmf.Schema.from_cardinalities([N_LEVELS] * cell.n_variables)
    codes = sample_codes(
        prior, factors, schema.offsets, cell.n_samples, rng, observed=cell.observed
    )
    truth = pmf.JointPMF(prior, factors, schema)
    return Trial(codes, pmf.count_pairs(codes, schema), truth)


def fit_method(method: str, trial: Trial, seed: int) -> pmf.JointPMF:
    """Fit the samples of a trial."""
    rank, schema = trial.truth.rank, trial.truth.schema
    if method == "oracle":
        return pmf.fit_em(
            trial.codes, trial.truth, pseudo_count=0.0, max_passes=MAX_PASSES, tol=1e-7
        ).model
    if method == "auto":
        return pmf.fit_em(trial.codes, rank=rank, schema=schema).model
    start, _, refined = method.partition("+")
    if start in ("ctd", "mle-ad"):
        loss: Loss = "squares" if start == "ctd" else "kl"
        model = pmf.fits.fit_triples(trial.triples, rank, loss=loss, rng=seed).model
    else:
        model = pmf.fit(trial.counts, rank, method=start, rng=seed).model
    if not refined:
        return model
    return pmf.fit_em(
        trial.codes, open_model(model), pseudo_count=0.0, max_passes=PUBLISHED_PASSES
    ).model


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
        if any(method.startswith(("ctd", "mle-ad")) for method in methods):
            assert trial.triples.n_rows.all()  # counted before the clock starts, as pairs are
        for method in methods:
            began = time.process_time()
            with warnings.catch_warnings():
                # the published limits of iterations belong to the methods
                warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
                model = fit_method(method, trial, seed)
            mine, found = scores[method], (model.prior, model.factors)
            mine.seconds.append(time.process_time() - began)
            mine.plain.append(factor_mse(*found, *truth, cell.n_variables))
            mine.slipped.append(published_factor_mse(*found, *truth, model.schema.offsets))
            if cell.n_variables == 5:
                offsets = model.schema.offsets
                mine.by_estimate.append(relative_error(*truth, *found, offsets))
                mine.by_truth.append(relative_error(*found, *truth, offsets))
    return scores


def print_cell(cell: Cell, scores: dict[str, Scores], reference: Path) -> None:
    """Print a table of one cell."""
    mse, relative, seconds = (
        read_published(reference, cell.table, metric, cell.column)
        for metric in ("MSE", "MRE", "seconds")
    )
    print(f"\nTable {cell.table}, S={cell.n_samples}, p={cell.observed:g}, N={cell.n_variables}")
    print(
        f"{'method':<11}{'published':>10}{'as defined':>11}{'plain':>8}{'median':>8}{'/oracle':>8}{'worst':>7}"
        f"{'MRE pub.':>9}{'defined':>8}{'plain':>7}{'pub. s':>8}{'CPU s':>8}"
    )
    oracle = scores["oracle"].plain if "oracle" in scores else None
    for method, mine in scores.items():
        name = PUBLISHED_NAMES.get(method, "")
        defined = mine.slipped if cell.table in SLIPPED_TABLES else mine.plain
        mean = statistics.mean(mine.plain)
        line = f"{method:<11}{show(mse.get(name)):>10}{statistics.mean(defined):>11.4f}{mean:>8.4f}"
        line += f"{statistics.median(mine.plain):>8.4f}"
        if oracle:
            worst = max(e / o for e, o in zip(mine.plain, oracle, strict=True))
            line += f"{mean / statistics.mean(oracle):>8.2f}{worst:>7.2f}"
        else:
            line += " " * 15
        line += f"{show(relative.get(name)):>9}"
        for each, width in ((mine.by_estimate, 8), (mine.by_truth, 7)):
            line += f"{show(statistics.mean(each), 3) if each else '':>{width}}"
        line += f"{show(seconds.get(name), 2):>8}"
        print(f"{line}{statistics.median(mine.seconds):>8.2f}", flush=True)


def show(value: float | None, digits: int = 4) -> str:
    """Format a number, or nothing."""
    return "" if value is None else f"{value:.{digits}f}"


MAX_PASSES = 1000


def main() -> None:
    """Run the cells of one table, or of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=int, choices=range(1, 7), help="default: all six")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--samples", default="1000,10000,100000", help="not used by Tables III, VI")
    parser.add_argument("--methods", default=METHODS, help="of these and mirror, which is slow")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--short", action="store_true", help="1 trial of Tables I and IV, S=1e4")
    options = parser.parse_args()
    samples = [int(float(each)) for each in options.samples.split(",")]
    tables = [options.table] if options.table else list(range(1, 7))
    if options.short:
        tables, samples, options.trials = [1, 4], [10_000], 1
    methods = options.methods.split(",")
    run_cell(Cell(1, 500, 0.5, 5), methods, 1)  # compiles, before the clock starts
    for table in tables:
        for cell in list_cells(table, samples):
            scores = run_cell(cell, methods, options.trials)
            print_cell(cell, scores, options.reference)


if __name__ == "__main__":
    main()
