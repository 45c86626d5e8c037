"""Planted latent classes and dependent pairs: what `fit_em(rank="auto")` chooses, and what doubling classes would.

Run with ``python -m benchmarks.ranks.kinds --trials 4``. Ten variables of four levels; where pairs are dependent, the
second answer is the first one's in .4 of the rows. "C5" is five latent classes, "T2" two states with forests.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter

import numpy as np

import pmflib as pmf
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.synthetic.planted_models import planted_factors

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


def draw(rank: int, n_rows: int, n_pairs: int, seed: int) -> np.ndarray:
    """Samples of a planted model, some of whose pairs depend on each other within states."""
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors(SIZES, rank, np.random.default_rng(seed), concentration=0.5)
    codes = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(SIZES)).sample(n_rows, seed)
    for first in range(0, 2 * n_pairs, 2):
        copied = rng.random(n_rows) < COPIED
        codes[:, first + 1] = np.where(copied, codes[:, first], codes[:, first + 1])
    return codes


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4, help="drawn tables of each case")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    print("| states | rows | dependent pairs | chosen | seconds | classes alone | seconds |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        columns = []
        for dependence in (None, "none"):
            chosen: Counter[str] = Counter()
            began = time.process_time()
            for seed in range(given.seed, given.seed + given.trials):
                codes = draw(*case, seed)
                schema = pmf.Schema.from_cardinalities(SIZES)
                model = pmf.fit_em(codes, rank="auto", schema=schema, dependence=dependence).model
                chosen[f"{'T' if isinstance(model, TreePMF) else 'C'}{model.rank}"] += 1
            seconds = (time.process_time() - began) / given.trials
            said = ", ".join(f"{number} {name}" for name, number in sorted(chosen.items()))
            columns += [said, f"{seconds:.1f}"]
        print(f"| {' | '.join(map(str, (*case, *columns)))} |", flush=True)


if __name__ == "__main__":
    main()
