"""Planted classes, dependent pairs and traits: what `fit_em(rank="auto")` chooses, and what doubling classes would.

Run with ``python -m benchmarks.ranks.kinds --trials 4``. Ten variables of four levels; where pairs are dependent, the
second answer is the first one's in .4 of the rows; twelve variables of two levels or four where traits are. "C5" is
five latent classes, "F2" two states with forests, "T1" one trait.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter

import numpy as np

import pmflib as pmf
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.model.planted_models import planted_factors

SIZES = [4] * 10
CASES = (
    (1, 1000, 0),
    (2, 1000, 0),
    (3, 1000, 0),
    (5, 1000, 0),
    (5, 10_000, 0),
    (8, 10_000, 0),
    (12, 10_000, 0),
    (1, 1000, 3),
    (2, 1000, 2),
    (2, 1000, 5),
    (2, 10_000, 5),
    (5, 10_000, 3),
)
"""States, rows, dependent pairs."""
COPIED = 0.4
TRAIT_CASES = ((1, 1000), (2, 1000), (3, 1000), (1, 10_000), (2, 10_000), (3, 10_000))
"""Traits, rows: half of the tables have two levels, half four."""


def draw(rank: int, n_rows: int, n_pairs: int, seed: int) -> np.ndarray:
    """Samples of a planted model, some of whose pairs depend on each other within states."""
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors(SIZES, rank, np.random.default_rng(seed), concentration=0.5)
    codes = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(SIZES)).sample(n_rows, seed)
    for first in range(0, 2 * n_pairs, 2):
        copied = rng.random(n_rows) < COPIED
        codes[:, first + 1] = np.where(copied, codes[:, first], codes[:, first + 1])
    return codes


def draw_traits(
    n_traits: int, n_rows: int, seed: int, sizes: list[int] | None = None
) -> tuple[np.ndarray, list[int]]:
    """Samples of a planted item response model, each variable of which is moved by one trait, and their levels."""
    rng = np.random.default_rng([seed, n_traits])
    sizes = [2 + 2 * (seed % 2)] * 12 if sizes is None else sizes
    traits, columns = rng.standard_normal((n_rows, n_traits)), []
    for position, size in enumerate(sizes):
        slopes = rng.uniform(0.8, 1.8) * np.linspace(-1, 1, size)
        logits = rng.normal(0, 0.7, size) + traits[:, position % n_traits, None] * slopes
        ends = np.exp(logits).cumsum(axis=1)
        columns.append((rng.random((n_rows, 1)) * ends[:, -1:] > ends[:, :-1]).sum(axis=1))
    return np.stack(columns, axis=1), sizes


def name_model(model: pmf.JointPMF) -> str:
    """Kind and number of states, or of traits."""
    if isinstance(model, TraitPMF):
        return f"T{model.trait_model.n_traits}"
    return f"{'F' if isinstance(model, TreePMF) else 'C'}{model.rank}"


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4, help="drawn tables of each case")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    seeds = range(given.seed, given.seed + given.trials)
    print("| states | rows | dependent pairs | chosen | seconds | classes alone | seconds |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        tables = [(draw(*case, seed), SIZES) for seed in seeds]
        print_row(tuple(map(str, case)), tables)
    for n_traits, n_rows in TRAIT_CASES:
        drawn = [draw_traits(n_traits, n_rows, seed) for seed in seeds]
        print_row((f"{n_traits} traits", str(n_rows), "0"), drawn)


def print_row(names: tuple[str, ...], tables: list[tuple[np.ndarray, list[int]]]) -> None:
    """Print what is chosen of some tables, and in what time."""
    columns = []
    for dependence in (None, "none"):
        chosen: Counter[str] = Counter()
        began = time.process_time()
        for codes, sizes in tables:
            schema = pmf.Schema.from_cardinalities(sizes)
            fitted = pmf.fit_em(codes, rank="auto", schema=schema, dependence=dependence)
            chosen[name_model(fitted.model)] += 1
        seconds = (time.process_time() - began) / len(tables)
        said = ", ".join(f"{number} {name}" for name, number in sorted(chosen.items()))
        columns += [said, f"{seconds:.1f}"]
    print(f"| {' | '.join((*names, *columns))} |", flush=True)


if __name__ == "__main__":
    main()
