"""Hidden cells of rows that were not fitted: averages of latent classes, and of what held-out rows choose.

    python -m benchmarks.models.hidden_cells
    python -m benchmarks.models.hidden_cells --tables car,adult --members 4

fits some rows of real tables by `fit_em(rank="auto", members=8)`, as `PMFImputer` does, with dependence "none" and
"auto", and guesses a fifth of the cells of the others from the rest of their rows. A line has the mean log-likelihood
per whole row and log-probability per hidden cell, nats, each with its gain over the first line and the standard error
of that over rows; the share of hidden cells whose most probable level is right; and seconds of processor time of the
fit. That forests are compared was found on pisa2009, and nothing of it tuned on the others.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pmflib as pmf
from benchmarks.models.optima import draw, list_tables, read_rows
from benchmarks.models.pisa import read_survey

SHARE_HIDDEN = 0.2
MOST_LEVELS, N_BINS = 45, 8


def draw_rows(codes: np.ndarray, n_rows: int, seed: int = 7) -> np.ndarray:
    """Some rows by chance."""
    return codes[np.random.default_rng(seed).permutation(len(codes))[:n_rows]]


def read_adult() -> np.ndarray:
    """2,000 rows of adult; columns of many levels are cut into bins in the order of their texts."""
    columns = []
    for column in draw_rows(read_rows("adult/UCI_ADULT.data.gz"), 2000, seed=5).T:
        codes = column
        if np.unique(codes[codes >= 0]).size > MOST_LEVELS:
            cuts = np.quantile(codes[codes >= 0], np.linspace(0, 1, N_BINS + 1)[1:-1])
            codes = np.where(codes < 0, -1, np.searchsorted(np.unique(cuts), codes))
        levels = np.unique(codes[codes >= 0])
        if levels.size > 1:
            columns.append(np.where(codes < 0, -1, np.searchsorted(levels, codes)))
    return np.array(columns).T


def read_pisa() -> np.ndarray:
    """2,000 students of pisa2009, and 1,200 others."""
    survey = read_survey(1, 0, 2000)
    return np.concatenate([survey.train, survey.test])


def read_tables() -> dict[str, tuple[Callable[[], np.ndarray], int]]:
    """Tables, and how many of their rows are fitted."""
    tables = list_tables()
    return {
        "votes": (lambda: draw_rows(tables["votes-level"][0](), 435), 290),
        "car": (lambda: draw_rows(tables["car"][0](), 1728), 1000),
        "nltcs": (lambda: draw_rows(tables["nltcs"][0](), 3000), 1000),
        "adult": (read_adult, 1000),
        "pisa2009": (read_pisa, 2000),
    }


def guess(model: pmf.JointPMF, codes: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Log-probability of hidden cells, and whether they are guessed: (2, n_rows, n_variables), NaN elsewhere."""
    shown, found = np.where(hidden, -1, codes), np.full((2, *codes.shape), np.nan)
    for position in range(codes.shape[1]):
        rows = np.flatnonzero(hidden[:, position] & (codes[:, position] >= 0))
        if rows.size:
            given, truth = model.predict_proba(shown[rows], position), codes[rows, position]
            probability = np.maximum(given[np.arange(rows.size), truth], 1e-12)
            found[0, rows, position] = np.log(probability)
            found[1, rows, position] = given.argmax(axis=1) == truth
    return found


def print_table(name: str, make: Callable[[], np.ndarray], n_fitted: int, members: int) -> None:
    """Print two lines of a table."""
    codes = make()
    schema = pmf.Schema.from_cardinalities((codes.max(axis=0) + 1).tolist())
    test = codes[n_fitted:]
    hidden = np.random.default_rng(11).random(test.shape) < SHARE_HIDDEN
    n, first = len(test), None
    options: dict[str, Any] = {"rank": "auto", "schema": schema, "members": members}
    for dependence in ("none", "auto"):
        began = time.process_time()
        model = pmf.fit_em(codes[:n_fitted], dependence=dependence, **options).model
        seconds = time.process_time() - began
        rows = np.asarray(model.log_prob(test))
        cells, hits = guess(model, test, hidden)
        n_cells, sums = np.isfinite(cells).sum(), np.nansum(cells, axis=1)
        first = (rows, sums) if first is None else first
        of_rows, of_cells = rows - first[0], sums - first[1]
        print(
            f"{name:<8}{dependence:<6}{type(model).__name__:<9} rank {model.rank:<5}"
            f"row {rows.mean():9.4f} {of_rows.mean():+.4f} +- {of_rows.std() / n**0.5:.4f}  "
            f"cell {sums.sum() / n_cells:8.4f} {of_cells.sum() / n_cells:+.4f} +- "
            f"{of_cells.std() * n**0.5 / n_cells:.4f}  right {np.nanmean(hits):.4f} {seconds:6.1f} s",
            flush=True,
        )


def main() -> None:
    """Print two lines per table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = read_tables()
    parser.add_argument("--tables", default=",".join(tables))
    parser.add_argument("--members", type=int, default=8)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    # the first fit compiles or loads kernels
    pmf.fit_em(draw((100, 4, 3, 2)), rank="auto")
    for name in options.tables.split(","):
        print_table(name, *tables[name], options.members)


if __name__ == "__main__":
    main()
