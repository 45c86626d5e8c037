"""How many latent states, and whether with forests: few states with forests are tried before many without.

Variables that are columns of one fact depend on each other in any state. Latent classes need states for that, hundreds
in some tables, where a few states with forests say more in less time. So forests enter first: ranks are doubled from
one on, with forests, and the least that cannot be distinguished from the best is compared with latent classes of as
many states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.comparison import Comparison, PairedDifference, compare_candidates
from pmflib.core.defaults import LIMITS
from pmflib.counting.marginals import estimate_code_singles
from pmflib.em.forests.em import TreeOptions, TreeRun
from pmflib.em.forests.samples import TreeSamples, are_modest
from pmflib.fitting.candidates import Options
from pmflib.fitting.em_fit import EMFit, Passes
from pmflib.fitting.forest_search import CLEAR
from pmflib.fitting.ranks.choice import OnRankProgress, RankProgress
from pmflib.fitting.tree_fit import TreeFit
from pmflib.model.forests.statistics import TreeParameters
from pmflib.schema import Schema

MAX_RANK = 64
"""States with forests that are tried at most."""
PATIENCE = 1
"""Doublings without gain that end the search: passes with forests are dear, and the next is twice as dear."""
PSEUDO_COUNT = 1.0
"""Pseudo-count of all fits that are compared: the best shrinkage is chosen once the rank is."""


@dataclass(frozen=True)
class ForestRank:
    """The number of states with forests, and whether they are better than latent classes of as many.

    Parameters
    ----------
    rank
        The number of states.
    is_better
        Whether held-out samples are clearly more likely with forests.
    ranks
        The ranks that were compared, with forests.
    dependence
        Forests and none, of the rank that was chosen.
    """

    rank: int
    is_better: bool
    ranks: Comparison
    dependence: Comparison

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All that was compared."""
        return self.ranks, self.dependence

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences that say why."""
        return f"with forests: {self.ranks.reason}", self.dependence.reason


def choose_with_forests(
    schema: Schema,
    codes: IntArray,
    held_out: IntArray,
    *,
    target: int | None = None,
    seed: int = 0,
    on_progress: OnRankProgress | None = None,
) -> ForestRank | None:
    """Double the number of states with forests until held-out samples have not become more likely twice.

    Parameters
    ----------
    schema
        Variables.
    codes, held_out
        Samples to fit and others to evaluate on, (n_rows, n_variables), -1 missing.
    target
        Position of the variable that the model is to predict: ranks are compared by its log-likelihood given the
        others. None compares that of all variables.
    seed
        Seed of the starts.
    on_progress
        Called before each fit.

    Returns
    -------
    The choice; None where there is nothing to choose: no samples, one variable, or tables that are too large to be
    tried without being asked for.
    """
    offsets = schema.offsets
    if schema.n_variables < 2 or not len(codes) or not len(held_out) or not are_modest(offsets, 2):
        return None
    training = TreeSamples.load(codes, offsets, 1)
    validation = TreeSamples.load(held_out, offsets, 1, target)
    singles = estimate_code_singles(codes, schema.offsets)
    first = TreeOptions(pseudo_count=PSEUDO_COUNT)
    runs: dict[int, TreeRun] = {}
    rank, n_worse, best = 1, 0, -np.inf
    while rank <= MAX_RANK and n_worse < PATIENCE and are_modest(offsets, rank):
        if on_progress is not None:
            doing, ranks = f"rank {rank} with forests", (*runs, rank)
            on_progress(RankProgress("samples", doing, ranks, len(runs), len(runs) + 1, None))
        fit = TreeFit(training, validation, singles, rank, seed, LIMITS)
        runs[rank] = fit.find_best_start(first)
        n_worse = 0 if runs[rank].score > best else n_worse + 1
        best = max(best, runs[rank].score)
        rank *= 2
    tried = sorted(runs)

    def subtract(one: int, other: int) -> PairedDifference:
        models = [[runs[tried[each]].parameters] for each in (one, other)]
        return validation.compare(*models)

    scores = [runs[each].score for each in tried]
    settings = [{"rank": each} for each in tried]
    compared = compare_candidates("sample", settings, scores, subtract=subtract, rule="least")
    chosen = int(compared.chosen.settings["rank"])
    plain = _fit_plain(schema, codes, held_out, chosen, target, seed)
    dependence = _compare(validation, plain, runs[chosen].parameters)
    is_better = dependence.chosen.settings["dependence"] == "tree"
    return ForestRank(chosen, is_better, compared, dependence)


def _fit_plain(
    schema: Schema, codes: IntArray, held_out: IntArray, rank: int, target: int | None, seed: int
) -> TreeParameters:
    """Latent classes of a rank."""
    options = Options.make("random", PSEUDO_COUNT, 1, rank)
    fit = EMFit(schema, rank, options, seed, Passes(*LIMITS, False, None, None), target)
    samples = fit.open_held_out(held_out)
    assert samples is not None
    model = fit.fit_codes(codes, samples)[1].model
    return TreeParameters.plain(model.prior, model.factors, schema.offsets)


def _compare(held_out: TreeSamples, plain: TreeParameters, trees: TreeParameters) -> Comparison:
    candidates = [[plain], [trees]]

    def subtract(first: int, second: int) -> PairedDifference:
        return held_out.compare(candidates[first], candidates[second])

    gain, error = subtract(1, 0)
    return compare_candidates(
        "sample",
        [{"dependence": "none"}, {"dependence": "tree"}],
        [held_out.score(each) for each in candidates],
        subtract=subtract,
        rule="least",
        chosen=int(gain > CLEAR * error),
    )
