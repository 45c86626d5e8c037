"""What a fit gives: the model, how it was reached, and what is said of that."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pmflib.core.comparison import Comparison
from pmflib.core.errors import ConvergenceWarning, PmfError
from pmflib.counting.pair_counts import PairCounts
from pmflib.display.summary import Summarised, Summary
from pmflib.model import JointPMF

if TYPE_CHECKING:
    from pmflib.display.drawing import Axes
    from pmflib.fitting.criteria import CompositeCriteria, Criteria


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
        from pmflib.display.summary import cut, decimal, format_count, nats, summarise_comparison
        from pmflib.model.figures import tabulate_states

        n_steps = len(self.loss_history)
        settled = "yes" if self.converged else "no"
        facts = [
            ("method", cut(self.method)),
            ("latent states", format_count(self.model.rank)),
            ("free parameters", format_count(self.model.n_parameters)),
            ("converged", f"{settled}, after {format_count(n_steps)} passes or iterations"),
        ]
        if self.loss_history:
            ends = self.loss_history[:1] + self.loss_history[1:][-1:]
            facts.append(("loss, first and last", " and ".join(map(decimal, ends))))
        if self.log_likelihoods:
            facts.append(
                ("log-likelihood", f"{nats(self.log_likelihoods[-1])} nats per training sample")
            )
        if self.held_out:
            facts.append(("held out", f"{nats(max(self.held_out))} nats per sample"))
        notes = list(self.notes)
        if not self.converged:
            notes.insert(
                0, "It stopped before it converged: allow more passes, or look at the loss"
            )
        compared = (summarise_comparison(each, folded=True) for each in self.comparisons)
        tables = (tabulate_states(self.model), *compared)
        sizes = map(format_count, (self.model.schema.n_variables, self.model.rank))
        headline = "Fit of {} variables, {} latent states".format(*sizes)
        return Summary(headline, tuple(facts), tuple(notes), tables)

    def criteria(self, samples: object) -> Criteria | CompositeCriteria:
        """Information criteria of the model on what it was fitted to; less is better.

        Parameters
        ----------
        samples
            The samples, in memory or `StoredSamples`: AIC, BIC, ICL and the entropy of the posteriors. `PairCounts` of
            at least two folds, for a model that `fit` made of them: AIC and BIC of the composite likelihood of pairs.

        Raises
        ------
        SchemaError
            If the samples or counts do not fit the model's schema.
        PmfError
            If the model has continuous traits, or counts are given and it has forests, or fewer than two folds hold a
            pair.
        MemoryPlanError
            If counts are given and the model is too large for their criteria.

        Notes
        -----
        They hold for maximum likelihood: pseudo-counts and averages of fits make them too strict. Held-out samples,
        which rank "auto" compares, hold for all fits.
        """
        # loaded where it is asked for: it reads stored samples, and forests
        from pmflib.fitting.criteria import score_composite, score_samples

        if isinstance(samples, PairCounts):
            return score_composite(self.model, samples)
        return score_samples(self.model, samples)

    def plot_convergence(self, **options: Any) -> Axes:
        """Draw how the fit converged: log-likelihoods by pass of EM, or the loss by iteration of a fit of counts.

        See `pmflib.fitting.figures.plot_passes` and `plot_losses`.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or the result has no history.
        """
        from pmflib.fitting.figures import plot_losses, plot_passes

        if self.log_likelihoods:
            return plot_passes(self.log_likelihoods, self.held_out, self.best_pass, **options)
        if not self.loss_history:
            raise PmfError(f"method {self.method!r} is direct: it has no iterations to draw")
        return plot_losses(self.loss_history, **options)


class SettledRank(NamedTuple):
    """The rank of a fit, what was compared to choose it, and the result where the choice has made the fit already."""

    rank: int
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()
    result: FitResult | None = None

    def explain(self, result: FitResult) -> FitResult:
        """Put how the rank was chosen before what is said of a fit of that rank."""
        return replace(
            result,
            comparisons=(*self.comparisons, *result.comparisons),
            notes=(*self.notes, *result.notes),
        )


def warn_if_stopped(result: FitResult, max_passes: int) -> None:
    """Warn whoever has called the caller of a fit that stopped at the limit of passes."""
    if not result.converged and max_passes > 0:
        warnings.warn(
            f"EM stopped at max_passes={max_passes} before it converged; raise max_passes or tol",
            ConvergenceWarning,
            stacklevel=4,
        )


def summarise_fit(result: FitResult) -> dict[str, object]:
    """Summary of a fit by EM in plain JSON types: what the manifest of a store says of a model."""
    return {
        "method": result.method,
        "rank": result.model.rank,
        **result.model.summarise_dependence(),
        "pseudo_count": result.model.origin["pseudo_count"],
        "passes": len(result.loss_history),
        "best_pass": result.best_pass,
        "converged": result.converged,
        "passes_saved": round(result.passes_saved),
        "log_likelihood_per_row": list(result.log_likelihoods),
        "held_out_per_row": list(result.held_out),
        "notes": list(result.notes),
        "comparisons": [each.to_json() for each in result.comparisons],
    }
