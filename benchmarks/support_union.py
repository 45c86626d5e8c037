"""Model selection for NMF: the published synthetic figure and the swimmer, and what conic generators find.

    python benchmarks/support_union.py --trials 20
    python benchmarks/support_union.py --swimmer ../shared/data/swimmer

The first prints, for 20 and 50 rows of true rank 10 and by the number of columns, the mean and
standard deviation of the published estimate (group lasso on the fourth-order moment, strength 10), in how
many trials it is exact, and the same for conic generators of the covariance. The second prints the
regularisation path of the swimmer's distinct pixels, and its conic generators.
"""

# ruff: noqa: E402  threads are limited before NumPy loads

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import gzip
import time
from pathlib import Path

import numpy as np

from pmflib.solvers.column_moments import ColumnMoments
from pmflib.solvers.conic import order_generators
from pmflib.solvers.support_union import fit_row_support, trace_supports

RANK = 10
STRENGTH = 10.0
# rows, and the weight of the mixtures: such that it is provably small enough
SETTINGS = ((20, 0.1), (50, 0.02))
COLUMNS = (100, 300, 1000, 3000, 6000, 10_000)


def draw_columns(n_rows: int, n_columns: int, spread: float, seed: int) -> np.ndarray:
    """Draw a matrix as the published experiment does."""
    rng = np.random.default_rng([n_rows, n_columns, seed])
    mixing = np.vstack([np.eye(RANK), spread * rng.random((n_rows - RANK, RANK))])
    sources = rng.exponential(1.0, (RANK, n_columns)) - 1
    return mixing @ sources + 0.01 * rng.standard_normal((n_rows, n_columns))


def run_synthetic(trials: int) -> None:
    """Print the table of the published figure."""
    print("rows columns | group lasso: mean +- sd, exact, ms | conic: mean +- sd, exact, ms")
    for n_rows, spread in SETTINGS:
        for n_columns in COLUMNS:
            found: dict[str, list[int]] = {"lasso": [], "conic": []}
            spent = dict.fromkeys(found, 0.0)
            for trial in range(trials):
                moments = ColumnMoments.of_columns(draw_columns(n_rows, n_columns, spread, trial))
                begun = time.process_time()
                found["lasso"].append(fit_row_support(moments.to_cumulant_moment(), STRENGTH).rank)
                middle = time.process_time()
                found["conic"].append(order_generators(moments.to_covariance()).rank)
                spent["lasso"] += middle - begun
                spent["conic"] += time.process_time() - middle
            parts = [
                f"{np.mean(ranks):5.2f} +- {np.std(ranks):.2f}, {ranks.count(RANK)} of {trials}, "
                f"{1000 * spent[name] / trials:.0f}"
                for name, ranks in found.items()
            ]
            print(f"{n_rows:4d} {n_columns:7d} | " + " | ".join(parts), flush=True)


def run_swimmer(folder: Path) -> None:
    """Print the regularisation path of the swimmer, and its conic generators."""
    with gzip.open(folder / "swimmer_clean.txt.gz", "rt") as lines:
        pixels = np.array([[int(pixel) for pixel in line.strip()] for line in lines], float).T
    print(f"{pixels.shape[1]} images of {np.unique(pixels.sum(axis=0))} pixels each")
    published = ColumnMoments.of_columns(pixels).to_cumulant_moment()
    print(f"largest entry of the published moment: {np.abs(published).max():.2g}")
    distinct = np.unique(pixels[pixels.any(axis=1)], axis=0)
    weights = np.random.default_rng(0).random(len(distinct))
    moment = ColumnMoments.of_columns(distinct, weights=weights).to_cumulant_moment()
    print(f"{len(distinct)} distinct pixels, random weights: strength, rows in use, relative error")
    for found in trace_supports(moment, [10.0**power for power in range(-10, -1)]):
        print(f"  {found.strength:7.0e} {found.rank:3d} {found.error:8.4f}")
    for name, gram in (
        ("all pixels", ColumnMoments.of_columns(pixels).to_gram()),
        ("distinct pixels", ColumnMoments.of_columns(distinct).to_gram()),
    ):
        order = order_generators(gram)
        print(f"conic generators, {name}: {order.rank}, costs rise {order.rise:.3g} times")


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--swimmer", type=Path, help="folder of swimmer_clean.txt.gz")
    options = parser.parse_args()
    if options.swimmer:
        run_swimmer(options.swimmer)
    else:
        run_synthetic(options.trials)


if __name__ == "__main__":
    main()
