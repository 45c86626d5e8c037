"""Planted models on which starts disagree: errors of the factors, and test log-likelihoods, next to EM from the truth.

    python -m benchmarks.fitting.planted_starts --trials 20
    python -m benchmarks.fitting.planted_starts --cells uneven --trials 3

draws models by the published generator, with a uniform prior or an uneven one, Dirichlet(.5), samples of them, complete
or half observed, and as many test samples. A line per cell has, of the trials: the error of the factors, states
matched, over that of EM run to convergence from the true model on the same samples (`oracle`: without pseudo-counts, as
in `factor_errors`), mean and worst; the test log-likelihood less that of the oracle, nats per sample, mean and worst;
the trials in which the error is above 1.1 times the oracle's and the likelihood below it as well; and CPU seconds,
median. `auto` is `pmf.fit_em(codes, rank=rank)`, all else by default; `pairs+em` is `pmf.fit` and EM from its model.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from dataclasses import dataclass, field

import numpy as np

import pmflib as pmf
from pmflib.model.metrics import factor_mse
from pmflib.model.sampling import sample_codes
from pmflib.synthetic.planted_models import published_factors

MAX_PASSES = 1000
TOLERATED = 1.1
"""Times the oracle's error from which an error counts as one."""


@dataclass(frozen=True)
class Cell:
    """Sizes of models, and how their samples are drawn."""

    n_variables: int
    n_levels: int
    rank: int
    n_samples: int
    observed: float
    concentration: float | None = None


CELLS = {
    "wide": Cell(40, 4, 12, 10_000, 1.0),
    "wide-half": Cell(40, 4, 12, 10_000, 0.5),
    "uneven": Cell(15, 10, 10, 10_000, 0.5, 0.5),
    "uneven-complete": Cell(15, 10, 10, 10_000, 1.0, 0.5),
}


@dataclass
class Scores:
    """Figures of one method in one cell, a number per trial."""

    ratios: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def n_missed(self) -> int:
        """Trials with a larger error and a lower likelihood than are aimed at."""
        pairs = zip(self.ratios, self.gains, strict=True)
        return sum(ratio > TOLERATED and gain < 0 for ratio, gain in pairs)


def draw_trial(cell: Cell, seed: int) -> tuple[np.ndarray, np.ndarray, pmf.JointPMF]:
    """Samples, test samples, and the model that they are drawn from."""
    rng = np.random.default_rng([cell.n_variables, cell.rank, cell.n_samples, seed])
    prior, factors = published_factors(cell.n_variables, cell.n_levels, cell.rank, rng)
    if cell.concentration is not None:
        prior = rng.dirichlet(np.full(cell.rank, cell.concentration))
    schema = pmf.Schema.from_cardinalities([cell.n_levels] * cell.n_variables)
    codes, test = (
        sample_codes(prior, factors, schema.offsets, cell.n_samples, rng, observed=cell.observed)
        for _ in range(2)
    )
    return codes, test, pmf.JointPMF(prior, factors, schema)


def run_cell(cell: Cell, n_trials: int) -> dict[str, Scores]:
    """Fit by all methods, trial by trial."""
    scores = {"auto": Scores(), "pairs+em": Scores()}
    for seed in range(n_trials):
        codes, test, truth = draw_trial(cell, seed)
        oracle = pmf.fit_em(codes, truth, pseudo_count=0.0, max_passes=MAX_PASSES, tol=1e-7).model
        level = oracle.log_prob(test).mean()
        error = measure_error(oracle, truth)
        for method, mine in scores.items():
            began = time.process_time()
            if method == "auto":
                model = pmf.fit_em(codes, rank=truth.rank, schema=truth.schema).model
            else:
                start = pmf.fit(pmf.count_pairs(codes, truth.schema), truth.rank).model
                model = pmf.fit_em(codes, start).model
            mine.seconds.append(time.process_time() - began)
            mine.ratios.append(measure_error(model, truth) / error)
            mine.gains.append(float(model.log_prob(test).mean() - level))
    return scores


def measure_error(model: pmf.JointPMF, truth: pmf.JointPMF) -> float:
    """Squared error of prior and factors, states matched."""
    n_variables = truth.schema.n_variables
    return factor_mse(model.prior, model.factors, truth.prior, truth.factors, n_variables)


def main() -> None:
    """Print a line per cell and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default=",".join(CELLS), help="default: %(default)s")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pmf.ConvergenceWarning)
    print(
        f"{'cell':<16}{'method':<10}{'error/oracle':>13}{'worst':>8}{'log-lik. - oracle':>19}{'worst':>9}"
        f"{'missed':>8}{'CPU s':>7}"
    )
    for name in options.cells.split(","):
        for method, mine in run_cell(CELLS[name], options.trials).items():
            print(
                f"{name:<16}{method:<10}{statistics.mean(mine.ratios):>13.2f}{max(mine.ratios):>8.2f}"
                f"{statistics.mean(mine.gains):>19.4f}{min(mine.gains):>9.4f}{mine.n_missed:>8}"
                f"{statistics.median(mine.seconds):>7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
