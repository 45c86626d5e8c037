"""Counts of pairs for 80 replicate weights: vectors of weights added at once, against a pass for each replicate.

    python -m benchmarks.counting.replicates  # 65,536 people, 80 questions of four levels

Printed are seconds of processor, least of three turns, of one thread; of passes one is made and multiplied. What is
missing has a number of its own, so that groups have three variables as well, of 125 numbers in place of 64. Tried and
given up, both with the same integers: rows sorted by the number of the left group, so that sums of the right one are in
the fastest cache (1.4 to 1.6 times as long: rows of weights are gathered once for each group), and 16, 40 or 80
replicates at a time (as long, or up to 1.6 times). "by strata" are replicates of a jackknife, each of which changes the
weights in one of 80 strata alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from pmflib.kernels.joined_variables import add_joined
from pmflib.kernels.replicate_sums import add_replicates

N_ROWS, N_VARIABLES, N_REPLICATES, TURNS = 65_536, 80, 80, 3


def measure(work: Callable[[], None]) -> float:
    """Least seconds of processor of some turns, after one that compiles."""
    found = []
    for _ in range(1 + TURNS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found[1:])


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 4, N_ROWS)
    noise = rng.choice([0, 0, 0, 1, 2], (N_ROWS, N_VARIABLES))
    complete = ((state[:, None] + noise) % 4).astype(np.int8)
    gaps = np.where(rng.random(complete.shape) < 0.02, -1, complete).astype(np.int8)
    offsets = np.arange(0, 4 * N_VARIABLES + 1, 4)
    weights = (rng.gamma(2, 20, N_ROWS) * 1e6).astype(np.int64)
    half = weights[:, None] * rng.choice([-1, 1], (N_ROWS, N_REPLICATES)) // 2
    stratum = np.sort(rng.integers(0, N_REPLICATES, N_ROWS))
    own = np.where(stratum[:, None] == np.arange(N_REPLICATES), half, 0)
    tables = np.zeros((N_REPLICATES, int(offsets[-1]), int(offsets[-1])), np.int64)
    rows = np.arange(N_ROWS)
    print("what | at once, s | a pass each, s | ratio")
    for name, codes, changes in (
        ("complete", complete, half),
        ("2 % missing", gaps, half),
        ("by strata", gaps, own),
    ):
        column = np.ascontiguousarray(changes[:, 0])
        at_once = measure(partial(add_replicates, codes, changes, offsets, tables))
        one = measure(partial(add_joined, codes, rows, column, offsets, tables[0]))
        each = one * N_REPLICATES
        print(f"{name} | {at_once:.2f} | {each:.2f} | {each / at_once:.1f}")


if __name__ == "__main__":
    main()
