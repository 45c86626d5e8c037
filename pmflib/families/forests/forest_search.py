"""Search for latent classes with forests: starts, shrinkage and members; and the final refit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import Arrays, FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import Comparison, PairedDifference, compare_candidates
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.counts.marginals import estimate_block_singles
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.families.forests.em import (
    TreeOptions,
    TreeRun,
    add_up,
    load_samples,
    run_tree_em,
    score_under_forests,
)
from pmflib.families.forests.statistics import TreeParameters, tree_m_step
from pmflib.families.forests.tree_fit import TreeFit
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.fits.criteria import measure_fit
from pmflib.fits.em_fit import EMFit
from pmflib.fits.fit_result import STILL, FitResult
from pmflib.fits.fit_statistics import HeldOutScore
from pmflib.inference.checks.bivariate_residuals import measure_residuals
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin

REFIT_PASSES = 10
"""Number of passes over all samples after a choice on a fold, starting from the chosen model with re-estimated
forests.
"""

CLEAR = 2.0
"""Standard errors by which forests must improve the held-out likelihood, because their passes are many times slower."""


class FoundForests(NamedTuple):
    """Result of a search: a run per member, and the comparisons."""

    runs: list[TreeRun]
    comparisons: list[Comparison]

    def to_arrays(self) -> Arrays:
        """Convert models, options and comparisons to checkpoint arrays."""
        found = {
            "options": [each.options._asdict() for each in self.runs],
            "comparisons": [each.to_json() for each in self.comparisons],
        }
        arrays = {"found": np.array(json.dumps(found))}
        for number, run in enumerate(self.runs):
            arrays |= run.parameters.to_arrays(f"{number}")
        return arrays

    @classmethod
    def from_arrays(cls, offsets: IntArray, arrays: Arrays) -> FoundForests:
        """Restore a result from `to_arrays`, without the history of passes."""
        found = json.loads(str(arrays["found"]))
        runs = [
            TreeRun.begin(
                TreeParameters.from_arrays(f"{number}", offsets, arrays), TreeOptions(**options)
            )
            for number, options in enumerate(found["options"])
        ]
        return cls(runs, [*map(Comparison.from_json, found["comparisons"])])


class FittedForests(NamedTuple):
    """Runs of one rank with their models and samples.

    Parameters
    ----------
    runs
        One run per member.
    training
        Samples that were fitted.
    singles
        PMF of each variable in these samples, as for `run_tree_em`.
    held_out
        Held-out samples, not used in fitting; None if there are none.
    trial
        Runs without a fold of the samples, from whose models these runs continue.
    """

    runs: Sequence[TreeRun]
    training: BlockSource
    singles: FloatArray
    held_out: BlockSource | None = None
    trial: FittedForests | None = None

    def score(self) -> HeldOutScore | None:
        """Return the held-out likelihood of the models, or of the preceding trial."""
        if self.trial is not None:
            score = self.trial.score()
            return None if score is None else replace(score, n_trials=1)
        if self.held_out is None:
            return None
        per_row = self.held_out.score([each.parameters for each in self.runs], score_under_forests)
        return HeldOutScore(per_row, self.held_out.n_samples)

    def find_change(self) -> float:
        """Compute the largest change of a probability of the first model in one more pass with the same forests."""
        model, options = self.runs[0].parameters, self.runs[0].options
        shape = PseudoCounts.shaped_by(self.singles, self.training.offsets, options.pseudo_count)
        shrinkage = options.edge_pseudo_count, options.pooled_share
        updated = tree_m_step(add_up(self.training, model), model, shape, *shrinkage)
        pairs = (model.prior, updated.prior), (model.tables, updated.tables)
        return max(float(np.abs(new - old).max(initial=0.0)) for old, new in pairs)


class ForestSearch:
    """Search for fits with forests on training samples in memory, evaluated on held-out samples.

    Parameters
    ----------
    fit
        The fit without forests.
    training, held_out
        Training and held-out samples.
    plain
        Model without forests, used for comparison.
    """

    def __init__(
        self, fit: EMFit, training: DenseBlock, held_out: DenseBlock, plain: JointPMF
    ) -> None:
        self.fit, self.plain = fit, plain
        self._offsets, self._members = fit.schema.offsets, fit.options.members
        self.training = self._open(training)
        self.held_out = load_samples(held_out, self._offsets, fit.rank * self._members, fit.target)
        self.singles = estimate_block_singles(training, self._offsets)
        self.limits = fit.limits
        self._without = TreeParameters.plain(plain.prior, plain.factors, self._offsets)

    def run(self) -> FoundForests:
        """Fit a model, or each member of an average."""
        report = self.fit.on_pass
        trees = TreeFit(
            self.training,
            self.held_out,
            self.singles,
            self.fit.rank,
            self.fit.seed,
            self.limits,
            None if report is None else lambda name, state: report(f"forests, {name}", state),
        )
        pseudo_count = float(self.plain.origin.get("pseudo_count", 1.0))
        first, comparisons = trees.fit(self._without, TreeOptions(pseudo_count=pseudo_count))
        more = [trees.fit_member(k, first.options) for k in range(1, self._members)]
        return FoundForests([first, *more], comparisons)

    def choose(
        self, models: Sequence[TreeParameters], is_forced: bool, held_out: BlockSource | None = None
    ) -> Comparison:
        """Compare models with forests, one or the members of an average, with the one without.

        Parameters
        ----------
        models
            The models.
        is_forced
            Whether forests are used regardless of the samples.
        held_out
            Held-out samples; None uses those of the search.
        """
        candidates = [[self._without], list(models)]
        held_out = self.held_out if held_out is None else held_out
        scores = [held_out.score(each, score_under_forests) for each in candidates]

        def subtract(first: int, second: int) -> PairedDifference:
            return held_out.compare(candidates[first], candidates[second], score_under_forests)

        settings = [{"dependence": "none"}, {"dependence": "tree"}]
        gain, error = subtract(1, 0)
        chosen = int(is_forced or gain > CLEAR * error)
        compared = compare_candidates(
            "sample", settings, scores, subtract=subtract, rule="least", chosen=chosen
        )
        if chosen or gain <= 0:
            return compared
        reason = (
            f"dependence none: forests make held-out samples {gain:.2g} +- {error:.2g} nats more likely, which is not "
            f"above {CLEAR:g} standard errors"
        )
        return replace(compared, reason=reason)

    def refit(self, trial: FittedForests, block: DenseBlock) -> FittedForests:
        """Fit all samples, starting each model from its trial."""
        samples, singles = self._open(block), estimate_block_singles(block, self._offsets)
        limits = self.limits._replace(max_passes=min(REFIT_PASSES, self.limits.max_passes))
        again = [
            run_tree_em(samples, each.parameters, each.options, singles, limits=limits)
            for each in trial.runs
        ]
        return FittedForests(again, samples, singles, trial=trial)

    def _open(self, block: DenseBlock) -> BlocksInMemory:
        return load_samples(block, self._offsets, self.fit.rank)


def report_forests(
    fit: EMFit,
    fitted: FittedForests,
    notes: tuple[str, ...],
    comparisons: Sequence[Comparison],
    *,
    method: str = "trees+em",
) -> FitResult:
    """Build the result of models with forests, a single one or an average.

    Parameters
    ----------
    fit
        The fit.
    fitted
        Runs of the models.
    notes, comparisons
        Notes and comparisons so far.
    method
        Name of the method.
    """
    runs = fitted.runs
    first, models = runs[0], [each.parameters for each in runs]
    forests = [each.forest for each in models]
    facts: dict[str, object] = {
        "method": method,
        "dependence": "tree",
        "passes": first.best_pass,
        **first.options._asdict(),
        "edges_per_state": sum(each.n_edges for each in forests)
        / sum(each.rank for each in forests),
    }
    if len(models) > 1:
        facts |= {"average": len(models), "final": True}
    model = TreePMF.make(TreeParameters.join(models), fit.schema, ModelOrigin.of(facts))
    if len(models) == 1 and not fit.is_refining:
        model = model.sort_states()
    training = measure_fit(model, fitted.training)
    change = fitted.find_change() if len(models) == 1 else None
    # a refit makes as few passes as the trial leaves
    judged = fitted.trial or fitted
    is_single = len(models) == 1 and not fit.options.trial
    measured = measure_residuals(model, fitted.training) if is_single else None
    tried, has_ended = judged.runs[0], all(each.converged for each in judged.runs)
    is_early = bool(tried.held_out) or fitted.trial is not None
    converged = has_ended and (not is_early if change is None else change <= STILL)
    # without the log-density of pseudo-counts, because those of tables depend on the model itself
    return FitResult(
        model=model,
        loss_history=tuple(-each for each in first.log_likelihoods),
        held_out=tuple(filter(np.isfinite, tried.held_out[: tried.best_pass + 1])),
        best_pass=first.best_pass,
        converged=converged,
        method=method,
        notes=notes,
        comparisons=tuple(comparisons),
        log_likelihoods=(*first.log_likelihoods[: first.best_pass], training.per_row),
        training=training,
        held_out_score=fitted.score(),
        last_change=change,
        stopped_early=has_ended and is_early and not converged,
        residuals=None if measured is None else measured[0],
    )
