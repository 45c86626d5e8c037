"""Fits of models to pairwise counts by any method, and to triple counts."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from pmflib.base.arrays import check_counts
from pmflib.base.constraints import OneOf, at_least, check
from pmflib.base.display.progress import reports_progress
from pmflib.base.errors import ConvergenceWarning
from pmflib.base.method_options import MethodChoice
from pmflib.base.methods import PAIR_METHODS, document_methods
from pmflib.base.pseudo_counts import check_rank, warn_of_rank
from pmflib.base.weights import note_weights
from pmflib.counts.marginals import estimate_singles
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.triple_counts import TripleCounts, TripleMarginals
from pmflib.fits.fit_result import FitResult
from pmflib.fits.pair_fits import fit_by_method
from pmflib.fits.ranks.by_pairs import select_rank
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.papers.pair_matrix import start_random
from pmflib.papers.triples import fit_ctd, fit_ctd_kl


@document_methods(PAIR_METHODS)
@reports_progress
def fit(
    counts: PairCounts,
    rank: int | Literal["auto"],
    *,
    method: MethodChoice = "auto",
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit a model to pairwise co-occurrence counts; the cost does not depend on the number of samples.

    Parameters
    ----------
    counts
        Co-occurrence counts. "auto" holds out folds for its choices; the other methods sum the folds. Weighted counts
        are converted to effective samples.
    rank
        Number of latent states, at least 1; with "auto" it is chosen by `pmflib.fits.select_rank`, as described in the
        comparisons and notes of the result.
    method
        One of `pmflib.base.methods.PAIR_METHODS`, or a mapping of its ``name`` and options, such as ``{"name": "opt",
        "loss": "squares"}``:
        {methods}
    rng
        Random generator, or a seed; not used by spa.

    Returns
    -------
    The model and the history of the fit. With pseudo-counts, the loss includes their term.

    Raises
    ------
    RankError
        If the rank is below 1, or (spa, symnmf) too large for the variables and their counts.
    PmfError
        If the method or an option is unknown, or the method needs pairs and there is only one variable.

    Warns
    -----
    ConvergenceWarning
        If a solver (opt, mirror, symnmf) reaches its limit of iterations; "auto" reports this only in its result.
    RankWarning
        If the rank is above the number of samples, before anything is computed.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """
    check_counts(counts, PairCounts)
    notes: tuple[str, ...] = ()
    if counts.weights is not None:
        notes = (note_weights(int(counts.n_rows.sum()), counts.n_effective),)
    counts = counts.to_samples()
    if rank != "auto":
        check_rank(rank)
        warn_of_rank(rank, int(counts.n_rows.sum()))
        result = fit_by_method(counts, rank, method, rng)
        return replace(result, notes=(*notes, *result.notes))
    seed = int(np.random.default_rng(rng).integers(2**31))
    choice = select_rank(counts, rng=seed)
    result = fit_by_method(counts, choice.rank, method, seed)
    return replace(
        result,
        notes=(*notes, choice.reason, *choice.notes, *result.notes),
        comparisons=(*choice.comparisons, *result.comparisons),
    )


Loss = Literal["kl", "squares"]


@reports_progress
def fit_triples(
    counts: TripleCounts,
    rank: int,
    *,
    loss: Loss = "kl",
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit a model to triple counts from a random start, on one machine.

    Pairs can be fitted faster and with far fewer samples (`pmflib.fit`); triples can distinguish more states if there
    are few variables with few levels.

    Parameters
    ----------
    counts
        Counts of at least three variables.
    rank
        Number of latent states, at least 1.
    loss
        "kl": composite likelihood of the triples. "squares": least squares.
    rng
        Random generator for the start, or a seed.

    Raises
    ------
    RankError
        If the rank is below 1.
    PmfError
        If the loss is unknown, or there are fewer than three variables.

    Warns
    -----
    ConvergenceWarning
        If the solver reaches its limit of iterations.

    References
    ----------
    Kargas, Sidiropoulos and Fu (2018), IEEE Transactions on Signal Processing 66; Yeredor and Haardt (2019), IEEE
    Signal Processing Letters 26.
    """
    check_counts(counts, TripleCounts)
    check_rank(rank)
    check(OneOf(get_args(Loss)), loss=loss)
    check(at_least(3, "or fit pairs instead"), n_variables=counts.schema.n_variables)
    marginals = TripleMarginals.from_counts(counts)
    # half a pseudo-count rules out nothing that no sample held: multiplicative updates never leave a zero
    singles = estimate_singles(counts)
    initial = start_random(singles, marginals.offsets, rank=rank, rng=np.random.default_rng(rng))
    if loss == "kl":
        found = fit_ctd_kl(
            marginals.triples,
            marginals.offsets,
            marginals.observed,
            marginals.singles,
            initial=initial,
            weights=marginals.support,
        )
    else:
        found = fit_ctd(
            marginals.triples,
            marginals.offsets,
            marginals.observed,
            marginals.singles,
            initial=initial,
        )
    method = f"triples-{loss}"
    if not found.converged:
        warnings.warn(
            f"{method} stopped after {found.n_iter} iterations before it converged; go on from its "
            "model with EM",
            ConvergenceWarning,
            stacklevel=3,
        )
    model = JointPMF(found.prior, found.factors, counts.schema, ModelOrigin(method=method))
    return FitResult(
        model.sort_states(),
        found.loss_history,
        (),
        found.n_iter,
        found.converged,
        method,
        found.notes,
    )
