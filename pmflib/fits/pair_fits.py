"""Fits of pairwise counts with a given rank, by method.

All functions take the counts, the rank, and a random generator, which some do not use.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.base.arrays import BoolArray, Parameters
from pmflib.base.constraints import Interval, check
from pmflib.base.errors import ConvergenceWarning, PmfError, RankError
from pmflib.base.method_options import MethodChoice, configure_method, method_option
from pmflib.base.methods import PAIR_METHODS
from pmflib.base.pseudo_counts import SolverResult, check_rank
from pmflib.counts.marginals import Marginals, estimate_singles
from pmflib.counts.pair_counts import PairCounts
from pmflib.fits.fit_result import FitResult
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.papers.mirror import fit_mirror
from pmflib.papers.opt import fit_composite
from pmflib.papers.pair_matrix import start_random
from pmflib.papers.spa import SpaSettings, fit_spa
from pmflib.papers.squares import fit_pair_squares
from pmflib.papers.symnmf import SymnmfSettings, fit_symnmf


@dataclass(frozen=True)
class PairOptions:
    """Options of all methods that fit pairs until they converge."""

    min_support: int = method_option(
        1, "samples that a pair of variables needs to count as observed", least=1
    )


@dataclass(frozen=True)
class SpaOptions(PairOptions):
    """Options of `run_spa`; split "first" with unobserved pairs "zero" is the published algorithm."""

    split: Literal["best", "first"] = method_option(
        "best",
        "the split of the variables: of six, the one that fits the pairs best; or the first variables, as published",
    )
    n_first: int = method_option(
        0,
        'variables on the first side of split "first", M of the paper; 0 is half of them',
        least=0,
    )
    unobserved: Literal["independent", "zero"] = method_option(
        "independent",
        "what stands for an unobserved pair: the product of the single marginals, or zeros",
    )


@dataclass(frozen=True)
class IteratedOptions(PairOptions):
    """Options of `run_mirror`."""

    tol: float = method_option(
        1e-6, "relative decrease of the loss at which to stop, as published", least=0
    )
    max_iter: int = method_option(200, "limit of the iterations", least=0)


@dataclass(frozen=True)
class OptOptions(IteratedOptions):
    """Options of `run_opt`."""

    loss: Literal["kl", "squares"] = method_option(
        "kl", "distance of the model from the pairs: Kullback-Leibler divergence or least squares"
    )
    weights: Literal["equal", "support"] = method_option(
        "equal", "weights of the pairs: equal, as published, or their samples"
    )
    # each iteration is cheap, and the last digits converge slowly
    max_iter: int = method_option(2000, "limit of the iterations", least=0)


@dataclass(frozen=True)
class SymnmfOptions(PairOptions):
    """Options of `run_symnmf`."""

    unobserved: Literal["refine", "independent", "zero"] = method_option(
        "refine",
        "what stands for an unobserved pair: the low-rank approximation of all pairs, the product of the single "
        "marginals, or zeros",
    )
    rotation: Literal["accelerated", "shifted"] = method_option(
        "accelerated",
        "how the root is made nonnegative: with momentum from several starts, or by the published shifted ReLU",
    )
    shift: float = method_option(1e-6, "threshold of the first step of the shifted ReLU", least=0)
    shift_decay: float = method_option(
        1.0,
        "factor of the threshold in each step; shift and decay psi are psi^(t+1)",
        least=0,
        most=1,
    )
    n_starts: int = method_option(10, "starts of the accelerated rotation", least=1)
    tol: float = method_option(1e-5, "relative change at which to stop", least=0)
    max_iter: int = method_option(100, "limit of the rounds of imputation", least=0)


_PAIRS, _SPA, _OPT, _SYMNMF = IteratedOptions(), SpaOptions(), OptOptions(), SymnmfOptions()


def fit_by_method(
    counts: PairCounts, rank: int, method: MethodChoice, rng: np.random.Generator | int
) -> FitResult:
    """Fit counts as `pmflib.fit` does, with a known rank; parameters and errors are the same.

    Warns
    -----
    ConvergenceWarning
        If a solver stops at its limit of iterations. The warning points to the caller's caller, because a library
        function that reports progress is in between.
    """
    check_rank(rank)
    chosen, options = configure_method(PAIR_METHODS, method)
    arguments = () if options is None else (options,)
    found = chosen.load()(counts, rank, np.random.default_rng(rng), *arguments)
    if chosen.family == "solver" and not found.converged:
        warnings.warn(
            f"{chosen.name} stopped after {found.n_iter} iterations before it converged; use 'auto', or go "
            "on from its model with EM",
            ConvergenceWarning,
            stacklevel=4,
        )
    name = found.method or chosen.name
    return FitResult(
        JointPMF(found.prior, found.factors, counts.schema, ModelOrigin(method=name)).sort_states(),
        found.loss_history,
        (),
        found.n_iter,
        found.converged,
        name,
        found.notes,
        comparisons=found.comparisons,
    )


def run_spa(
    counts: PairCounts, rank: int, rng: np.random.Generator, options: SpaOptions = _SPA
) -> SolverResult:
    """Fit by `fit_spa`, which is deterministic."""
    marginals = _normalise(counts, options)
    split = _split_first(counts.schema.n_variables, options) if options.split == "first" else None
    return fit_spa(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        rank=rank,
        split=split,
        settings=SpaSettings(zero_unobserved=options.unobserved == "zero"),
    )


def _split_first(n_variables: int, options: SpaOptions) -> BoolArray:
    """Return the published split: the first variables, True, and the others."""
    n_first = options.n_first or (n_variables + 1) // 2
    check(Interval(most=n_variables - 1), **{"spa.n_first": n_first})
    return np.arange(n_variables) < n_first


def run_opt(
    counts: PairCounts, rank: int, rng: np.random.Generator, options: OptOptions = _OPT
) -> SolverResult:
    """Fit by `fit_composite`, or `fit_pair_squares`, starting from spa."""
    marginals = _normalise(counts, options)
    initial, notes = _start_from_spa(counts, marginals, rank, rng)
    fit = fit_composite if options.loss == "kl" else fit_pair_squares
    found = fit(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        initial=initial,
        weights=marginals.support if options.weights == "support" else None,
        max_iter=options.max_iter,
        tol=options.tol,
    )
    return found.with_notes(notes)


def run_mirror(
    counts: PairCounts, rank: int, rng: np.random.Generator, options: IteratedOptions = _PAIRS
) -> SolverResult:
    """Fit by `fit_mirror`, starting from spa and a uniform prior.

    The prior in the published synthetic experiments is uniform, and so is its starting value in the released code.
    """
    marginals = _normalise(counts, options)
    (_, factors), notes = _start_from_spa(counts, marginals, rank, rng)
    found = fit_mirror(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        initial=(np.full(rank, 1 / rank), factors),
        max_iter=options.max_iter,
        tol=options.tol,
    )
    return found.with_notes(notes)


def run_symnmf(
    counts: PairCounts, rank: int, rng: np.random.Generator, options: SymnmfOptions = _SYMNMF
) -> SolverResult:
    """Fit by `fit_symnmf`."""
    marginals = _normalise(counts, options)
    settings = SymnmfSettings(
        unobserved=options.unobserved,
        shift=options.shift if options.rotation == "shifted" else None,
        shift_decay=options.shift_decay,
    )
    return fit_symnmf(
        marginals.pairs,
        marginals.offsets,
        marginals.observed,
        rank=rank,
        rng=rng,
        n_starts=options.n_starts,
        max_iter=options.max_iter,
        tol=options.tol,
        settings=settings,
    )


def run_random(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Draw a start by `start_random`; a single variable is sufficient."""
    singles = estimate_singles(counts)
    prior, factors = start_random(singles, counts.schema.offsets, rank=rank, rng=rng)
    return SolverResult(prior, factors, (), 0, True)


def _normalise(counts: PairCounts, options: PairOptions) -> Marginals:
    if counts.schema.n_variables == 1:
        raise PmfError("method needs two variables, and a single one has no pairs; use 'random'")
    return Marginals.from_counts(counts, min_support=options.min_support)


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
