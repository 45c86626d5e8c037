"""Raking of biased samples to known margins: errors of shares and pairs, coverage of intervals, equality with a peer.

    python -m benchmarks.models.margins [DATA] [--samples 10] [--draws 200]

The population is the table adult. A row is drawn with a probability that is a product of one random factor for each
level of three variables, whose margins are known exactly. The first table has root mean squared errors, in points,
over the shares of the levels of all other variables, and over the cells of all pairs of variables:

    counts              the sample as it is
    raked counts        a GROUP BY with raked weights
    model               latent classes of the sample
    model raked         that model raked to the margins, without the rows
    model of raked rows latent classes fitted with the raked weights

The second has how many 95 % intervals hold the share in the population, of every level of the other variables with at
least 5 %: answers from counts with a design of raked weights, and of equal weights. The first lines are the largest
relative differences of a weight from that of R's survey package and, if it is installed, of samplics.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.panels.tables import make_schema, read_codes
from pmflib.base.arrays import FloatArray, IntArray

N_ROWS, RANK = 1_000, 8
KNOWN = ("age", "education", "sex")
COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours", "country", "income"),
)
LEFT_OUT = ("fnlwgt", "education-num", "country")
"""A weight, a copy of the education, and a variable of 42 levels, most of which are rare."""
SPREAD = 0.5
"""Standard deviation of the logarithm of the factors of the probability that a row is drawn."""
LEAST_SHARE = 0.05
SCHOOLS = {
    ("E", "Yes"): (132, 29.8704638727345),
    ("E", "No"): (12, 39.838509410554),
    ("H", "Yes"): (11, 50.3301527726748),
    ("H", "No"): (3, 67.1257826263303),
    ("M", "Yes"): (17, 36.7921816646831),
    ("M", "No"): (8, 49.0700673992951),
}
"""Schools of the example apiclus1 of R's survey package 4.5: stype and sch.wide, their number, and the weight after
``rake(dclus1, list(~stype, ~sch.wide), list(pop.types, pop.schwide))``.
"""
SCHOOL_TOTALS = {
    "stype": {"E": 4421, "H": 755, "M": 1018},
    "sch.wide": {"No": 1072, "Yes": 5122},
}
"""Numbers of schools of California: pop.types and pop.schwide."""
SCHOOL_WEIGHT = 33.847
"""Weight of each school before raking, column pw: 6,194 schools by 183."""


def read_population(data: Path) -> tuple[pmf.Schema, IntArray]:
    """Read codes of adult; levels of known variables that fewer than 3 % have are merged into the next."""
    codes = read_codes(data, "adult", 10**9).astype(np.int64)
    kept = [n for n, name in enumerate(COLUMNS) if name not in LEFT_OUT]
    codes = codes[:, kept]
    names = [COLUMNS[n] for n in kept]
    for name in KNOWN:
        place = names.index(name)
        shares = np.bincount(codes[:, place]) / len(codes)
        large = np.flatnonzero(shares >= 0.03)
        nearest = np.searchsorted(large, np.arange(shares.size)).clip(max=large.size - 1)
        codes[:, place] = nearest[codes[:, place]]
    drawn = make_schema(codes)
    renamed = [
        pmf.Variable(name, each.levels) for name, each in zip(names, drawn.variables, strict=True)
    ]
    return pmf.Schema(tuple(renamed)), codes


def find_margins(schema: pmf.Schema, codes: IntArray) -> dict[str, dict[str, int]]:
    """Numbers of the levels of the known variables."""
    found = {}
    for name in KNOWN:
        levels = schema[name].levels
        sizes = np.bincount(codes[:, schema.position(name)], minlength=len(levels))
        found[name] = dict(zip(levels, sizes.tolist(), strict=True))
    return found


def draw_rows(schema: pmf.Schema, codes: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw a biased sample, in which every known level occurs."""
    chances = np.ones(len(codes))
    for name in KNOWN:
        factors = np.exp(rng.normal(0, SPREAD, len(schema[name].levels)))
        chances *= factors[codes[:, schema.position(name)]]
    return codes[rng.choice(len(codes), N_ROWS, replace=False, p=chances / chances.sum())]


def tabulate(schema: pmf.Schema, codes: IntArray, weight: FloatArray) -> FloatArray:
    """Weighted shares of all pairs of levels, of those who have both values: (n_levels, n_levels)."""
    block = np.zeros((len(codes), schema.n_levels))
    rows, columns = np.nonzero(codes >= 0)
    block[rows, schema.offsets[columns] + codes[rows, columns]] = 1
    sums = (block * weight[:, None]).T @ block
    for a, b in combinations(range(schema.n_variables), 2):
        cells = (schema.rows_of(a), schema.rows_of(b))
        sums[cells] /= sums[cells].sum()
    for a in range(schema.n_variables):
        cells = (schema.rows_of(a), schema.rows_of(a))
        sums[cells] /= sums[cells].sum()
    return sums


def predict(model: pmf.JointPMF) -> FloatArray:
    """Probabilities of all pairs of levels under a model, as `tabulate` has them."""
    schema = model.schema
    sums = (model.factors * model.prior) @ model.factors.T
    for a in range(schema.n_variables):
        rows = schema.rows_of(a)
        sums[rows, rows] = np.diag(model.factors[rows] @ model.prior)
    return sums


def find_errors(schema: pmf.Schema, found: FloatArray, truth: FloatArray) -> tuple[float, float]:
    """Squared errors of shares of the other variables and of pairs of all, mean over cells, in squared points."""
    squares, others = (100 * (found - truth)) ** 2, []
    for place, variable in enumerate(schema.variables):
        if variable.name not in KNOWN:
            others.append(np.diag(squares)[schema.rows_of(place)])
    pairs = [
        squares[(schema.rows_of(a), schema.rows_of(b))].ravel()
        for a, b in combinations(range(schema.n_variables), 2)
    ]
    return float(np.concatenate(others).mean()), float(np.concatenate(pairs).mean())


def compare_methods(schema: pmf.Schema, codes: IntArray, n_samples: int) -> None:
    """Print the table of root mean squared errors."""
    margins = find_margins(schema, codes)
    truth = tabulate(schema, codes, np.ones(len(codes)))
    squares: dict[str, list[tuple[float, float]]] = {}
    for seed in range(n_samples):
        rows = draw_rows(schema, codes, np.random.default_rng([1, seed]))
        design = pmf.surveys.rake(rows, margins, schema=schema)
        model = pmf.fit_em(rows, rank=RANK, schema=schema).model
        of_raked = pmf.fit_em(rows, rank=RANK, schema=schema, weight=design.weight).model
        found = {
            "counts": tabulate(schema, rows, np.ones(len(rows))),
            "raked counts": tabulate(schema, rows, design.weight),
            "model": predict(model),
            "model raked": predict(model.rake(margins)),
            "model of raked rows": predict(of_raked),
        }
        for name, each in found.items():
            squares.setdefault(name, []).append(find_errors(schema, each, truth))
    print(f"{n_samples} samples of {N_ROWS} of {len(codes)} rows; RMSE, points +- standard error")
    for name, measured in squares.items():
        means = np.mean(measured, axis=0)
        errors = np.std(measured, axis=0, ddof=1) / np.sqrt(n_samples) / (2 * np.sqrt(means))
        texts = [f"{np.sqrt(m):.2f} +- {e:.2f}" for m, e in zip(means, errors, strict=True)]
        print(f"{name:20s} shares {texts[0]}   pairs {texts[1]}")


def cover(schema: pmf.Schema, codes: IntArray, n_draws: int) -> None:
    """Print how many intervals hold the truth, with raked and with equal weights."""
    margins = find_margins(schema, codes)
    asked = [name for name in schema.names if name not in KNOWN]
    held: dict[str, list[float]] = {"raked": [], "unraked": []}
    uniform = np.concatenate([np.full((n, 1), 1 / n) for n in schema.cardinalities])
    # answers from counts alone need no fit
    model = pmf.JointPMF(np.ones(1), uniform, schema)
    for seed in range(n_draws):
        rows = draw_rows(schema, codes, np.random.default_rng([2, seed]))
        designs = {
            "raked": pmf.surveys.rake(rows, margins, schema=schema),
            "unraked": pmf.surveys.SurveyDesign(np.ones(len(rows))),
        }
        for name, design in designs.items():
            inside: list[bool] = []
            for variable in asked:
                column = codes[:, schema.position(variable)]
                n_levels = len(schema[variable].levels)
                truth = np.bincount(column[column >= 0], minlength=n_levels) / (column >= 0).sum()
                answer = model.ask(f"P({variable})", rows, design=design, source="counts")
                assert answer.intervals is not None
                for (level,), (low, high) in zip(answer.labels, answer.intervals, strict=True):
                    share = truth[schema[variable].levels.index(level)]
                    inside += [low <= share <= high] if share >= LEAST_SHARE else []
            held[name].append(float(np.mean(inside)))
    print(f"coverage of 95 % intervals, {n_draws} draws")
    for name, each in held.items():
        print(f"{name:20s} {np.mean(each):.3f} +- {np.std(each, ddof=1) / np.sqrt(n_draws):.3f}")


def rake_schools() -> tuple[FloatArray, FloatArray]:
    """Weights of the schools of apiclus1: raked here, and by R's survey package."""
    cells = [cell for cell, (n, _) in SCHOOLS.items() for _ in range(n)]
    table = dict(zip(("stype", "sch.wide"), zip(*cells, strict=True), strict=True))
    raked = pmf.surveys.rake(table, SCHOOL_TOTALS, weight=np.full(len(cells), SCHOOL_WEIGHT)).weight
    return raked, np.array([SCHOOLS[cell][1] for cell in cells])


def compare_weights(schema: pmf.Schema, codes: IntArray) -> None:
    """Print the largest relative differences from the weights of R's survey package and of samplics."""
    raked, expected = rake_schools()
    said = "weights: largest relative difference from"
    print(f"{said} R's survey {np.abs(raked / expected - 1).max():.1e}")
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        peer = import_module("samplics.weighting")
    except ImportError as error:
        print(f"samplics skipped: {error}; pip install samplics")
        return
    margins = find_margins(schema, codes)
    rows = draw_rows(schema, codes, np.random.default_rng([3, 0]))
    ours = pmf.surveys.rake(rows, margins, schema=schema).weight
    columns: dict[str, Any] = {
        name: np.array(schema[name].levels)[rows[:, schema.position(name)]] for name in KNOWN
    }
    control: dict[str, Any] = margins
    options: dict[str, Any] = {"tol": 1e-13, "ctrl_tol": 1e-13, "max_iter": 1_000}
    theirs = peer.SampleWeight().rake(np.ones(len(rows)), columns, control, **options)
    print(f"{said} samplics {np.abs(ours / theirs - 1).max():.1e}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--samples", type=int, default=10, help="samples of the table of errors")
    parser.add_argument("--draws", type=int, default=200, help="samples of the coverage")
    options = parser.parse_args(arguments)
    schema, codes = read_population(options.data)
    compare_weights(schema, codes)
    compare_methods(schema, codes, options.samples)
    cover(schema, codes, options.draws)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
