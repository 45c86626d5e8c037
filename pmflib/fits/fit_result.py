"""Result of a fit: the model, the history of the fit, and notes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pmflib.base.comparison import Comparison
from pmflib.base.display.summary import Summarised, Summary, SummaryTable
from pmflib.base.errors import ConvergenceWarning, PmfError
from pmflib.counts.pair_counts import PairCounts
from pmflib.fits.fit_statistics import STATISTICS, Criteria, HeldOutScore
from pmflib.fits.target_pool import TargetPool
from pmflib.model import JointPMF
from pmflib.model.identification import describe_undetermined
from pmflib.model.rungs import RungFit, tabulate_ladder

if TYPE_CHECKING:
    import pandas as pd

    from pmflib.base.display.drawing import Axes
    from pmflib.fits.criteria import CompositeCriteria
    from pmflib.fits.exports import Errors

STILL = 1e-3
"""Largest change of a probability in one more pass for a converged fit: the third decimal is stable."""


class Residuals(Protocol):
    """Dependence of pairs of variables within states: what the hook ``"fit_notes"`` measures."""

    @property
    def pairs(self) -> Sequence[Any]:
        """Results of all tested pairs, the most significant first."""

    @property
    def large(self) -> Sequence[Any]:
        """Those that are dependent."""

    @property
    def n_taken(self) -> int | None:
        """Number of samples they were computed from if these are a subset."""

    def describe(self) -> str:
        """Return a phrase for a summary."""

    def tabulate(self) -> SummaryTable:
        """Return the table of a summary."""

    def to_json(self) -> dict[str, object]:
        """Return plain JSON types."""

    @property
    def plot(self) -> Callable[..., Axes]:
        """Function that draws them."""


@dataclass(frozen=True, eq=False)
class FitResult(Summarised):
    """A fitted model and the history of its fit.

    Parameters
    ----------
    model
        The fitted joint PMF.
    loss_history
        Loss after each iteration, or before each pass, non-increasing. For a fit to counts: the mean KL divergence over
        the observed pairs, nats, with a term for the pseudo-counts (auto), or the root mean square error of the pairs
        (symnmf). For EM: minus the penalised log-likelihood per sample, nats, averaged over fits side by side.
    held_out
        Held-out log-likelihood per sample, nats, of the start and after each pass up to the selected model, or of the
        selected model only; empty without held-out data. For a fit to all samples, that of the preceding trials.
    best_pass
        Pass after which the model was selected (EM), or the number of iterations.
    converged
        Whether further passes gain no more than the tolerance and another pass changes no probability by more than
        `STILL`; for a fit to counts, whether the method met its tolerance.
    method
        Name of the method that made the model.
    notes
        One sentence for each point to be aware of.
    passes_saved
        Estimated number of passes saved by acceleration (`pmflib.papers.squarem`); 0 without it.
    comparisons
        Choices made on held-out data, with all candidates and their scores.
    log_likelihoods
        Training log-likelihood per sample before each pass and of the final model (EM), nats, averaged over fits side
        by side. Empty for a fit to counts.
    training
        Likelihood and information criteria on the training samples; None for a fit to counts, for which
        ``criteria(counts)`` gives those of the pairs.
    held_out_score
        Likelihood of the held-out samples; None if there are none.
    last_change
        Largest change of a probability in one more pass; None if unknown: for averages, whose members have separate
        passes, and for fits without EM.
    stopped_early
        Whether held-out samples ended the passes before the training likelihood reached its maximum.
    residuals
        Pairs of variables that are dependent within states; for many samples, computed from a subset. None for
        averages, fits with many parameters, `pmflib.families.fit_traits`, and large stored samples.
    trial
        Model fitted before without the held-out fold, which chose the options; None if all choices were given.
    ladder
        Rungs of a stack with their weights; empty for other fits.
    pool
        Models whose predictions of the target are averaged, of a stack with a target; None otherwise.
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
    training: Criteria | None = None
    held_out_score: HeldOutScore | None = None
    last_change: float | None = None
    stopped_early: bool = False
    residuals: Residuals | None = None
    trial: JointPMF | None = None
    ladder: tuple[RungFit, ...] = ()
    pool: TargetPool | None = None

    def __repr__(self) -> str:
        """One-line representation with method, fit and notes."""
        parts = [f"{self.model!r}", f"{len(self.loss_history)} passes or iterations"]
        ending = "ended by held-out samples" if self.stopped_early else "not converged"
        parts.append("converged" if self.converged else ending)
        if self.training is not None:
            parts.append(f"log-likelihood {self.training.per_row:.6g} nats per training row")
        elif self.loss_history:
            parts.append(f"loss {self.loss_history[-1]:.6g}")
        if self.held_out_score is not None:
            parts.append(f"held out {self.held_out_score.per_row:.6g} nats per sample")
        return f"FitResult({', '.join(parts)}{''.join(f'; {note}' for note in self.notes)})"

    def summary(self) -> Summary:
        """Summary with convergence, held-out scores, comparisons and states."""
        from pmflib.base.display.summary import cut, decimal, format_count, tabulate_comparison

        n_steps = len(self.loss_history) or self.best_pass
        settled = "yes" if self.converged else "no, ended by held-out samples"
        if not (self.converged or self.stopped_early):
            settled = "no"
        settled += f", after {format_count(n_steps)} passes or iterations"
        if self.last_change is not None:
            settled += f"; one more changes probabilities by at most {decimal(self.last_change, 2)}"
        facts = [
            ("method", cut(self.method)),
            ("latent states", self.model.describe_rank()),
            ("converged", settled),
        ]
        tables = [self.model.tabulate_states()]
        said = "" if self.training is None else self.training.describe_gain()
        if self.held_out_score is not None:
            said = self.held_out_score.describe_gain() or said
        if said:
            facts.insert(0, ("better than single variables", said))
        if self.training is not None:
            facts.append(("log-likelihood", self.training.describe()))
            tables.append(self.training.tabulate())
        else:
            facts.append(("free parameters", format_count(self.model.n_parameters)))
            if self.loss_history:
                ends = self.loss_history[:1] + self.loss_history[1:][-1:]
                facts.append(("loss, first and last", " and ".join(map(decimal, ends))))
        if self.held_out_score is not None:
            facts.append(("held out", self.held_out_score.describe()))
        if self.ladder and not self.model.origin.is_stack:
            tables.insert(0, tabulate_ladder(self.ladder))
        if self.pool is not None:
            tables.insert(0, tabulate_ladder(self.pool.rungs, "Models averaged for the target"))
        if self.residuals is not None:
            facts.append(("within states", self.residuals.describe()))
            tables.append(self.residuals.tabulate())
        notes = [*filter(None, (describe_undetermined(self.model),)), *self.notes]
        if not (self.converged or self.stopped_early):
            notes.insert(
                0,
                "The fit stopped before convergence: allow more passes, raise tol, or check the loss",
            )
        tables += [tabulate_comparison(each, folded=True) for each in self.comparisons]
        sizes = map(format_count, (self.model.schema.n_variables, self.model.rank))
        headline = "Fit of {} variables, {} latent states".format(*sizes)
        return Summary(headline, tuple(facts), tuple(notes), tuple(tables))

    def criteria(self, samples: object) -> Criteria | CompositeCriteria:
        """Likelihood and information criteria on the training data.

        Parameters
        ----------
        samples
            Samples, in memory or `StoredSamples`: gives AIC, BIC, ICL and the entropy of the posteriors. `PairCounts`
            of at least two folds, for a model fitted to them by `fit`: gives AIC and BIC of the composite likelihood of
            pairs.

        Raises
        ------
        SchemaError
            If the samples or counts do not fit the model's schema.
        PmfError
            If counts are given and the model has forests or traits, or fewer than two folds have pairs.
        MemoryPlanError
            If counts are given and the model is too large for these criteria.

        Notes
        -----
        The criteria assume maximum likelihood; with pseudo-counts or averages of fits they are too strict. Comparisons
        on held-out samples, such as rank "auto", are valid for all fits.
        """
        # imported on demand: it loads stored samples and forests
        from pmflib.fits.criteria import score_composite, score_samples

        if isinstance(samples, PairCounts):
            return score_composite(self.model, samples)
        return score_samples(self.model, samples)

    def to_frame(self, errors: Errors | None = None) -> pd.DataFrame:
        """All parameters as a pandas DataFrame with one row per parameter.

        Parameters
        ----------
        errors
            Standard errors and intervals, from `pmflib.inference.standard_errors`: a mapping from names of arrays to
            objects with
            arrays ``errors``, ``lower`` and ``upper`` of the same shapes; None leaves these columns empty.

        Returns
        -------
        Columns ``parameter``, ``state``, ``variable``, ``level``, ``value``, ``error``, ``lower``, ``upper``. Latent
        classes have the ``share`` of each state and the ``probability`` of each level given the state; item responses
        the ``discrimination`` of each variable and trait, each ``threshold`` of one trait, and, as logits that sum to 0
        over the levels of a variable, the ``intercept`` and ``slope`` of each level.

        Raises
        ------
        PmfError
            If pandas is not installed, or errors belong to another model.
        """
        from pmflib.fits.exports import make_frame

        return make_frame(self.model, errors)

    def to_csv(self, path: str | Path, errors: Errors | None = None) -> None:
        """Write all parameters as UTF-8 CSV with the columns of ``to_frame`` and full precision.

        Parameters
        ----------
        path
            File to write.
        errors
            As for ``to_frame``; unknown values are empty.

        Raises
        ------
        PmfError
            If errors belong to another model.
        """
        from pmflib.fits.exports import write_csv

        write_csv(self.model, Path(path), errors)

    def to_excel(self, path: str | Path, errors: Errors | None = None) -> None:
        """Write an Excel workbook with sheets ``parameters``, ``profiles`` of the states, and ``fit``.

        Parameters
        ----------
        path
            File to write.
        errors
            As for ``to_frame``.

        Raises
        ------
        PmfError
            If openpyxl is not installed (``pip install 'pmflib[excel]'``), or errors belong to another model.
        """
        from pmflib.fits.exports import write_workbook

        found: dict[str, Any] = {"method": self.method, "latent states": self.model.rank}
        found["converged"] = "yes" if self.converged else "no"
        if self.training is not None:
            made = self.training.to_json()
            found["log-likelihood, nats"] = made["log_likelihood"]
            found["log-likelihood per row, nats"] = made["per_row"]
            found |= {title: made[name] for name, title in STATISTICS.items()}
        if self.held_out_score is not None:
            found["held out"] = self.held_out_score.describe()
        write_workbook(self.model, found, Path(path), errors)

    def plot_convergence(self, **options: Any) -> Axes:
        """Plot the convergence of the fit: log-likelihoods by EM pass, or the loss by iteration of a fit to counts.

        See `pmflib.fits.figures.plot_passes` and `plot_losses`.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or the result has no history.
        """
        from pmflib.fits.figures import plot_losses, plot_passes

        if self.log_likelihoods:
            return plot_passes(self.log_likelihoods, self.held_out, self.best_pass, **options)
        if not self.loss_history:
            raise PmfError(f"method {self.method!r} is direct: there are no iterations to plot")
        return plot_losses(self.loss_history, **options)

    def plot_residuals(self, **options: Any) -> Axes:
        """Plot which pairs of variables are dependent within states; see `pmflib.inference.bivariate_residuals`.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or the result has no residuals.
        """
        if self.residuals is None:
            raise PmfError(
                "the result has no residuals; pmflib.inference.bivariate_residuals(result.model, samples).plot() "
                "draws them"
            )
        return self.residuals.plot(**options)


_NAMED = ("pseudo_count", "n_traits")
"""Properties of a model that its summary repeats, if available."""


def warn_if_stopped(result: FitResult, max_passes: int) -> None:
    """Warn that a fit stopped at its limit of passes."""
    if not result.converged and not result.stopped_early and result.best_pass >= max_passes > 0:
        warnings.warn(
            f"EM stopped at max_passes={max_passes} before it converged; raise max_passes or tol",
            ConvergenceWarning,
            stacklevel=4,
        )


def summarise_fit(result: FitResult) -> dict[str, object]:
    """Return a summary of a fit in plain JSON types, as recorded in the manifest of a store."""
    held_out = result.held_out_score
    return {
        "method": result.method,
        "rank": result.model.rank,
        **result.model.summarise_kind(),
        **{name: result.model.origin[name] for name in _NAMED if name in result.model.origin},
        "passes": len(result.loss_history) or result.best_pass,
        "best_pass": result.best_pass,
        "converged": result.converged,
        "stopped_early": result.stopped_early,
        "last_change": result.last_change,
        "passes_saved": round(result.passes_saved),
        "fit": None if result.training is None else result.training.to_json(),
        "held_out": None if held_out is None else held_out.to_json(),
        "residuals": None if result.residuals is None else result.residuals.to_json(),
        "log_likelihood_per_row": list(result.log_likelihoods),
        "held_out_per_row": list(result.held_out),
        "notes": list(result.notes),
        "comparisons": [each.to_json() for each in result.comparisons],
        "ladder": [each.to_json() for each in result.ladder],
    }
