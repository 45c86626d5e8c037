"""Methods that fit pairwise counts by one solver, as `pmflib.methods.PAIR_METHODS` names them.

All are called alike: with the counts, the rank, and a random generator, which some have no use for.
"""

from __future__ import annotations

import numpy as np

from pmflib.arrays import Parameters
from pmflib.counting.marginals import Marginals, estimate_singles
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import PmfError, RankError
from pmflib.solvers.pairs.composite import fit_composite
from pmflib.solvers.pairs.mirror import fit_mirror
from pmflib.solvers.pairs.random_start import start_random
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.solvers.pairs.symnmf import fit_symnmf
from pmflib.solvers.result import SolverResult

MAX_OPT_ITERATIONS = 2000
"""Limit of opt's iterations: each is cheap, and the last digits come slowly."""


def run_spa(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_spa`, which draws nothing."""
    marginals = _normalise(counts)
    return fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=rank)


def run_opt(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_composite`, from spa."""
    marginals = _normalise(counts)
    initial, notes = _start_from_spa(counts, marginals, rank, rng)
    found = fit_composite(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        initial=initial,
        max_iter=MAX_OPT_ITERATIONS,
    )
    return found.with_notes(notes)


def run_mirror(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_mirror`, from spa and a uniform prior.

    The prior of the published synthetic experiments is uniform, and so is its start in the released code.
    """
    marginals = _normalise(counts)
    (_, factors), notes = _start_from_spa(counts, marginals, rank, rng)
    found = fit_mirror(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        initial=(np.full(rank, 1 / rank), factors),
    )
    return found.with_notes(notes)


def run_symnmf(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_symnmf`."""
    marginals = _normalise(counts)
    return fit_symnmf(marginals.pairs, marginals.offsets, marginals.observed, rank=rank, rng=rng)


def run_random(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Draw a start by `start_random`; a single variable will do."""
    singles = estimate_singles(counts)
    prior, factors = start_random(singles, counts.schema.offsets, rank=rank, rng=rng)
    return SolverResult(prior, factors, (), 0, True)


def _normalise(counts: PairCounts) -> Marginals:
    if counts.schema.n_variables == 1:
        raise PmfError("method needs two variables, and a single one has no pairs; use 'random'")
    return Marginals.from_counts(counts)


def _start_from_spa(
    counts: PairCounts, marginals: Marginals, rank: int, rng: np.random.Generator
) -> tuple[Parameters, tuple[str, ...]]:
    """Model of spa, or a random start where it cannot have the rank; and a note on either."""
    try:
        found = fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=rank)
    except RankError as error:
        singles = estimate_singles(counts)
        start = start_random(singles, marginals.offsets, rank=rank, rng=rng)
        return start, (f"random start, because spa cannot: {error}",)
    return (found.prior, found.factors), found.notes
