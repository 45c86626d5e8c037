"""Bivariate residuals of drawn surveys: how often they say that pairs depend, which do not, and which do.

Run with ``python -m benchmarks.models.residuals 100``: surveys of each size, and optionally the first seed. Pearson's
chi-squared of each pair's table against the model's, with as many degrees of freedom, stands next to it.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import combinations

import numpy as np
from scipy.stats import chi2

import pmflib as pmf
from pmflib.fitting.bivariate_residuals import LEVEL, BivariateResiduals
from pmflib.synthetic.planted_models import planted_factors

SIZES = (
    (300, 0.0, [2] * 8, 2),
    (1000, 0.0, [2] * 8, 2),
    (1000, 0.3, [3] * 6, 2),
    (3000, 0.2, [4] * 6, 3),
)
"""Rows, share that is missing, levels of the variables, states."""
COPIED = 0.15
"""Share of the samples whose second answer is the first, where a dependent pair is planted."""


def draw(
    n_rows: int, missing: float, sizes: list[int], rank: int, seed: int, *, copied: float
) -> np.ndarray:
    """A survey: independent within states but for the first two variables."""
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors(sizes, rank, np.random.default_rng(seed), concentration=1.0)
    model = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(sizes))
    codes = model.sample(n_rows, seed)
    codes[:, 1] = np.where(rng.random(n_rows) < copied, codes[:, 0], codes[:, 1])
    codes[rng.random(codes.shape) < missing] = -1
    return codes


def test_tables(model: pmf.JointPMF, codes: np.ndarray) -> list[float]:
    """P-values of Pearson's chi-squared of the pairs' tables."""
    pairs, values = model.find_pairs(), []
    for one, other in combinations(range(codes.shape[1]), 2):
        both = codes[(codes[:, one] >= 0) & (codes[:, other] >= 0)][:, [one, other]]
        table = pairs[model.schema.rows_of(one), model.schema.rows_of(other)] * len(both)
        counted = np.zeros(table.shape)
        np.add.at(counted, tuple(both.T), 1)
        statistic = ((counted - table) ** 2 / np.maximum(table, 1e-9)).sum()
        values.append(float(chi2.sf(statistic, (table.shape[0] - 1) * (table.shape[1] - 1))))
    return values


def fit(
    codes: np.ndarray, sizes: list[int], rank: int, seed: int
) -> tuple[pmf.JointPMF, BivariateResiduals]:
    """Fit with the defaults but for the rank, and its residuals."""
    schema = pmf.Schema.from_cardinalities(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = pmf.fit_em(codes, rank=rank, schema=schema, rng=seed).model
    return model, pmf.bivariate_residuals(model, codes)


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("surveys", type=int, help="drawn surveys of each size")
    parser.add_argument("first", type=int, nargs="?", default=1000, help="first seed")
    given = parser.parse_args()
    columns = "rows, missing, variables, levels, below .05, any, planted found, chi2 below .05, any, found"
    print(f"| {columns.replace(', ', ' | ')} |")
    print("|---" * 10 + "|")
    for n_rows, missing, sizes, rank in SIZES:
        p_values, plain, any_pair, any_plain, found, found_plain = [], [], [], [], [], []
        for seed in range(given.first, given.first + given.surveys):
            codes = draw(n_rows, missing, sizes, rank, seed, copied=0.0)
            model, residuals = fit(codes, sizes, rank, seed)
            p_values += [each.p_value for each in residuals.pairs if each.degrees]
            any_pair.append(bool(residuals.large))
            values = test_tables(model, codes)
            plain += values
            any_plain.append(min(values) * len(values) < LEVEL)
            codes = draw(n_rows, missing, sizes, rank, seed, copied=COPIED)
            model, residuals = fit(codes, sizes, rank, seed)
            found.append(any(each.variables == ("v0", "v1") for each in residuals.large))
            found_plain.append(test_tables(model, codes)[0] * len(values) < LEVEL)
        print(
            f"| {n_rows} | {missing} | {len(sizes)} | {sizes[0]} | {np.mean(np.array(p_values) < LEVEL):.3f} | "
            f"{np.mean(any_pair):.2f} | {np.mean(found):.2f} | {np.mean(np.array(plain) < LEVEL):.3f} | "
            f"{np.mean(any_plain):.2f} | {np.mean(found_plain):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
