"""Rank by folds of counts: planted ranks, and the cost beside one EM pass.

    python -m benchmarks.ranks.planted --trials 20
    python -m benchmarks.ranks.planted --samples 10000 --trials 10

plants ranks from 2 to 20 in the published generator's models of 15 variables with 10 levels and of
30 with 5, half of the answers missing, and prints how often the choice is exact, the misses, and the
process CPU time of a choice over that of one EM pass at the true rank over 10^7 samples (a pass over
those drawn, scaled up). Single-threaded.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import pmflib as pmf
from pmflib.base.blocks import DenseBlock
from pmflib.fits.ranks.by_pairs import select_rank
from pmflib.fits.ranks.choice import RankChoice
from pmflib.model.planted_models import published_factors
from pmflib.model.sampling import sample_codes
from pmflib.model.sufficient_statistics import em_statistics, take_logs

SHAPES = ((15, 10), (30, 5))
RANKS = range(2, 21)
PASS_SAMPLES = 10_000_000


def run_trial(
    n_variables: int, n_levels: int, rank: int, n_samples: int, seed: int
) -> tuple[RankChoice, float]:
    """Choose the rank of samples of one model; and the cost over that of an EM pass."""
    rng = np.random.default_rng([n_variables, rank, n_samples, seed])
    prior, factors = published_factors(n_variables, n_levels, rank, rng)
    schema = pmf.Schema.from_cardinalities([n_levels] * n_variables)
    codes = sample_codes(prior, factors, schema.offsets, n_samples, rng, observed=0.5)
    counts = pmf.count_pairs(codes, schema)
    block, logs = DenseBlock(codes), take_logs(prior, factors)
    em_statistics(block, schema.offsets, *logs)
    started = time.process_time()
    em_statistics(block, schema.offsets, *logs)
    passed = time.process_time()
    choice = select_rank(counts)
    chosen = time.process_time()
    return choice, (chosen - passed) / ((passed - started) * PASS_SAMPLES / n_samples)


def main() -> None:
    """Print a line per shape, and one per miss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--samples", type=int, default=100_000)
    options = parser.parse_args()
    for n_variables, n_levels in SHAPES:
        errors, ratios = [], []
        for trial in range(options.trials):
            rank = RANKS[trial % len(RANKS)]
            choice, ratio = run_trial(n_variables, n_levels, rank, options.samples, trial)
            errors.append(choice.rank - rank)
            ratios.append(ratio)
            if choice.rank != rank:
                print(f"  planted {rank}: {choice.reason}", flush=True)
        print(
            f"{n_variables} variables of {n_levels} levels, {options.samples} samples: exact in "
            f"{errors.count(0)} of {len(errors)}, largest miss {max(map(abs, errors))}; cost over an EM "
            f"pass of {PASS_SAMPLES:g} samples: median {statistics.median(ratios):.2f}, "
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
