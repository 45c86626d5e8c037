"""Whether intervals of parameters are what they say: of latent classes fitted to drawn surveys, whose truth is known.

    python -m benchmarks.models.coverage [SURVEYS] [SEED] [FIT]

A line per cell: number of variables, how sharp the classes are, which answers are missing (none; a fifth at random; by
another variable, 5 to 40 %). SURVEYS (100) surveys of 1,000 rows are drawn, each of a truth of its own. FIT "maximum"
(the default) is EM without pseudo-counts from the truth, to the maximum next to it, so that searches have no part in
it; "default" is `fit_em` of the true rank with nothing else said. A line has the shares of the true priors and factors
that are within their intervals of 95 %, of what is determined and not at an edge, each with its Monte Carlo error over
surveys; the root mean square of (estimate - truth) / error; the share of truths within the intervals of parameters at
an edge; the shares of parameters that are at an edge, and that are not determined; and surveys whose fit is more than
.2 standard errors from the maximum. The last line is of all cells.

FIT "answers" has intervals of answers instead: four fifths of each survey are fitted from the truth, the rest say how
many rows the model counts for, and all are counted. Questions with no, one, two and three conditions are asked, whose
levels are drawn at random, so that many are rare together; a line has the share of the true probabilities that are
within the intervals, by number of conditions, and of the true E, H and MI. "answers-model" asks the model alone.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

import pmflib as pmf
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.model.planted_models import planted_factors
from pmflib.papers.metrics import match_factors

N_ROWS = 1000
"""Rows of a survey."""
SHAPES = {4: (4, 2), 8: (3, 3), 20: (2, 4)}
"""Levels of each variable, and classes, by number of variables: determined by the samples, if only just."""
CONCENTRATIONS = {"sharp": 0.5, "blunt": 2.0}
"""Concentrations of the Dirichlet law of the classes' PMFs."""
MISSING = ("none", "at random", "by another")


@dataclass(frozen=True)
class Cell:
    """What surveys are like."""

    n_variables: int
    sharpness: str
    missing: str

    def draw(self, seed: int) -> tuple[pmf.JointPMF, IntArray]:
        """Truth, of which no class or probability is next to 0, and samples of it."""
        n_levels, rank = SHAPES[self.n_variables]
        rng = np.random.default_rng([seed, self.n_variables, *self.sharpness.encode()])
        sizes = [n_levels] * self.n_variables
        concentration = CONCENTRATIONS[self.sharpness]
        prior, factors = planted_factors(sizes, rank, rng, concentration=concentration)
        schema = pmf.Schema.from_cardinalities(sizes)
        truth = pmf.JointPMF(0.7 * prior + 0.3 / rank, 0.95 * factors + 0.05 / n_levels, schema)
        codes = truth.sample(N_ROWS, rng)
        chances = np.zeros(codes.shape)
        if self.missing == "at random":
            chances += 0.2
        if self.missing == "by another":
            # the first variable is always observed
            chances[:, 1:] = np.linspace(0.05, 0.4, n_levels)[codes[:, :1]]
        codes[rng.random(codes.shape) < chances] = -1
        return truth, codes


def measure(cell: Cell, seed: int, fit: str) -> FloatArray:
    """Figures of a survey: sums and numbers of parameters, as `summarise` takes them."""
    truth, codes = cell.draw(seed)
    if fit == "maximum":
        options = {"pseudo_count": 0.0, "max_passes": 20_000, "tol": 1e-12, "accelerate": True}
        model = pmf.fit_em(codes, truth, **options).model  # type: ignore[arg-type]
    else:
        model = pmf.fit_em(codes, rank=truth.rank, schema=truth.schema).model
    errors = pmf.inference.standard_errors(model, codes)
    order = match_factors(model.prior, model.factors, truth.prior, truth.factors)
    figures = []
    for found, known in ((errors["prior"], truth.prior), (errors["factors"], truth.factors)):
        true = known[..., order]
        inside = (found.lower <= true) & (true <= found.upper)
        inner = found.is_determined & ~found.is_edge
        scores = (found.values - true)[inner] / found.errors[inner]
        figures += [inside[inner].sum(), inner.sum(), np.square(scores).sum()]
        figures += [inside[found.is_edge].sum(), found.is_edge.sum(), (~found.is_determined).sum()]
        figures += [known.size]
    return np.array([*figures, errors.distance > 0.2], np.float64)


def summarise(figures: FloatArray) -> str:
    """Figures of some surveys, (n_surveys, 15), in a line."""
    texts = []
    totals = figures.sum(axis=0)
    for first in (0, 7):
        inside, n_inner = figures[:, first], figures[:, first + 1]
        share = inside.sum() / n_inner.sum()
        error = np.sqrt(np.square(inside - share * n_inner).sum()) / n_inner.sum()
        texts.append(
            f"{share:.3f} +- {error:.3f}  {np.sqrt(totals[first + 2] / n_inner.sum()):.2f}"
        )
    edge = f"{totals[3] + totals[10]:.0f} of {totals[4] + totals[11]:.0f}"
    n_all = totals[6] + totals[13]
    shares = [(totals[4] + totals[11]) / n_all, (totals[5] + totals[12]) / n_all]
    return f"{'    '.join(texts)}   {edge:>12}  {shares[0]:.3f}  {shares[1]:.3f}  {totals[14]:.0f}"


ASKED = {"P, none": (0, "P"), "one": (1, "P"), "two": (2, "P"), "three": (3, "P")}
ASKED |= {"E": (1, "E"), "H": (1, "H"), "MI": (0, "MI")}
"""Kinds of answers: conditions, and measure."""
N_ASKED = 3
"""Questions of each kind to a survey."""


def measure_answers(cell: Cell, seed: int, source: Literal["both", "model"]) -> FloatArray:
    """True answers within intervals, and answers, of each kind of `ASKED`: (2, n_kinds)."""
    truth, codes = cell.draw(seed)
    seen, unseen = np.split(codes, [N_ROWS * 4 // 5])
    model = pmf.answering.weigh_model(pmf.fit_em(seen, truth, max_passes=2000).model, seen, unseen)
    names, rng = truth.schema.names, np.random.default_rng([seed, 1])
    found = np.zeros((2, len(ASKED)))
    for n, (n_given, measure) in enumerate(ASKED.values()):
        for _ in range(N_ASKED):
            target, *others = rng.permutation(len(names))[: 2 + n_given]
            given = [
                f"{names[each]}={rng.integers(len(truth.schema[each].levels))}" for each in others
            ]
            bar = f" | {', '.join(given[:n_given])}" if n_given else ""
            asked = f"{names[target]}; {names[others[0]]}" if measure == "MI" else names[target]
            answer, known = (
                each.ask(f"{measure}({asked}{bar})", data, source=source)
                for each, data in ((model, codes), (truth, None))
            )
            assert answer.intervals is not None
            true = dict(zip(known.labels, known.numbers.tolist(), strict=True))
            for label, (low, high) in zip(answer.labels, answer.intervals.tolist(), strict=True):
                found[:, n] += low <= true[label] <= high, 1
    return found


def print_answers(n_surveys: int, seed: int, source: Literal["both", "model"]) -> None:
    """Print coverage of answers, by cell and kind."""
    print(
        f"{'N':>2} {'classes':7} {'missing':10}  {'  '.join(f'{each:>7}' for each in ASKED)}      all"
    )
    totals = np.zeros((2, len(ASKED)))
    for size, sharpness, missing in product(SHAPES, CONCENTRATIONS, MISSING):
        cell = Cell(size, sharpness, missing)
        found = [measure_answers(cell, seed + each, source) for each in range(n_surveys)]
        sums = np.sum(found, axis=0)
        totals += sums
        shares = [*(sums[0] / sums[1]), sums[0].sum() / sums[1].sum()]
        print(
            f"{size:2} {sharpness:7} {missing:10}  {'  '.join(f'{x:7.3f}' for x in shares)}",
            flush=True,
        )
    shares = [*(totals[0] / totals[1]), totals[0].sum() / totals[1].sum()]
    print(f"{'all':21}  {'  '.join(f'{x:7.3f}' for x in shares)}")


def main() -> None:
    """Print the table."""
    n_surveys = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    fit = sys.argv[3] if len(sys.argv) > 3 else "maximum"
    warnings.simplefilter("ignore")
    if fit.startswith("answers"):
        print_answers(n_surveys, seed, "model" if fit == "answers-model" else "both")
        return
    print(
        f"{'N':>2} {'classes':7} {'missing':10}  {'prior':>15}  {'rms':>4}    {'factors':>15}  rms",
        end="",
    )
    print("   inside, edge   edge   open  far")
    every = []
    for size, sharpness, missing in product(SHAPES, CONCENTRATIONS, MISSING):
        cell = Cell(size, sharpness, missing)
        figures = np.array([measure(cell, seed + each, fit) for each in range(n_surveys)])
        every.append(figures)
        print(f"{size:2} {sharpness:7} {missing:10}  {summarise(figures)}", flush=True)
    print(f"{'all':21}  {summarise(np.concatenate(every))}")


if __name__ == "__main__":
    main()
