"""Whether intervals of entropy, mutual information and total variation hold, against planted truths.

    python -m benchmarks.models.curved tune [--levels 3 20] [--rows 300 3000] [--trials 2] [--rank 4]
    python -m benchmarks.models.curved judge

A variable x of K levels and a variable y of five are drawn from a known table, with three more that depend on y; four
fifths of the rows are fitted, and the rest say how many rows the model counts for. "tune" has the families of tables on
which `pmflib.answering.posterior.LEFT_BIAS` was chosen (levels of Zipf's law, each with a PMF of y; latent classes),
"judge" others (levels of any size with rough PMFs; independent variables; a smooth dependence that no few classes have;
Zipf's law with weak dependence). A line for each K, number of rows and measure has, for the measure of the posterior
mean with draws moved to it ("before"), and for the answer, the share of truths within intervals of 95 %, the mean of
(number - truth) / error, and the root mean square error; "counts" is the error of counts alone, as they are.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np

import pmflib as pmf
from pmflib.base.arrays import FloatArray, IntArray

FAMILIES = {"tune": ("zipf", "classes"), "judge": ("rough", "independent", "smooth", "weak")}
OTHERS = (3, 4, 4)
"""Levels of the variables that depend on y."""
N_Y = 5
MEASURES = ("MI(v0; v1)", "TV(v0; v1)", "H(v0)", "TV(v0 | v1=0; v1=1)")
LEAST_ROWS = 5
"""Rows of each group, at least."""


def draw_table(family: str, n_levels: int, rng: np.random.Generator) -> FloatArray:
    """True table of x and y, float64 of shape (n_levels, 5)."""
    y = 0.8 * rng.dirichlet(np.full(N_Y, 2.0)) + 0.2 / N_Y
    if family == "classes":
        prior = rng.dirichlet(np.full(3, 5.0))
        base = rng.dirichlet(np.ones(n_levels)) * n_levels
        sides = np.array([rng.dirichlet(np.maximum(0.7 * base, 0.02)) for _ in prior])
        found: FloatArray = np.einsum("r,ri,rj->ij", prior, sides, rng.dirichlet(np.ones(N_Y), 3))
        return found
    if family == "smooth":
        grid, places = np.linspace(-2, 2, n_levels)[:, None], np.linspace(-2, 2, N_Y)
        given = np.exp(-np.square(0.6 * grid - places))
        smooth: FloatArray = given / given.sum(axis=1, keepdims=True) / n_levels
        return smooth
    sizes = 1 / np.arange(1, n_levels + 1)
    if family in ("rough", "independent"):
        sizes = rng.dirichlet(np.ones(n_levels))
    sharpness = {"zipf": 5.0, "weak": 60.0, "rough": 12.0, "independent": np.inf}[family]
    given = np.tile(y, (n_levels, 1))
    if np.isfinite(sharpness):
        given = rng.dirichlet(sharpness * y, n_levels)
    return np.asarray(sizes[:, None] / sizes.sum() * given)


def draw_rows(table: FloatArray, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Rows of x, y and the variables that depend on y."""
    cells = rng.choice(table.size, n_rows, p=table.ravel() / table.sum())
    x, y = np.divmod(cells, N_Y)
    columns = [x, y]
    for size in OTHERS:
        edges = rng.dirichlet(np.ones(size), N_Y).cumsum(axis=1)
        columns.append(np.minimum((rng.random((n_rows, 1)) > edges[y]).sum(axis=1), size - 1))
    return np.stack(columns, axis=1)


def find_entropy(table: FloatArray) -> float:
    """Entropy in nats."""
    held = table[table > 0]
    return -float(held @ np.log(held))


def measure_table(name: str, tables: list[FloatArray]) -> float:
    """Value of a measure of a table of x and y, or of the tables of x in two groups."""
    first = tables[0]
    if name.startswith("H"):
        return find_entropy(first.sum(axis=1))
    if len(tables) == 2:
        return float(np.abs(tables[0] - tables[1]).sum() / 2)
    apart = first.sum(axis=1, keepdims=True) * first.sum(axis=0)
    if name.startswith("TV"):
        return float(np.abs(first - apart).sum() / 2)
    return find_entropy(apart) - find_entropy(first)


def find_before(
    ask: Callable[[str], pmf.answering.Answer], name: str, rng: np.random.Generator
) -> tuple[float, float, FloatArray]:
    """Measure of the posterior mean, deviation of its draws, and their interval around it."""
    means, totals = [], []
    for text in ("P(v0 | v1=0)", "P(v0 | v1=1)") if "|" in name else ("P(v0, v1)",):
        found = ask(text)
        codes = np.array([[int(level) for level in label[:2]] for label in found.labels])
        mean = np.zeros((codes[:, 0].max() + 1, N_Y if codes.shape[1] == 2 else 1))
        mean[tuple(codes.T) if codes.shape[1] == 2 else (codes[:, 0], 0)] = found.numbers
        assert found.standard_errors is not None
        # the largest probability is far from the floor of errors
        p, error = found.numbers[0], found.standard_errors[0]
        means.append(mean)
        totals.append(p * (1 - p) / error**2 - 1)
    drawn = [
        rng.dirichlet(np.maximum(each.ravel() * total, 1e-6), 200)
        for each, total in zip(means, totals, strict=True)
    ]
    number = measure_table(name, means)
    values = np.array(
        [
            measure_table(name, [x.reshape(m.shape) for x, m in zip(one, means, strict=True)])
            for one in zip(*drawn, strict=True)
        ]
    )
    return number, float(values.std()), np.quantile(values - values.mean() + number, [0.025, 0.975])


def measure_one(
    family: str, n_levels: int, n_rows: int, rank: int, seed: int
) -> dict[str, list[float]]:
    """Figures of a drawn survey by measure: whether the truth is inside, bias / error, and error, before and after."""
    rng = np.random.default_rng([seed, n_levels, n_rows, *family.encode()])
    table = draw_table(family, n_levels, rng)
    codes = draw_rows(table, n_rows, rng)
    schema = pmf.Schema.from_cardinalities([n_levels, N_Y, *OTHERS])
    seen, unseen = np.split(codes, [n_rows * 4 // 5])
    model = pmf.fit_em(seen, schema=schema, rank=rank).model
    model = pmf.answering.weigh_model(model, seen, unseen)

    def ask(text: str) -> pmf.answering.Answer:
        found: pmf.answering.Answer = model.ask(text, codes)
        return found

    figures_of: dict[str, list[float]] = {}
    for name in MEASURES:
        tables = [table]
        if "|" in name:
            tables = [table[:, [y]] / table[:, y].sum() for y in range(2)]
            if min(np.count_nonzero(codes[:, 1] == y) for y in range(2)) < LEAST_ROWS:
                continue
        truth = measure_table(name, tables)
        number, error, ends = find_before(ask, name, rng)
        answer = ask(name)
        assert answer.interval is not None
        assert answer.standard_error is not None
        figures = [
            ends[0] <= truth <= ends[1],
            (number - truth) / max(error, 1e-12),
            number - truth,
        ]
        low, high = answer.interval
        gap = answer.value - truth
        figures += [low <= truth <= high, gap / answer.standard_error, gap]
        figures_of[name] = [float(x) for x in (*figures, answer.more["counted"][0] - truth)]
    return figures_of


def print_line(label: str, rows: list[list[float]]) -> None:
    """Print coverage, bias and error before and after."""
    figures = np.array(rows)
    shares, squares = figures.mean(axis=0), np.sqrt(np.square(figures).mean(axis=0))
    before, after = (f"{shares[k]:.3f} {shares[k + 1]:+6.2f} {squares[k + 2]:.3f}" for k in (0, 3))
    print(f"{label:42} {len(rows):4}   {before}   {after}   {squares[6]:.3f}", flush=True)


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("half", choices=list(FAMILIES))
    parser.add_argument("--levels", type=int, nargs="+", default=[3, 20, 100, 500])
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 3000, 50_000])
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--rank", type=int, default=4)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'levels, rows, measure':42}    n   before: within, bias, rms   answer               counts"
    )
    everything: dict[str, list[list[float]]] = {name: [] for name in MEASURES}
    for n_levels in given.levels:
        for n_rows in given.rows:
            mine: dict[str, list[list[float]]] = {name: [] for name in MEASURES}
            for family in FAMILIES[given.half]:
                for seed in range(given.trials):
                    found = measure_one(family, n_levels, n_rows, given.rank, seed)
                    for name, figures in found.items():
                        mine[name].append(figures)
                        everything[name].append(figures)
            for name, rows in mine.items():
                if rows:
                    print_line(f"{n_levels}, {n_rows:,}, {name}", rows)
    for name, rows in everything.items():
        print_line(f"all, {name}", rows)
    print_line("all", [each for rows in everything.values() for each in rows])


if __name__ == "__main__":
    main()
