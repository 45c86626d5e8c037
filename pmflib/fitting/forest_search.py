"""The search for latent classes with forests: starts, shrinkage, members; and more passes after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray
from pmflib.core.comparison import Comparison, PairedDifference, compare_candidates
from pmflib.counting.marginals import estimate_code_singles
from pmflib.em.forests.em import TreeOptions, TreeRun, run_tree_em
from pmflib.em.forests.samples import TreeSamples
from pmflib.fitting.em_fit import EMFit
from pmflib.fitting.fit_result import FitResult
from pmflib.fitting.tree_fit import TreeFit
from pmflib.model import JointPMF
from pmflib.model.forests.statistics import TreeParameters
from pmflib.model.forests.tree_pmf import TreePMF

REFIT_PASSES = 10
"""Passes over all samples after a choice on a fold: from the model of the choice, with forests found anew."""

CLEAR = 2.0
"""Standard errors by which held-out samples must gain from forests, whose passes are many times as dear."""


class FoundForests(NamedTuple):
    """What a search has found: a run for each member, and what was compared."""

    runs: list[TreeRun]
    comparisons: list[Comparison]

    def to_arrays(self) -> Arrays:
        """The model and the options of each run, and what was compared, as a checkpoint keeps them."""
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
        """What `to_arrays` was called on, without the passes that led there."""
        found = json.loads(str(arrays["found"]))
        runs = [
            TreeRun.begin(
                TreeParameters.from_arrays(f"{number}", offsets, arrays), TreeOptions(**options)
            )
            for number, options in enumerate(found["options"])
        ]
        return cls(runs, [*map(Comparison.from_json, found["comparisons"])])


class ForestSearch:
    """Fits with forests on training samples in memory, evaluated by held-out ones.

    Parameters
    ----------
    fit
        The fit without forests.
    training, held_out_codes
        Samples, of shape (n_rows, n_variables), -1 missing.
    plain
        Model without forests, that those with forests are compared with.
    """

    def __init__(
        self, fit: EMFit, training: IntArray, held_out_codes: IntArray, plain: JointPMF
    ) -> None:
        self.fit, self.plain = fit, plain
        self._offsets, self._members = fit.schema.offsets, fit.options.members
        self._training = self._open(training)
        self._held_out = TreeSamples.load(
            held_out_codes, self._offsets, fit.rank * self._members, fit.target
        )
        self._singles = self._estimate(training)
        self.limits = fit.limits
        self._without = TreeParameters.plain(plain.prior, plain.factors, self._offsets)

    def run(self) -> FoundForests:
        """Fit a model, or each member of an average."""
        report = self.fit.on_pass
        trees = TreeFit(
            self._training,
            self._held_out,
            self._singles,
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
        self, models: Sequence[TreeParameters], is_forced: bool, held_out: TreeSamples | None = None
    ) -> Comparison:
        """Compare models with forests, one or the members of an average, with the one without.

        Parameters
        ----------
        models
            The models.
        is_forced
            Whether forests are taken whatever the samples say.
        held_out
            Held-out samples; None is those of the search.
        """
        candidates = [[self._without], list(models)]
        held_out = self._held_out if held_out is None else held_out
        scores = [held_out.score(each) for each in candidates]

        def subtract(first: int, second: int) -> PairedDifference:
            return held_out.compare(candidates[first], candidates[second])

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

    def refit(self, runs: Sequence[TreeRun], codes: IntArray) -> list[TreeParameters]:
        """Fit all samples, each model from where it was."""
        samples, singles = self._open(codes), self._estimate(codes)
        limits = self.limits._replace(max_passes=min(REFIT_PASSES, self.limits.max_passes))
        return [
            run_tree_em(
                samples, each.parameters, each.options, singles, **limits._asdict()
            ).parameters
            for each in runs
        ]

    def _open(self, codes: IntArray) -> TreeSamples:
        return TreeSamples.load(codes, self._offsets, self.fit.rank)

    def _estimate(self, codes: IntArray) -> FloatArray:
        return estimate_code_singles(codes, self.fit.schema.offsets)


def report_forests(
    fit: EMFit,
    runs: Sequence[TreeRun],
    models: Sequence[TreeParameters],
    notes: tuple[str, ...],
    comparisons: Sequence[Comparison],
    *,
    method: str = "trees+em",
) -> FitResult:
    """Result of models with forests, one or their average.

    Parameters
    ----------
    fit
        The fit.
    runs
        Runs that led to the models.
    models
        The models, of one rank.
    notes, comparisons
        What was found.
    method
        Name of the method.
    """
    first = runs[0]
    forests = [each.forest for each in models]
    origin: dict[str, object] = {
        "method": method,
        "dependence": "tree",
        "passes": first.best_pass,
        **first.options._asdict(),
        "edges_per_state": sum(each.n_edges for each in forests)
        / sum(each.rank for each in forests),
    }
    if len(models) > 1:
        origin |= {"average": len(models), "final": True}
    # the density of pseudo-counts is left out: the tables' depend on the model itself
    return FitResult(
        model=TreePMF.make(TreeParameters.join(list(models)), fit.schema, origin),
        loss_history=tuple(-each for each in first.log_likelihoods),
        held_out=tuple(each for each in first.held_out if np.isfinite(each)),
        best_pass=first.best_pass,
        converged=all(each.converged for each in runs),
        method=method,
        notes=notes,
        comparisons=tuple(comparisons),
        log_likelihoods=first.log_likelihoods,
    )
