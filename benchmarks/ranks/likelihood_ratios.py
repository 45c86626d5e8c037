"""Tests of F latent classes against F + 1 on drawn tables: how often they reject where F is true, and where F + 1 is.

    python -m benchmarks.ranks.likelihood_ratios [TABLES] [DRAWS] [SEED]

TABLES (40) tables of 500 rows and six questions of two levels, a tenth of the answers missing, are drawn of each cell,
and DRAWS (19) tables of each for the bootstrap. A line per cell has the number of classes that is true, the one that is
tested, and the shares of the tables in which the p-value is at most .05: of the bootstrap; of the law of Vuong, Lo,
Mendell and Rubin; of its adjusted form; and of the chi-squared law with as many degrees of freedom as parameters, which
is the simplest thing to do. Where F is true, .05 is right, with the standard error that is printed.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.special import chdtrc

import pmflib as pmf
from pmflib.base.arrays import IntArray

N_ROWS = 500
LEVEL = 0.05
CELLS = [(1, 1, 0.8), (2, 2, 0.8), (2, 1, 0.65), (3, 2, 0.8)]
"""Classes that are true, that are tested, and the probability of the answer of a class."""


def draw_table(rank: int, chance: float, rng: np.random.Generator) -> IntArray:
    """Answers of some classes."""
    high = np.array([[1] * 6, [0] * 6, [1, 1, 1, 0, 0, 0]])[:rank]
    classes = rng.choice(rank, N_ROWS, p=[[1.0], [0.6, 0.4], [0.4, 0.3, 0.3]][rank - 1])
    chances = np.where(high == 1, chance, 1 - chance)
    codes = (rng.random((N_ROWS, 6)) < chances[classes]).astype(np.int64)
    codes[rng.random(codes.shape) < 0.1] = -1
    return codes


def main() -> None:
    """Print the table."""
    n_tables = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    draws = int(sys.argv[2]) if len(sys.argv) > 2 else 19
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    warnings.simplefilter("ignore")
    schema = pmf.Schema.from_cardinalities([2] * 6)
    print("| true | tested | answer | bootstrap | VLMR | adjusted | chi-squared | error of .05 |")
    print("|---|---|---|---|---|---|---|---|")
    for true, tested, chance in CELLS:
        rejected = []
        for each in range(n_tables):
            codes = draw_table(true, chance, np.random.default_rng([seed, true, tested, each]))
            found = pmf.inference.likelihood_ratio_test(
                codes, tested, schema=schema, draws=draws, seed=seed + each
            )
            plain = chdtrc(found.degrees, found.statistic)
            values = (found.p_value, found.vuong_p, found.adjusted_p, plain)
            rejected.append([float(value is not None and value <= LEVEL) for value in values])
        shares = " | ".join(f"{share:.2f}" for share in np.mean(rejected, axis=0))
        error = np.sqrt(LEVEL * (1 - LEVEL) / n_tables)
        print(f"| {true} | {tested} | {chance} | {shares} | {error:.2f} |", flush=True)


if __name__ == "__main__":
    main()
