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
from benchmarks.ranks.kinds import draw_traits
from pmflib.fitting.bivariate_residuals import LEVEL, BivariateResiduals
from pmflib.synthetic.planted_models import planted_factors

SIZES = (
    ("classes", 300, 0.0, [2] * 8, 2),
    ("classes", 1000, 0.0, [2] * 8, 2),
    ("classes", 1000, 0.3, [3] * 6, 2),
    ("classes", 3000, 0.2, [4] * 6, 3),
    ("forests", 1000, 0.0, [2] * 8, 2),
    ("forests", 1000, 0.3, [2] * 8, 2),
    ("forests", 3000, 0.2, [3] * 6, 2),
    ("traits", 300, 0.0, [2] * 12, 1),
    ("traits", 1000, 0.3, [2] * 12, 1),
    ("traits", 3000, 0.2, [4] * 8, 2),
)
"""Model, rows, share that is missing, levels of the variables, states or traits."""
COPIED = 0.15
"""Share of the samples whose second answer is the first, where a dependent pair is planted."""


def draw(
    kind: str,
    n_rows: int,
    missing: float,
    sizes: list[int],
    rank: int,
    seed: int,
    *,
    copied: float,
) -> np.ndarray:
    """A survey: independent within states but for the first two variables.

    Of forests these two depend in any case; then it is a third one that depends on both, which no forest can have.
    """
    rng = np.random.default_rng(seed)
    if kind == "traits":
        codes, _ = draw_traits(rank, n_rows, seed, sizes)
    else:
        prior, factors = planted_factors(
            sizes, rank, np.random.default_rng(seed), concentration=1.0
        )
        model = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(sizes))
        codes = model.sample(n_rows, seed)
    share = 2 * COPIED if kind == "forests" else copied
    codes[:, 1] = np.where(rng.random(n_rows) < share, codes[:, 0], codes[:, 1])
    if kind == "forests" and copied:
        # of some rows the first, of others the second
        chosen = rng.integers(0, 2, n_rows)
        is_copied = rng.random(n_rows) < 4 * copied
        codes[:, 2] = np.where(is_copied, codes[np.arange(n_rows), chosen], codes[:, 2])
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
    kind: str, codes: np.ndarray, sizes: list[int], rank: int, seed: int
) -> tuple[pmf.JointPMF, BivariateResiduals]:
    """Fit with the defaults but for the rank, and its residuals."""
    schema = pmf.Schema.from_cardinalities(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if kind == "traits":
            model = pmf.fit_item_responses(codes, rank, schema=schema, seed=seed).model
        else:
            model = pmf.fit_em(
                codes,
                rank=rank,
                schema=schema,
                dependence="tree" if kind == "forests" else "none",
                rng=seed,
            ).model
    return model, pmf.bivariate_residuals(model, codes)


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("surveys", type=int, help="drawn surveys of each size")
    parser.add_argument("first", type=int, nargs="?", default=1000, help="first seed")
    given = parser.parse_args()
    columns = (
        "model, rows, missing, variables, levels, states or traits, below .05, any, planted found, chi2 below .05, "
        "any, found"
    )
    print(f"| {columns.replace(', ', ' | ')} |")
    print("|---" * 12 + "|")
    for kind, n_rows, missing, sizes, rank in SIZES:
        planted = {"v0", "v1", "v2"} if kind == "forests" else {"v0", "v1"}
        p_values, plain, any_pair, any_plain, found, found_plain = [], [], [], [], [], []
        for seed in range(given.first, given.first + given.surveys):
            codes = draw(kind, n_rows, missing, sizes, rank, seed, copied=0.0)
            model, residuals = fit(kind, codes, sizes, rank, seed)
            p_values += [each.p_value for each in residuals.pairs if each.degrees]
            any_pair.append(bool(residuals.large))
            values = test_tables(model, codes)
            plain += values
            any_plain.append(min(values) * len(values) < LEVEL)
            codes = draw(kind, n_rows, missing, sizes, rank, seed, copied=COPIED)
            model, residuals = fit(kind, codes, sizes, rank, seed)
            found.append(any(planted.issuperset(each.variables) for each in residuals.large))
            values = test_tables(model, codes)
            places = list(combinations(range(len(sizes)), 2))
            own = [
                p
                for p, pair in zip(values, places, strict=True)
                if planted.issuperset({f"v{k}" for k in pair})
            ]
            found_plain.append(min(own) * len(values) < LEVEL)
        print(
            f"| {kind} | {n_rows} | {missing} | {len(sizes)} | {sizes[0]} | {rank} | "
            f"{np.mean(np.array(p_values) < LEVEL):.3f} | {np.mean(any_pair):.2f} | {np.mean(found):.2f} | "
            f"{np.mean(np.array(plain) < LEVEL):.3f} | {np.mean(any_plain):.2f} | {np.mean(found_plain):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
