"""How to fit by EM: start, pseudo-count and number of passes, chosen on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pmflib.arrays import Parameters
from pmflib.em.joint_pmf_em import EMState
from pmflib.em.members import Runs, split_members
from pmflib.em.samples import Samples
from pmflib.fitting.averaging import average_parameters
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

PSEUDO_COUNTS = (0.1, 0.3, 1.0, 2.0)
"""Mean pseudo-counts per level and state that are compared."""

DEFAULT_PSEUDO_COUNT = 1.0
"""Where the comparison begins, and what is taken where nothing can be held out."""

N_STARTS = 8
"""Starts of a small fit, which are run until they have converged, and whose mean is a candidate."""

SMALL_WORK = 4_000_000
"""Observed cells times rank up to which a fit is small."""

PLENTY = 1000
"""Observed cells per free parameter from which there is nothing to choose: pseudo-counts and passes do not matter."""

KINDS = ("auto", "random")
KINDS_OF_MEMBERS = ("pairs", "random")
"""Kinds of starts that "auto" compares, for a single model and for members of an average, which must differ."""

# A held-out log-likelihood this near to the best, as a share, has not fallen.
_LEVEL = 1e-4

MakeStarts = Callable[[str, int], list[Parameters]]
"""Models to start from: of a kind, as many as asked for."""


@dataclass(frozen=True)
class Recipe:
    """How to fit; enough to do it again on other samples.

    Parameters
    ----------
    starts
        Kind of start, and number of starts, of each model that runs.
    pseudo_count
        Mean pseudo-count per level and state.
    passes
        Number of passes; None is until the objective has converged.
    kind
        What is made of several runs: their "average" as one model of summed rank, the "mean" of their parameters, or
        the "best" of them by the objective.
    notes
        What was compared, one sentence each.
    score
        Held-out log-likelihood of the model that it led to, nats per sample; None where nothing was held out.
    """

    starts: tuple[tuple[str, int], ...]
    pseudo_count: float
    passes: int | None = None
    kind: str = "average"
    notes: tuple[str, ...] = ()
    score: float | None = None

    @property
    def n_models(self) -> int:
        """Number of models that run side by side."""
        return sum(number for _, number in self.starts)

    @property
    def is_final(self) -> bool:
        """Whether EM would take the model apart."""
        return self.kind == "average" and self.n_models > 1


@dataclass(frozen=True)
class Options:
    """What a fit chooses from.

    Parameters
    ----------
    kinds
        Kinds of starts to compare, at least one; the first is the one that pseudo-counts are compared from.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, rising, at least one.
    members
        Number of models to average; 1 is a single model.
    small
        Whether to run `N_STARTS` starts until they have converged, and to compare the mean of their parameters with the
        best of them; else runs stop early, at the pass that is best on the held-out samples.
    """

    kinds: tuple[str, ...]
    pseudo_counts: tuple[float, ...] = PSEUDO_COUNTS
    members: int = 1
    small: bool = False

    @classmethod
    def make(
        cls, start: str, pseudo_count: float | Literal["auto"], members: int, rank: int
    ) -> Options:
        """What a start and a pseudo_count leave open, where they may be "auto"."""
        kinds: tuple[str, ...] = (start,)
        if start == "auto" and rank > 1:
            kinds = KINDS_OF_MEMBERS if members > 1 else KINDS
        return cls(kinds, PSEUDO_COUNTS if pseudo_count == "auto" else (pseudo_count,), members)

    def fit_to(self, n_observed: int, rank: int) -> Options:
        """The same, with several starts where the samples are few enough."""
        small = len(self.kinds) > 1 and self.members == 1 and n_observed * rank <= SMALL_WORK
        return replace(self, small=small)

    @property
    def n_models(self) -> int:
        """Models that run side by side at most."""
        return N_STARTS if self.small else self.members

    @property
    def is_open(self) -> bool:
        """Whether held-out samples could tell something."""
        return len(self.kinds) > 1 or len(self.pseudo_counts) > 1 or self.members > 1

    def settle(self) -> Recipe:
        """What is done without held-out samples."""
        pseudo_count = (
            self.pseudo_counts[0] if len(self.pseudo_counts) == 1 else DEFAULT_PSEUDO_COUNT
        )
        return Recipe(((self.kinds[0], self.members),), pseudo_count)


def is_plenty(n_observed: int, n_levels: int, rank: int) -> bool:
    """Whether there are so many samples that nothing is left to choose."""
    return n_observed >= PLENTY * n_levels * rank


def fit_options(
    runs: Runs, make_starts: MakeStarts, options: Options
) -> tuple[Recipe, Parameters, EMState]:
    """Fit in the way that is best on held-out samples, or, without any, as the options settle it."""
    if runs.held_out is not None:
        return find_recipe(runs, make_starts, options)
    recipe = options.settle()
    return recipe, *follow_recipe(recipe, runs, make_starts)


def find_recipe(
    runs: Runs, make_starts: MakeStarts, options: Options
) -> tuple[Recipe, Parameters, EMState]:
    """Compare ways to fit on held-out samples.

    Parameters
    ----------
    runs
        With held-out samples.
    make_starts
        Starts by kind.
    options
        What to compare.

    Returns
    -------
    The recipe, and the model and the state that it led to.
    """
    kinds, pseudo_counts, n_members = options.kinds, options.pseudo_counts, options.members
    if options.small:
        return _compare_converged(runs, make_starts, kinds, pseudo_counts)
    scores: dict[tuple[str, float], float] = {}
    ends: list[EMState] = []

    def run(kind: str, pseudo_count: float) -> float:
        state = runs.run(f"{kind}-{pseudo_count:g}", make_starts(kind, 1), pseudo_count)
        score = max(state.held_out)
        if not scores or score > max(scores.values()):
            # the others are not kept: of large models there is no room for many
            ends[:] = [state]
        scores[kind, pseudo_count] = score
        return score

    pseudo_count, by_pseudo_count = _climb(pseudo_counts, lambda each: run(kinds[0], each))
    for kind in kinds[1:]:
        run(kind, pseudo_count)
    best = max(kinds, key=lambda kind: scores[kind, pseudo_count])
    (state,) = ends
    notes = _explain_pseudo_count(pseudo_count, by_pseudo_count)
    if len(kinds) > 1:
        told = ", ".join(f"{kind}: {scores[kind, pseudo_count]:.5f}" for kind in kinds)
        notes += (f"start {best}: best held-out log-likelihood per sample ({told})",)
    if n_members > 1:
        state = runs.run("members", make_starts(best, n_members), pseudo_count)
        notes += (
            f"average of {n_members} fits: held-out log-likelihood per sample {max(state.held_out):.5f}, "
            f"of a single fit {scores[best, pseudo_count]:.5f}",
        )
    fallen = max(state.held_out) - state.held_out[-1] > _LEVEL * abs(max(state.held_out))
    passes = state.best_pass if fallen or not state.converged else None
    recipe = Recipe(
        ((best, n_members),), pseudo_count, passes, "average", notes, max(state.held_out)
    )
    assert state.best_prior is not None
    assert state.best_factors is not None
    return recipe, (state.best_prior, state.best_factors), state


def follow_recipe(
    recipe: Recipe, runs: Runs, make_starts: MakeStarts
) -> tuple[Parameters, EMState]:
    """Fit other samples in the same way.

    Parameters
    ----------
    recipe
        What to do.
    runs
        Of these samples; what they hold out is not looked at.
    make_starts
        Starts from the counts of these samples.

    Returns
    -------
    The model, and the state of the loop at its end.
    """
    if recipe.passes is not None:
        runs = replace(runs, max_passes=recipe.passes, tol=0.0)
    elif recipe.kind != "average":
        runs = replace(runs, accelerate=True)
    starts = [model for kind, number in recipe.starts for model in make_starts(kind, number)]
    state = runs.run("all", starts, recipe.pseudo_count, stop_early=False)
    return _combine(runs, state, recipe)[recipe.kind], state


def _compare_converged(
    runs: Runs, make_starts: MakeStarts, kinds: Sequence[str], pseudo_counts: Sequence[float]
) -> tuple[Recipe, Parameters, EMState]:
    """Several starts until they have converged: the mean of them, or the best."""
    starts = ((kinds[0], 1), (kinds[1], N_STARTS - 1))
    runs = replace(runs, accelerate=True)
    begun = [model for kind, number in starts for model in make_starts(kind, number)]
    assert runs.held_out is not None
    found: dict[float, tuple[Parameters, str, EMState]] = {}
    all_scores: dict[float, dict[str, float]] = {}
    for pseudo_count in pseudo_counts:
        state = runs.run(f"starts-{pseudo_count:g}", begun, pseudo_count, stop_early=False)
        models = _combine(runs, state, Recipe(starts, pseudo_count, kind="best"))
        scores = {kind: runs.held_out.score([model]) for kind, model in models.items()}
        kind = max(scores, key=lambda each: scores[each])
        found[pseudo_count], all_scores[pseudo_count] = (models[kind], kind, state), scores
    pseudo_count, notes = _choose_largest(
        runs.held_out,
        {each: model for each, (model, _, _) in found.items()},
        {each: max(scores.values()) for each, scores in all_scores.items()},
    )
    model, kind, state = found[pseudo_count]
    scores = all_scores[pseudo_count]
    told = ", ".join(f"{each}: {score:.5f}" for each, score in scores.items())
    notes += (f"{kind} of {N_STARTS} starts: held-out log-likelihood per sample ({told})",)
    recipe = Recipe(starts, pseudo_count, None, kind, notes, scores[kind])
    return recipe, model, state


def _choose_largest(
    held_out: Samples, models: dict[float, Parameters], scores: dict[float, float]
) -> tuple[float, tuple[str, ...]]:
    """Largest pseudo-count that held-out samples do not speak against, and a sentence on why.

    Of few samples the best score is chance. What is too large costs little, what is too small makes up dependence that
    is not there: so it is the largest whose loss against the best is within its standard error over the samples.

    References
    ----------
    Breiman, Friedman, Olshen, Stone (1984), Classification and Regression Trees, section 3.4.3, the one-SE rule, with
    paired differences.
    """
    best = max(scores, key=lambda each: scores[each])
    losses = {each: held_out.compare(models[best], model) for each, model in models.items()}
    chosen = max(each for each, (loss, error) in losses.items() if loss <= error or each == best)
    if len(scores) == 1:
        return chosen, ()
    told = ", ".join(f"{each:g}: {score:.5f}" for each, score in scores.items())
    reason = "best held-out log-likelihood per sample"
    if chosen != best:
        reason = (
            f"largest within one standard error of the {reason}, {losses[chosen][0]:.5f} +- {losses[chosen][1]:.5f} "
            f"below that of {best:g}"
        )
    return chosen, (f"pseudo-count {chosen:g}: {reason} ({told})",)


def _combine(runs: Runs, state: EMState, recipe: Recipe) -> dict[str, Parameters]:
    """What can be made of several runs, by kind."""
    joined = state.prior, state.factors
    if recipe.kind == "average":
        return {"average": joined}
    models = split_members(joined, recipe.n_models)
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, recipe.pseudo_count)
    heights = [
        statistics.log_likelihood + shape.log_penalty(*model)
        for statistics, model in zip(runs.training.evaluate(models), models, strict=True)
    ]
    best = models[int(np.argmax(heights))]
    return {"best": best, "mean": average_parameters(models)}


def _climb(
    values: Sequence[float], score: Callable[[float], float]
) -> tuple[float, dict[float, float]]:
    """Value of the best score, from the default on as long as neighbours are better, and the scores looked at."""
    at = values.index(DEFAULT_PSEUDO_COUNT) if DEFAULT_PSEUDO_COUNT in values else 0
    scores = {values[at]: score(values[at])}
    for step in (-1, 1):
        place = at + step
        while 0 <= place < len(values):
            scores[values[place]] = score(values[place])
            if scores[values[place]] <= scores[values[place - step]]:
                break
            place += step
        if place != at + step:
            # it went up this way: it goes down the other way
            break
    return max(scores, key=lambda each: scores[each]), scores


def _explain_pseudo_count(pseudo_count: float, scores: dict[float, float]) -> tuple[str, ...]:
    if len(scores) == 1:
        return ()
    told = ", ".join(f"{each:g}: {score:.5f}" for each, score in sorted(scores.items()))
    return (f"pseudo-count {pseudo_count:g}: best held-out log-likelihood per sample ({told})",)
