"""Fitting a model to triple counts: the classical rival of pairs."""

from __future__ import annotations

import warnings
from typing import Literal, get_args

import numpy as np

from pmflib.argument_checks import check_counts
from pmflib.counting.marginals import estimate_singles
from pmflib.counting.triple_counts import TripleCounts, TripleMarginals
from pmflib.errors import ConvergenceWarning, PmfError
from pmflib.fitting.from_pairs import FitResult
from pmflib.model import JointPMF
from pmflib.near_names import suggest
from pmflib.reporting.work_progress import reports_progress
from pmflib.solvers.checks import check_rank
from pmflib.solvers.pairs.random_start import start_random
from pmflib.solvers.triples.kl_divergence import fit_ctd_kl
from pmflib.solvers.triples.least_squares import fit_ctd

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

    Pairs are fitted faster and from far fewer samples (`pmflib.fit`); triples distinguish more states where few
    variables have few levels.

    Parameters
    ----------
    counts
        Counts of at least three variables.
    rank
        Number of latent states, at least 1.
    loss
        "kl": the triples' composite likelihood. "squares": least squares.
    rng
        Generator of the start, or a seed for one.

    Raises
    ------
    RankError
        If the rank is below 1.
    PmfError
        If the loss is not known, or there are fewer than three variables.

    Warns
    -----
    ConvergenceWarning
        If the solver stops at its limit of iterations.

    References
    ----------
    Kargas, Sidiropoulos and Fu (2018), IEEE Transactions on Signal Processing 66; Yeredor and Haardt (2019), IEEE
    Signal Processing Letters 26.
    """
    check_counts(counts, TripleCounts)
    check_rank(rank)
    if loss not in get_args(Loss):
        raise PmfError(
            f"loss is {loss!r}; give one of {get_args(Loss)}{suggest(loss, get_args(Loss))}"
        )
    if counts.schema.n_variables < 3:
        raise PmfError(
            f"there are {counts.schema.n_variables} variables, and triples need three; fit pairs instead"
        )
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
    model = JointPMF(found.prior, found.factors, counts.schema, {"method": method})
    return FitResult(
        model, found.loss_history, (), found.n_iter, found.converged, method, found.notes
    )
