"""Fits of pairwise counts with a given rank, by method.

All functions take the counts, the rank, and a random generator, which some do not use.
"""

from __future__ import annotations

import warnings

import numpy as np

from pmflib.core.arrays import Parameters
from pmflib.core.errors import ConvergenceWarning, PmfError, RankError
from pmflib.core.methods import PAIR_METHODS, find_method
from pmflib.counting.marginals import Marginals, estimate_singles
from pmflib.counting.pair_counts import PairCounts
from pmflib.fitting.fit_result import FitResult
from pmflib.model import JointPMF
from pmflib.solvers import SolverResult, check_rank
from pmflib.solvers.pairs.composite import fit_composite
from pmflib.solvers.pairs.mirror import fit_mirror
from pmflib.solvers.pairs.pair_matrix import start_random
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.solvers.pairs.symnmf import fit_symnmf

MAX_OPT_ITERATIONS = 2000
"""Maximum number of iterations of opt: each is cheap, and the last digits converge slowly."""


def fit_by_method(
    counts: PairCounts, rank: int, method: str, rng: np.random.Generator | int
) -> FitResult:
    """Fit counts as `pmflib.fit` does, with a known rank; parameters and errors are the same.

    Warns
    -----
    ConvergenceWarning
        If a solver stops at its limit of iterations. The warning points to the caller's caller, because a library
        function that reports progress is in between.
    """
    check_rank(rank)
    chosen = find_method(PAIR_METHODS, method)
    found = chosen.load()(counts, rank, np.random.default_rng(rng))
    if chosen.family == "solver" and not found.converged:
        warnings.warn(
            f"{method} stopped after {found.n_iter} iterations before it converged; use 'auto', or go "
            "on from its model with EM",
            ConvergenceWarning,
            stacklevel=4,
        )
    method = found.method or method
    return FitResult(
        JointPMF(found.prior, found.factors, counts.schema, {"method": method}).sort_states(),
        found.loss_history,
        (),
        found.n_iter,
        found.converged,
        method,
        found.notes,
        comparisons=found.comparisons,
    )


def run_spa(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_spa`, which is deterministic."""
    marginals = _normalise(counts)
    return fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=rank)


def run_opt(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_composite`, starting from spa."""
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
    """Fit by `fit_mirror`, starting from spa and a uniform prior.

    The prior in the published synthetic experiments is uniform, and so is its starting value in the released code.
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
    """Draw a start by `start_random`; a single variable is sufficient."""
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
    """Return the fit of spa, or a random start if spa does not support the rank, with a note."""
    try:
        found = fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=rank)
    except RankError as error:
        singles = estimate_singles(counts)
        start = start_random(singles, marginals.offsets, rank=rank, rng=rng)
        return start, (f"random start, because spa cannot: {error}",)
    return (found.prior, found.factors), found.notes
