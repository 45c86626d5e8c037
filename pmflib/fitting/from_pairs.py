"""From counts to a model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pmflib.counting.marginals import Marginals, estimate_singles
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import ConvergenceWarning, PmfError, RankError
from pmflib.fitting.auto_method import fit_chosen, fit_pairs
from pmflib.model import JointPMF
from pmflib.solvers.pairs.composite import fit_composite
from pmflib.solvers.pairs.mirror import fit_mirror
from pmflib.solvers.pairs.random_start import start_random
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.solvers.pairs.symnmf import fit_symnmf
from pmflib.solvers.result import SolverResult

Method = Literal["auto", "spa", "opt", "mirror", "symnmf", "pairs", "random"]


@dataclass(frozen=True, eq=False)
class FitResult:
    """A model and how it was reached.

    Parameters
    ----------
    model
        The fitted joint PMF.
    loss_history
        What the method lowers, per iteration or pass; never rises. For a fit of counts the mean KL divergence over
        the observed pairs, nats, with the pseudo-counts' share (auto), or the root mean square error of the pairs
        (symnmf); for EM minus the penalised log-likelihood per sample, nats.
    held_out
        Held-out log-likelihood per sample, nats, after each pass, or of the result alone; empty where nothing was held
        out. Of a fit to all samples, that of the trial before it.
    best_pass
        Pass after which the model stood (EM), or the number of iterations.
    converged
        Whether the method met its tolerance.
    method
        What made the model.
    notes
        What a careful user should know.
    passes_saved
        Passes that acceleration has saved, by the estimate of `pmflib.solvers.numeric.squarem`; 0 without it.
    log_likelihoods
        Training log-likelihood per sample before each pass (EM), nats; empty for a fit of counts.
    """

    model: JointPMF
    loss_history: tuple[float, ...]
    held_out: tuple[float, ...]
    best_pass: int
    converged: bool
    method: str
    notes: tuple[str, ...] = ()
    passes_saved: float = 0.0
    log_likelihoods: tuple[float, ...] = ()


def fit(
    counts: PairCounts,
    rank: int,
    *,
    method: Method = "auto",
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit a model to pairwise co-occurrence counts; the cost does not depend on the number of samples.

    Parameters
    ----------
    counts
        Co-occurrence counts; "auto" holds folds out to choose, the other methods add them up.
    rank
        Number of latent states, at least 1.
    method
        "auto": several starts and pseudo-counts, judged on held-out folds, then the pairwise composite likelihood;
        the notes say what was chosen and why. "spa": CNMF-SPA. "opt": CNMF-OPT from spa, by closed-form updates.
        "mirror": CNMF-OPT as published, slow. "symnmf": symmetric NMF. Starts for EM only: "random", the marginals,
        shaken; "pairs", these after a few of opt's updates. Where the counts cannot carry the rank, opt and mirror
        start at random.
    rng
        Generator, or a seed for one; spa does not use it.

    Returns
    -------
    The model and how it was reached. With pseudo-counts the loss holds their share too.

    Raises
    ------
    RankError
        If the rank is below 1, or (spa, symnmf) above what the variables and their counts can carry.
    PmfError
        If the method is not known, or needs pairs where there is a single variable.

    Warns
    -----
    ConvergenceWarning
        If opt, mirror or symnmf stop at their limit of iterations; auto only says so in its result.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """
    if rank < 1:
        raise RankError(f"rank is {rank}; give at least 1")
    if method not in get_args(Method):
        raise PmfError(f"method is {method!r}; give one of {get_args(Method)}")
    generator = np.random.default_rng(rng)
    if method == "random":
        return _start_at_random(counts, rank, generator, ())
    if counts.schema.n_variables == 1:
        if method not in ("auto", "pairs"):
            raise PmfError(
                f"method is {method!r}, and a single variable has no pairs; use 'random'"
            )
        lone = "random start: a single variable has no pairs"
        return _start_at_random(counts, rank, generator, (lone,))
    if method == "auto" and rank > 1:
        found, choice = fit_chosen(counts, rank, generator)
        return _report(found, counts, choice.method, choice.notes)
    if method == "pairs" and rank > 1:
        return _report(fit_pairs(counts, rank, generator), counts, method, ())
    if method in ("auto", "pairs"):
        # one state is the single marginals, whatever the method
        method = "spa"
    found, notes = _fit_pairs(Marginals.from_counts(counts), counts, rank, method, generator)
    if not found.converged:
        warnings.warn(
            f"{method} stopped after {found.n_iter} iterations before it converged; use 'auto', or go "
            "on from its model with EM",
            ConvergenceWarning,
            stacklevel=2,
        )
    return _report(found, counts, method, notes)


def _fit_pairs(
    marginals: Marginals, counts: PairCounts, rank: int, method: str, rng: np.random.Generator
) -> tuple[SolverResult, tuple[str, ...]]:
    """Run one pairwise solver."""
    data = marginals.pairs, marginals.offsets, marginals.observed
    if method == "symnmf":
        found = fit_symnmf(*data, rank=rank, rng=rng)
        return found, found.notes
    notes: tuple[str, ...] = ()
    try:
        begun = fit_spa(*data, rank=rank)
        initial, notes = (begun.prior, begun.factors), begun.notes
    except RankError as error:
        if method == "spa":
            raise
        singles = estimate_singles(counts)
        initial = start_random(singles, marginals.offsets, rank=rank, rng=rng)
        notes = (f"random start, because spa cannot: {error}",)
    else:
        if method == "spa":
            return begun, notes
    if method == "mirror":
        # as released: the prior of the synthetic experiments is uniform, and so is its start
        found = fit_mirror(*data, initial=(np.full(rank, 1 / rank), initial[1]))
    else:
        found = fit_composite(*data, initial=initial, max_iter=2000)
    return found, (*notes, *found.notes)


def _start_at_random(
    counts: PairCounts, rank: int, rng: np.random.Generator, notes: tuple[str, ...]
) -> FitResult:
    singles = estimate_singles(counts)
    prior, factors = start_random(singles, counts.schema.offsets, rank=rank, rng=rng)
    return _report(SolverResult(prior, factors, (), 0, True), counts, "random", notes)


def _report(
    found: SolverResult, counts: PairCounts, method: str, notes: tuple[str, ...]
) -> FitResult:
    model = JointPMF(found.prior, found.factors, counts.schema, {"method": method})
    return FitResult(model, found.loss_history, (), found.n_iter, found.converged, method, notes)
