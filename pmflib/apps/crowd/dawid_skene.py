"""Dawid and Skene's model of label logs and its variants, as a family that EM fits.

A latent state is the class of a task, or one of two subclasses of it; every worker has a confusion matrix. The E-step
scores tasks under the current confusion matrices (`pmflib.apps.crowd.e_step`), the M-step estimates these from the
expected
labels (`pmflib.apps.crowd.m_step`). The methods "auto", "balanced", "one_coin", "dawid_skene" and "mv_em"
differ only in the parametrisation of the confusion matrices, an `AnnotatorModel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from pmflib.apps.crowd.e_step import LabelSource, LogWeights, VotedBlock, evaluate_blocks
from pmflib.apps.crowd.known_intercepts import MOST_SCORED, KnownScores, add_intercepts, score_known
from pmflib.apps.crowd.m_step import measure_agreement, update_crowd_model
from pmflib.apps.crowd.methods import CROWD_METHODS, LABEL_LIMITS, ORDINAL_METHODS
from pmflib.apps.crowd.pairs.annotator_model import (
    MAXIMUM_LIKELIHOOD,
    AnnotatorModel,
    CrowdModel,
    put_workers_last,
    split_subclasses,
)
from pmflib.base.arrays import Arrays, FloatArray
from pmflib.base.constraints import OneOf, at_least, check
from pmflib.base.defaults import Limits
from pmflib.base.methods import find_method
from pmflib.em.block_source import BlockSource
from pmflib.em.checkpoint import Checkpoint
from pmflib.em.family import Family, State, run_em
from pmflib.model.sufficient_statistics import EMStatistics, sum_fields

CrowdState: TypeAlias = State[CrowdModel]
"""Crowd model after some passes; ``numbers["moved"]`` is the share of labels that the last pass moved."""
OpenCheckpoint: TypeAlias = Callable[["DawidSkene", str], Checkpoint[CrowdState]]
"""Opens the checkpoint of a run by its family and a file name."""
OnPass: TypeAlias = Callable[[CrowdState], None]

STATE = "state.npz"
"""File name of the checkpoint of the passes."""
WITHOUT_KNOWN = "without-known.npz"
"""File name of the checkpoint of the passes before known labels are used."""
VOTE_WEIGHINGS = 3
"""Number of times that votes are weighed by the agreement of workers before passes start. Once is too few where a
majority of one label hides the agreement of the others. Chosen on the tuned half of benchmarks/crowd/regimes.py."""


@dataclass(frozen=True, eq=False)
class DawidSkene(Family[CrowdModel, EMStatistics]):
    """Crowd models of one parametrisation.

    Parameters
    ----------
    annotator_model
        Parametrisation of the confusion matrices.
    with_known
        Whether known labels are used; otherwise their tasks are scored like all others.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28.
    """

    annotator_model: AnnotatorModel
    with_known: bool = True

    def begin(self, source: LabelSource) -> CrowdState:
        """Estimate a crowd model from the votes, in one pass, or in a few if votes are weighed.

        Most models start from the shares of the votes. Models that weigh votes first ignore workers whose agreement
        with the others is that of chance, such as workers who give only one label, so that a majority of them does no
        harm. Workers who repeat each other have one vote together.
        """
        kind, n_classes = self.annotator_model, source.n_classes
        shares = kind.weigh_workers(source.n_workers)
        weights = LogWeights.from_votes(source.n_workers, n_classes)
        if kind.copiers:
            # agreement is not known yet
            weights = LogWeights.from_agreement(np.full(source.n_workers, 0.5), n_classes, shares)
        statistics = self._evaluate(source, weights)
        for _ in range(VOTE_WEIGHINGS if kind.weighs_votes and n_classes > 1 else 0):
            by_worker = statistics.level_mass.reshape(-1, n_classes, n_classes)
            agreement = measure_agreement(put_workers_last(by_worker))
            weights = LogWeights.from_agreement(agreement, n_classes, shares)
            statistics = self._evaluate(source, weights)
        mass = statistics.level_mass
        model = update_crowd_model(mass, statistics.state_mass, replace(kind, n_subclasses=1))
        if kind.n_subclasses == 2:
            return State(split_subclasses(model))
        return State(replace(model, label_mass=mass))

    def add(self, parameters: CrowdModel, blocks: Iterable[VotedBlock]) -> EMStatistics:
        """E-step: expected labels of every worker by state, and expected number of tasks of every state."""
        return evaluate_blocks(blocks, self._weigh(parameters))

    def start(self, source: BlockSource, state: CrowdState) -> Callable[[], EMStatistics]:
        """Start a pass; the logarithms of the model are computed once, not once per group of blocks."""
        weights = self._weigh(state.parameters)
        return source.start(evaluate_blocks, sum_fields, weights, name="pass")

    def update(self, state: CrowdState, statistics: EMStatistics) -> CrowdState:
        """M-step: confusion matrices, class prior, and share of the labels that the pass moved."""
        before, mass = state.parameters, statistics.level_mass
        model = update_crowd_model(
            mass, statistics.state_mass, self.annotator_model, before.pseudo_count
        )
        return state.after(
            replace(model, label_mass=mass),
            statistics.log_likelihood / max(statistics.n_rows, 1),
            moved=_measure_moved(before.find_label_mass(), mass, before.n_classes),
        )

    def has_converged(self, state: CrowdState, limits: Limits) -> bool:
        """Whether the last pass moved at most the share ``limits.tol`` of the labels between classes."""
        return state.numbers.get("moved", np.inf) <= limits.tol

    def pack(self, parameters: CrowdModel) -> Arrays:
        """Arrays of a crowd model."""
        return {
            "states": parameters.states,
            "mass": parameters.mass,
            "pseudo_count": np.array(parameters.pseudo_count),
            "vote_weight": np.array(parameters.vote_weight),
            "label_mass": parameters.find_label_mass(),
        }

    def unpack(self, arrays: Arrays) -> CrowdModel:
        """The crowd model that `pack` was called on."""
        return CrowdModel(
            arrays["states"],
            arrays["mass"],
            float(arrays["pseudo_count"]),
            self.annotator_model,
            float(arrays["vote_weight"]),
            label_mass=arrays["label_mass"],
        )

    def _weigh(self, model: CrowdModel) -> LogWeights:
        return replace(LogWeights.from_model(model, with_votes=True), with_known=self.with_known)

    def _evaluate(self, source: LabelSource, weights: LogWeights) -> EMStatistics:
        return source.evaluate(replace(weights, with_known=self.with_known))


def _measure_moved(before: FloatArray, after: FloatArray, n_classes: int) -> float:
    """Share of the labels' posterior mass that changed its class; moves between subclasses do not count."""
    n_subclasses = after.shape[1] // n_classes
    change = (after - before).reshape(-1, n_subclasses, n_classes).sum(axis=1)
    return float(np.abs(change).sum() / 2 / max(after.sum(), 1.0))


@dataclass(frozen=True)
class CrowdPassPlan:
    """Annotator model of a method, and limits of its passes.

    Parameters
    ----------
    annotator_model
        Parametrisation of the confusion matrices.
    max_passes, tol
        Limit of the number of passes, and largest share of the labels that the last pass may move between classes.
    compares_models
        Whether the annotator model is chosen by held-out labels: see `pmflib.apps.crowd.model_choice`.
    """

    annotator_model: AnnotatorModel
    max_passes: int
    tol: float
    compares_models: bool = False

    @property
    def limits(self) -> Limits:
        """Limits of the passes."""
        return Limits(self.max_passes, self.tol)

    def count_most(self, *, with_known: bool) -> int:
        """Limit of all passes: twice as many where labels are known, see `fit_crowd`."""
        return self.max_passes * (1 + int(with_known and self.annotator_model.votes))


def plan_passes(
    method: str, max_passes: int, tol: float, *, ordinal: bool = False
) -> CrowdPassPlan:
    """Plan the passes of a method; passes of "dawid_skene" follow methods of co-occurrences.

    Parameters
    ----------
    method
        A name of `pmflib.apps.crowd.methods.CROWD_METHODS`.
    max_passes, tol
        As for `CrowdPassPlan`.
    ordinal
        Whether classes are ordered; only for methods with a prior for mistakes.

    Raises
    ------
    PmfError
        If a limit is out of range, or the method cannot use the order of classes.
    """
    check(at_least(1), max_passes=max_passes)
    check(at_least(0), tol=tol)
    chosen = find_method(CROWD_METHODS, method)
    if ordinal:
        check(OneOf(ORDINAL_METHODS, "as ordinal is true"), method=method)
    if chosen.family != "passes":
        return plan_dawid_skene(max_passes, tol)
    plan: CrowdPassPlan = chosen.load()(max_passes, tol)
    return replace(plan, annotator_model=replace(plan.annotator_model, ordinal=ordinal))


def plan_shrunk(max_passes: int, tol: float) -> CrowdPassPlan:
    """Shrunk confusion matrices with two subclasses of every class, or one, chosen by held-out labels."""
    return CrowdPassPlan(AnnotatorModel(n_subclasses=2), max_passes, tol, compares_models=True)


def plan_balanced(max_passes: int, tol: float) -> CrowdPassPlan:
    """Shrunk confusion matrices and equally probable classes."""
    return CrowdPassPlan(AnnotatorModel(evenness=1.0), max_passes, tol)


def plan_one_coin(max_passes: int, tol: float) -> CrowdPassPlan:
    """One shrunk accuracy for each worker."""
    return CrowdPassPlan(AnnotatorModel(one_coin=True), max_passes, tol)


def plan_dawid_skene(max_passes: int, tol: float) -> CrowdPassPlan:
    """Confusion matrices of maximum likelihood."""
    return CrowdPassPlan(MAXIMUM_LIKELIHOOD, max_passes, tol)


def plan_mv_em(max_passes: int, tol: float) -> CrowdPassPlan:
    """Confusion matrices of maximum likelihood with equally probable classes, and exactly ten passes.

    References
    ----------
    Ibrahim, Fu (2021), ICML, section 4, as in the released code.
    """
    free = AnnotatorModel(pseudo_count=0.0, variational=False, evenness=1.0, votes=False)
    return CrowdPassPlan(free, 10, 0.0)


def fit_crowd(
    source: LabelSource,
    start: AnnotatorModel | CrowdState | Callable[[], CrowdState],
    annotator_model: AnnotatorModel | None = None,
    *,
    limits: Limits = LABEL_LIMITS,
    open_checkpoint: OpenCheckpoint | None = None,
    on_pass: OnPass | None = None,
) -> CrowdState:
    """Estimate a crowd model by passes over the tasks.

    Models that weigh votes ignore known labels until the passes converge, and then continue with them. Known labels
    then correct a model that is near the truth; used from the first pass on, a few of them would determine the meaning
    of a second subclass.

    Parameters
    ----------
    source
        Tasks with their labels.
    start
        State to continue from, or a function that returns it; an annotator model starts from the votes.
    annotator_model
        Annotator model of the start; needed only if the start is a function.
    limits
        Limits of the passes without known labels, and again of those with known labels; the result counts both.
    open_checkpoint
        Opens the checkpoint of a run of passes, ``WITHOUT_KNOWN`` or ``STATE``; None saves none.
    on_pass
        Called with the state after each pass, once it is saved.

    Returns
    -------
    The final state. If labels are known and passes were made, its model has intercepts: see
    `pmflib.apps.crowd.known_intercepts`.

    Raises
    ------
    PmfError
        If a checkpoint is of another fit.
    """
    kind = annotator_model
    if isinstance(start, AnnotatorModel):
        kind = start
    elif isinstance(start, State):
        kind = start.parameters.annotator_model
    assert kind is not None
    family = DawidSkene(kind)

    def run(
        family: DawidSkene, name: str, begin: CrowdState | Callable[[], CrowdState]
    ) -> CrowdState:
        checkpoint = None if open_checkpoint is None else open_checkpoint(family, name)
        return run_em(family, source, begin, limits=limits, checkpoint=checkpoint, on_pass=on_pass)

    if not isinstance(start, AnnotatorModel):
        state = run(family, STATE, start)
    elif source.with_known and kind.votes:
        unknown = replace(family, with_known=False)
        found = run(unknown, WITHOUT_KNOWN, partial(unknown.begin, source))
        limits = limits._replace(max_passes=limits.max_passes + found.n_passes)
        state = run(family, STATE, replace(found, numbers={}, converged=False))
    else:
        state = run(family, STATE, partial(family.begin, source))
    # without passes, confusion matrices are not counts from which a task's share can be removed
    if not source.with_known or not state.n_passes:
        return state
    every = max(1, source.n_tasks // MOST_SCORED)
    known = source.map_blocks(score_known, KnownScores.merge, state.parameters, every, name="known")
    return replace(state, parameters=add_intercepts(state.parameters, known))
