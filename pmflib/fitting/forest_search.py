"""The search for latent classes with forests, on samples in memory: starts, shrinkage, members, rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.counting.marginals import estimate_singles
from pmflib.counting.pair_counts import count_pairs
from pmflib.fitting.em_fit import EMFit
from pmflib.fitting.from_pairs import FitResult
from pmflib.model import JointPMF
from pmflib.selection.comparison import Comparison, PairedDifference, compare
from pmflib.trees.passed_samples import Samples
from pmflib.trees.tree_em import TreeOptions, TreeRun, run_tree_em
from pmflib.trees.tree_fit import Limits, TreeFit
from pmflib.trees.tree_pmf import TreePMF
from pmflib.trees.tree_samples import TreeSamples
from pmflib.trees.tree_statistics import TreeParameters

REFIT_PASSES = 10
"""Passes over all samples after a choice on a fold: from the model of the choice, with forests found anew."""

CLEAR = 2.0
"""Standard errors by which held-out samples must gain from forests, whose passes are many times as dear."""


class ForestSearch:
    """Fits with forests on training samples in memory, judged by held-out ones.

    Parameters
    ----------
    fit
        The fit without forests.
    training, held_codes
        Samples, of shape (n_rows, n_variables), -1 missing.
    plain
        Model without forests, that those with forests are compared with.
    """

    def __init__(
        self, fit: EMFit, training: IntArray, held_codes: IntArray, plain: JointPMF
    ) -> None:
        self.fit, self.plain = fit, plain
        self._offsets, self._members = fit.schema.offsets, fit.options.members
        self._training = self._open(training)
        self._held_out = TreeSamples(
            held_codes, self._offsets, fit.rank * self._members, fit.target
        )
        self._singles = self._estimate(training)
        self.limits = find_limits(fit)
        self._without = TreeParameters.plain(plain.prior, plain.factors, self._offsets)

    def run(self, ranks: Sequence[int]) -> tuple[list[TreeRun], list[Comparison]]:
        """Fit a model, or each member of an average.

        Parameters
        ----------
        ranks
            Numbers of latent states of a model, rising, at least one. They are tried until held-out samples have not
            become more likely twice; the least is taken that is within one standard error of the best.
        """
        found: dict[int, tuple[TreeFit, TreeRun, list[Comparison]]] = {}
        n_worse, best = 0, -np.inf
        for rank in ranks:
            found[rank] = self._fit_rank(rank)
            score = found[rank][1].score
            n_worse = 0 if score > best else n_worse + 1
            best = max(best, score)
            if n_worse == 2:
                break
        ranks, ranked = sorted(found), []
        chosen = ranks[0]
        if len(ranks) > 1:
            runs = [found[rank][1] for rank in ranks]
            comparison = compare(
                "sample",
                [{"rank": rank} for rank in ranks],
                [each.score for each in runs],
                subtract=lambda a, b: self._compare_runs(runs[a], runs[b]),
                rule="least",
            )
            chosen, ranked = int(comparison.chosen.settings["rank"]), [comparison]
        trees, first, comparisons = found[chosen]
        more = [trees.fit_member(k, first.options) for k in range(1, self._members)]
        return [first, *more], [*comparisons, *ranked]

    def choose(
        self, models: Sequence[TreeParameters], is_forced: bool, judge: Samples | None = None
    ) -> Comparison:
        """Compare models with forests, one or the members of an average, with the one without.

        Parameters
        ----------
        models
            The models.
        is_forced
            Whether forests are taken whatever the samples say.
        judge
            Held-out samples; None is those of the search.
        """
        candidates = [[self._without], list(models)]
        held_out = self._held_out if judge is None else judge
        scores = [held_out.score(each) for each in candidates]

        def subtract(first: int, second: int) -> PairedDifference:
            return held_out.compare(candidates[first], candidates[second])

        settings = [{"dependence": "none"}, {"dependence": "tree"}]
        gain, error = subtract(1, 0)
        chosen = int(is_forced or gain > CLEAR * error)
        compared = compare(
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

    def _fit_rank(self, rank: int) -> tuple[TreeFit, TreeRun, list[Comparison]]:
        """Fit of a rank, the best run of it, and what was compared."""
        report = self.fit.on_pass
        whole = "" if rank == self.fit.rank else f", rank {rank}"
        trees = TreeFit(
            self._training,
            self._held_out,
            self._singles,
            rank,
            self.fit.seed,
            self.limits,
            None
            if report is None
            else lambda name, state: report(f"forests{whole}, {name}", state),
        )
        pseudo_count = float(self.plain.origin.get("pseudo_count", 1.0))
        run, comparisons = trees.fit(self._without, TreeOptions(pseudo_count=pseudo_count))
        return trees, run, comparisons

    def _compare_runs(self, first: TreeRun, second: TreeRun) -> PairedDifference:
        """Mean gain of a held-out sample by the first of two runs over the second."""
        return self._held_out.compare([first.parameters], [second.parameters])

    def _open(self, codes: IntArray) -> TreeSamples:
        return TreeSamples(codes, self._offsets, self.fit.rank)

    def _estimate(self, codes: IntArray) -> FloatArray:
        return estimate_singles(count_pairs(codes, self.fit.schema, n_folds=1))


def find_limits(fit: EMFit) -> Limits:
    """When runs of a fit end."""
    return Limits(fit.passes.max_passes, fit.passes.tol, fit.passes.patience)


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
