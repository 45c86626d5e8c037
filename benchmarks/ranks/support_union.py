"""Model selection for NMF: the published synthetic figure and the swimmer, and what conic generators find.

    python -m benchmarks.ranks.support_union --trials 20
    python -m benchmarks.ranks.support_union --swimmer ../shared/data/swimmer

The first prints, for 20 and 50 rows of true rank 10 and by the number of columns, the mean and
standard deviation of the published estimate (group lasso on the fourth-order moment, penalty 10), in how
many trials it is exact, and the same for conic generators of the covariance. The second prints what the
published moment of the swimmer is, the regularisation path of its distinct pixels under random weights, and
its conic generators; with --interior also the published path as a general interior-point solver (cvxpy)
finds it, on the uncentred moment. With --plot FILE.png (or .svg) what is printed is drawn too.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import numpy as np

from benchmarks.plots import Curve, Panel, add_plot_option, draw_panels
from pmflib.papers.nmf_rank import ColumnMoments
from pmflib.papers.support_union import fit_row_support, order_generators

RANK = 10
PENALTY = 10.0
# rows, and the weight of the mixtures: such that it is provably small enough
SETTINGS = ((20, 0.1), (50, 0.02))
COLUMNS = (100, 300, 1000, 3000, 6000, 10_000)


def draw_columns(n_rows: int, n_columns: int, spread: float, seed: int) -> np.ndarray:
    """Draw a matrix as the published experiment does."""
    rng = np.random.default_rng([n_rows, n_columns, seed])
    mixing = np.vstack([np.eye(RANK), spread * rng.random((n_rows - RANK, RANK))])
    sources = rng.exponential(1.0, (RANK, n_columns)) - 1
    return mixing @ sources + 0.01 * rng.standard_normal((n_rows, n_columns))


def run_synthetic(trials: int) -> list[Panel]:
    """Print the table of the published figure; a panel for each number of rows."""
    panels = []
    print("rows columns | group lasso: mean +- sd, exact, ms | conic: mean +- sd, exact, ms")
    for n_rows, spread in SETTINGS:
        history: dict[str, list[list[int]]] = {"lasso": [], "conic": []}
        for n_columns in COLUMNS:
            found: dict[str, list[int]] = {"lasso": [], "conic": []}
            spent = dict.fromkeys(found, 0.0)
            for trial in range(trials):
                moments = ColumnMoments.of_columns(draw_columns(n_rows, n_columns, spread, trial))
                before = time.process_time()
                found["lasso"].append(fit_row_support(moments.to_cumulant_moment(), PENALTY).rank)
                middle = time.process_time()
                found["conic"].append(order_generators(moments.to_covariance()).rank)
                spent["lasso"] += middle - before
                spent["conic"] += time.process_time() - middle
            parts = [
                f"{np.mean(ranks):5.2f} +- {np.std(ranks):.2f}, {ranks.count(RANK)} of {trials}, "
                f"{1000 * spent[name] / trials:.0f}"
                for name, ranks in found.items()
            ]
            print(f"{n_rows:4d} {n_columns:7d} | " + " | ".join(parts), flush=True)
            for name, ranks in found.items():
                history[name].append(ranks)
        curves = [
            Curve(label, COLUMNS, np.mean(history[name], axis=1), np.std(history[name], axis=1))
            for name, label in (("lasso", "group lasso"), ("conic", "conic generators"))
        ]
        title = f"{n_rows} rows, {trials} trials: mean and standard deviation"
        panels.append(Panel(title, "columns", "rank found", curves, truth=RANK))
    return panels


def run_swimmer(folder: Path) -> Panel:
    """Print the regularisation path of the swimmer, and its conic generators."""
    pixels = read_pixels(folder)
    print(f"{pixels.shape[1]} images of {np.unique(pixels.sum(axis=0))} pixels each")
    published = ColumnMoments.of_columns(pixels).to_cumulant_moment()
    print(f"largest entry of the published moment: {np.abs(published).max():.2g}")
    distinct = np.unique(pixels[pixels.any(axis=1)], axis=0)
    weights = np.random.default_rng(0).random(len(distinct))
    moment = ColumnMoments.of_columns(distinct, weights=weights).to_cumulant_moment()
    print(f"{len(distinct)} distinct pixels, random weights: penalty, rows in use, relative error")
    path, start = [], None
    for power in range(-2, -11, -1):
        found = fit_row_support(moment, 10.0**power, initial=start)
        path.append((found.penalty, found.rank))
        start = found.coefficients
        print(f"  {found.penalty:7.0e} {found.rank:3d} {found.error:8.4f}")
    for name, gram in (
        ("all pixels", ColumnMoments.of_columns(pixels).to_gram()),
        ("distinct pixels", ColumnMoments.of_columns(distinct).to_gram()),
    ):
        order = order_generators(gram)
        print(f"conic generators, {name}: {order.rank}, costs rise {order.rise:.3g} times")
    title = f"{len(distinct)} distinct pixels, random weights"
    return make_path_panel(title, path[::-1])


def run_interior(folder: Path) -> Panel:
    """Print the path of the uncentred moment by a general solver, rows in use being those above 1e-6.

    All images have equally many pixels, so that this moment is -2 c^2 m m' with m the mean image: any
    split of the weight over the brightest pixels, those that are always on, is optimal.
    """
    import cvxpy

    pixels = read_pixels(folder)
    always = pixels.min(axis=1) > 0
    limbs = np.unique(pixels[~always & pixels.any(axis=1)], axis=0)
    mean = np.concatenate([np.ones(int(always.sum())), limbs.mean(axis=1)])
    moment = -2 * pixels.sum(axis=0)[0] ** 2 * np.outer(mean, mean)
    unit = np.abs(moment).max()
    print(f"uncentred: {always.sum()} pixels always on, {len(limbs)} distinct others")
    path = []
    for power in range(-5, 10, 2):
        found = cvxpy.Variable(moment.shape)
        loss = cvxpy.sum_squares(moment / unit - moment / unit @ found) / 2
        penalty = 10.0**power / unit**2 * cvxpy.sum(cvxpy.norm(found, 2, axis=1))
        cvxpy.Problem(cvxpy.Minimize(loss + penalty)).solve(solver=cvxpy.CLARABEL)
        norms = np.linalg.norm(np.asarray(found.value), axis=1)
        path.append((10.0**power, int((norms > 1e-6).sum())))
        print(f"  1e{power:+03d} {path[-1][1]:3d} rows in use")
    return make_path_panel("uncentred moment, interior point", path)


def make_path_panel(title: str, path: list[tuple[float, int]]) -> Panel:
    """Rows in use by the penalty; nothing is repeated, so that there are no bars."""
    penalties, ranks = zip(*path, strict=True)
    return Panel(title, "penalty", "rows in use", [Curve("group lasso", penalties, ranks)])


def read_pixels(folder: Path) -> np.ndarray:
    """Images as columns, (pixels, images)."""
    with gzip.open(folder / "swimmer_clean.txt.gz", "rt") as lines:
        return np.array([[int(pixel) for pixel in line.strip()] for line in lines], float).T


def main() -> None:
    """Run the experiment that the options name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--swimmer", type=Path, help="folder of swimmer_clean.txt.gz")
    parser.add_argument("--interior", action="store_true", help="with --swimmer; takes cvxpy")
    add_plot_option(parser)
    options = parser.parse_args()
    if options.swimmer:
        panels = [run_swimmer(options.swimmer)]
        if options.interior:
            panels.append(run_interior(options.swimmer))
    else:
        panels = run_synthetic(options.trials)
    if options.plot:
        draw_panels(panels, options.plot)


if __name__ == "__main__":
    main()
