"""Filled tables of planted surveys: what filling does to variances, correlations and means, and whether intervals hold.

    python -m benchmarks.models.imputation [--surveys 24] [--rank auto] [--rows 500] [--draws 20] [--seed 0]

Every survey is drawn from a model of its own: three classes, seven questions of four levels, and one of two levels that
everybody answers. Of the seven, 30 % of the answers are missing at random: with probability .12 where the last question
has its first level, else with one that makes it 30 % in all. Nothing was tuned on these surveys.

`spread` is the variance of a filled question, as a share of that of the same question before anything was hidden,
`slope` that of correlations of filled questions on those before, over all pairs, and `bias` how far a filled mean is
from that before, in standard deviations of the question, root mean square. 1, 1 and 0 are right.

`cover` is the share of 95 % intervals that hold what is true of the model that the survey was drawn from, of means,
of shares of the first level, and of correlations of the first question with the others (Fisher's z); with its standard
error over surveys. `width` is that of intervals for means, as a multiple of those that the whole survey would have had.
With one table the intervals are those that it would have were it observed; with several, they are pooled. "the truth"
draws from the model that the survey was drawn from, of which nothing is estimated. Draws of columns are answers that
others gave to the question, for each table from a bootstrap sample of them.

Seconds are of processor time for one survey.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.stats import norm

import pmflib as pmf
from pmflib.model.imputing import draw_gaps, seed_rows
from pmflib.synthetic.planted_models import planted_factors

N_CLASSES, N_QUESTIONS, N_LEVELS = 3, 7, 4
SHARE_MISSING, SHARE_OF_FIRST = 0.3, 0.12
CONCENTRATION = 0.7
LEVEL = 0.95

Tables = Sequence[np.ndarray]


@dataclass(frozen=True)
class Survey:
    """Model, answers (n_rows, n_questions + 1) as numbers, those that are known, NaN the others, and what is true."""

    model: pmf.JointPMF
    answers: np.ndarray
    known: np.ndarray
    truth: dict[str, np.ndarray]


def draw_survey(n_rows: int, rng: np.random.Generator) -> Survey:
    """Draw a model, answers of it, and hide some."""
    schema = pmf.Schema.from_cardinalities([N_LEVELS] * N_QUESTIONS + [2])
    factors = planted_factors(
        schema.cardinalities.tolist(), N_CLASSES, rng, concentration=CONCENTRATION
    )
    model = pmf.JointPMF(*factors, schema)
    answers = model.sample(n_rows, rng).astype(float)
    share = float(model.marginal([N_QUESTIONS])[0])
    of_other = (SHARE_MISSING - share * SHARE_OF_FIRST) / (1 - share)
    chances = np.where(answers[:, -1:] == 0, SHARE_OF_FIRST, np.clip(of_other, 0, 0.9))
    hidden = rng.random((n_rows, N_QUESTIONS)) < chances
    known = answers.copy()
    known[:, :-1][hidden] = np.nan
    scores, means, squares = np.arange(N_LEVELS), [], []
    for question in range(N_QUESTIONS):
        pmf_of = model.marginal([question])
        means.append(pmf_of @ scores)
        squares.append(pmf_of @ scores**2)
    mean, deviation = np.array(means), np.sqrt(np.array(squares) - np.square(means))
    products = [
        scores @ model.marginal([0, question]) @ scores for question in range(1, N_QUESTIONS)
    ]
    return Survey(
        model,
        answers,
        known,
        {
            "means": mean,
            "shares": np.array([model.marginal([question])[0] for question in range(N_QUESTIONS)]),
            "correlations": (products - mean[0] * mean[1:]) / (deviation[0] * deviation[1:]),
        },
    )


def estimate(table: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Estimates of a filled table, each on the scale of its interval, and their variances as of one observed."""
    questions, n_rows = table[:, :N_QUESTIONS], len(table)
    shares = (questions == 0).mean(axis=0)
    within = np.corrcoef(questions.T)[0, 1:]
    return {
        "means": (questions.mean(axis=0), questions.var(axis=0, ddof=1) / n_rows),
        "shares": (shares, shares * (1 - shares) / n_rows),
        "correlations": (
            np.arctanh(np.clip(within, -0.999, 0.999)),
            np.full(within.size, 1 / (n_rows - 3)),
        ),
    }


def find_intervals(tables: Tables) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Ends of intervals of each kind of quantity: pooled where there are several tables."""
    each, found = [estimate(table) for table in tables], {}
    for kind in each[0]:
        values, variances = (np.array([one[kind][part] for one in each]) for part in (0, 1))
        if len(tables) > 1:
            pooled = pmf.pool(values, variances, dof=len(tables[0]) - 1, level=LEVEL)
            found[kind] = pooled.low, pooled.high
        else:
            reach = norm.ppf((1 + LEVEL) / 2) * np.sqrt(variances[0])
            found[kind] = values[0] - reach, values[0] + reach
    return found


def fill_by_truth(survey: Survey, draws: int, seed: int) -> Tables:
    """Tables drawn from the model of the survey."""
    is_missing = np.isnan(survey.known)
    codes = np.where(is_missing, -1, survey.known).astype(np.int64)
    rows = np.arange(len(codes))
    return [
        draw_gaps(survey.model, codes, is_missing, seed_rows(rows, seed, draw)).astype(float)
        for draw in range(draws)
    ]


def fill_by_columns(known: np.ndarray, draws: int, rng: np.random.Generator) -> Tables:
    """Gaps of every column drawn from what is known of it, of each table from a bootstrap sample of that."""
    tables = []
    for _ in range(draws):
        table = known.copy()
        for column in table.T:
            gaps = np.isnan(column)
            donors = rng.choice(column[~gaps], (~gaps).sum())
            column[gaps] = rng.choice(donors, gaps.sum())
        tables.append(table)
    return tables


def fill_by_modes(known: np.ndarray) -> Tables:
    """Gaps of every column filled with its most frequent value."""
    table = known.copy()
    for column in table.T:
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        column[np.isnan(column)] = values[counts.argmax()]
    return [table]


def fill_by_model(
    known: np.ndarray, rank: int | Literal["auto"], draws: int
) -> dict[str, tuple[Tables, float]]:
    """Tables filled by `PMFImputer`, with the processor time of a fit and all that it fills."""
    began = time.process_time()
    several = pmf.PMFImputer(rank, draws=draws).fit_transform(known)
    passed = time.process_time() - began
    began = time.process_time()
    imputer = pmf.PMFImputer(rank).fit(known)
    drawn, by_mode = imputer.transform(known), imputer.set_params(strategy="mode").transform(known)
    of_one = time.process_time() - began
    return {
        f"PMFImputer, {draws} draws": (several, passed),
        "PMFImputer, one draw": ([drawn], of_one),
        "PMFImputer, mode": ([by_mode], of_one),
    }


@dataclass
class Scores:
    """What is found of one way to fill, over surveys."""

    spread: list[float] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)
    before: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    covered: dict[str, list[float]] = field(default_factory=dict)

    def add(self, survey: Survey, tables: Tables, seconds: float) -> None:
        """Add one survey."""
        whole, upper = survey.answers[:, :N_QUESTIONS], np.triu_indices(N_QUESTIONS, 1)
        self.seconds.append(seconds)
        gaps, spreads = [], []
        for table in tables:
            filled = table[:, :N_QUESTIONS]
            spreads.append((filled.var(axis=0) / whole.var(axis=0)).mean())
            gaps.append((filled.mean(axis=0) - whole.mean(axis=0)) / whole.std(axis=0))
            self.before.append(np.corrcoef(whole.T)[upper])
            self.after.append(np.corrcoef(filled.T)[upper])
        self.spread.append(float(np.mean(spreads)))
        self.bias.append(float(np.mean(np.square(gaps))))
        found, of_whole = find_intervals(tables), find_intervals([survey.answers])
        for kind, (low, high) in found.items():
            truth = survey.truth[kind]
            truth = np.arctanh(truth) if kind == "correlations" else truth
            covered = (low <= truth) & (truth <= high)
            self.covered.setdefault(kind, []).append(float(covered.mean()))
        ratios = [np.ptp(each["means"], axis=0) for each in (found, of_whole)]
        self.width.append(float((ratios[0] / ratios[1]).mean()))

    def describe(self) -> list[str]:
        """Cells of a line of the table."""
        before, after = np.concatenate(self.before), np.concatenate(self.after)
        slope = np.polyfit(before, after, 1)[0]
        cells = [f"{np.mean(self.spread):.3f}", f"{slope:.3f}", f"{np.mean(self.bias) ** 0.5:.3f}"]
        for shares in self.covered.values():
            error = np.std(shares, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else np.nan
            cells.append(f"{np.mean(shares):.3f} +- {error:.3f}")
        return [*cells, f"{np.mean(self.width):.2f}", f"{np.median(self.seconds):.2f}"]


def main() -> None:
    """Fill the surveys in all ways, and print what becomes of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--surveys", type=int, default=24)
    parser.add_argument("--rank", default="auto", help="number of latent states, or auto")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rank: int | Literal["auto"] = "auto" if given.rank == "auto" else int(given.rank)
    warnings.simplefilter("ignore")

    rng = np.random.default_rng([given.seed, 1])
    scores: dict[str, Scores] = {}
    for number in range(given.surveys):
        survey = draw_survey(given.rows, np.random.default_rng([given.seed, 0, number]))
        ways = fill_by_model(survey.known, rank, given.draws)
        ways[f"the truth, {given.draws} draws"] = fill_by_truth(survey, given.draws, number), 0.0
        by_columns = fill_by_columns(survey.known, given.draws, rng)
        ways[f"columns, {given.draws} draws"] = by_columns, 0.0
        ways["columns, mode"] = fill_by_modes(survey.known), 0.0
        ways["nothing hidden"] = [survey.answers], 0.0
        for name, (tables, seconds) in ways.items():
            scores.setdefault(name, Scores()).add(survey, tables, seconds)
    print(f"{given.surveys} surveys of {given.rows} rows, rank {rank}")
    heads = ["filled by", "spread", "slope", "bias", "cover: means", "shares", "correlations"]
    heads += ["width", "s"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, each in scores.items():
        print(f"| {' | '.join([name, *each.describe()])} |")


if __name__ == "__main__":
    main()
