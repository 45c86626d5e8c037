"""Fitting a model to pairwise counts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pmflib.argument_checks import check_counts
from pmflib.counting.pair_counts import PairCounts
from pmflib.displays.summary import Summarised, Summary
from pmflib.errors import ConvergenceWarning
from pmflib.methods import PAIR_METHODS, document_methods, find_method
from pmflib.model import JointPMF
from pmflib.reporting.work_progress import reports_progress
from pmflib.selection.comparison import Comparison
from pmflib.solvers.checks import check_rank

if TYPE_CHECKING:
    from pmflib.plots.drawing import Axes


@dataclass(frozen=True, eq=False)
class FitResult(Summarised):
    """A model and how it was reached.

    Parameters
    ----------
    model
        The fitted joint PMF.
    loss_history
        Loss after each iteration or pass; it never rises. For a fit of counts the mean KL divergence over
        the observed pairs, nats, with the pseudo-counts' share (auto), or the root mean square error of the pairs
        (symnmf); for EM minus the penalised log-likelihood per sample, nats.
    held_out
        Held-out log-likelihood per sample, nats, after each pass, or of the result alone; empty where nothing was held
        out. Of a fit to all samples, that of the trial before it.
    best_pass
        Pass after which the model was taken (EM), or the number of iterations.
    converged
        Whether the method met its tolerance.
    method
        Name of the method that made the model.
    notes
        Sentences that a careful user should know.
    passes_saved
        Passes that acceleration has saved, by the estimate of `pmflib.solvers.numeric.squarem`; 0 without it.
    comparisons
        What was chosen on held-out data, with all candidates and their scores.
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
    comparisons: tuple[Comparison, ...] = ()
    log_likelihoods: tuple[float, ...] = ()

    def __repr__(self) -> str:
        """The model, how it was reached, how good it is, and the notes."""
        parts = [f"{self.model!r}", f"{len(self.loss_history)} passes or iterations"]
        parts.append("converged" if self.converged else "not converged")
        if self.loss_history:
            parts.append(f"loss {self.loss_history[-1]:.6g}")
        if self.held_out:
            parts.append(f"held out {max(self.held_out):.6g} nats per sample")
        return f"FitResult({', '.join(parts)}{''.join(f'; {note}' for note in self.notes)})"

    def summary(self) -> Summary:
        """Convergence, held-out scores, what was compared, states: text in a terminal, HTML in a notebook."""
        from pmflib.displays.model_summary import summarise_fit

        return summarise_fit(self)

    def plot_convergence(self, **options: Any) -> Axes:
        """Draw how the fit converged: see `pmflib.plots.fit_plots.plot_convergence`."""
        from pmflib.plots.fit_plots import plot_convergence

        return plot_convergence(self, **options)


@document_methods(PAIR_METHODS)
@reports_progress
def fit(
    counts: PairCounts,
    rank: int | Literal["auto"],
    *,
    method: str = "auto",
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit a model to pairwise co-occurrence counts; the cost does not depend on the number of samples.

    Parameters
    ----------
    counts
        Co-occurrence counts; "auto" holds folds out to choose, the other methods add them up.
    rank
        Number of latent states, at least 1; "auto" has `pmflib.select_rank` choose it, and the result's comparisons and
        notes say how.
    method
        A name of `pmflib.methods.PAIR_METHODS`:
        {methods}
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
        If a solver (opt, mirror, symnmf) stops at its limit of iterations; auto only says so in its result.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """
    check_counts(counts, PairCounts)
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()
    if rank == "auto":
        from pmflib.ranks.by_pairs import select_rank  # ranks are chosen by fits

        seed = int(np.random.default_rng(rng).integers(2**31))
        choice = select_rank(counts, rng=seed)
        rank, rng = choice.rank, seed
        comparisons, notes = choice.comparisons, (choice.reason, *choice.notes)
    check_rank(rank)
    chosen = find_method(PAIR_METHODS, method)
    found = chosen.load()(counts, rank, np.random.default_rng(rng))
    if chosen.family == "solver" and not found.converged:
        warnings.warn(
            f"{method} stopped after {found.n_iter} iterations before it converged; use 'auto', or go "
            "on from its model with EM",
            ConvergenceWarning,
            stacklevel=3,
        )
    method = found.method or method
    model = JointPMF(found.prior, found.factors, counts.schema, {"method": method})
    return FitResult(
        model,
        found.loss_history,
        (),
        found.n_iter,
        found.converged,
        method,
        (*notes, *found.notes),
        comparisons=(*comparisons, *found.comparisons),
    )
