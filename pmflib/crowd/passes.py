"""Passes over label logs: from votes to annotators, to posteriors of the items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.blocks import SparseBlock
from pmflib.crowd.votes import VotedBlock, share_votes, weigh_votes
from pmflib.em.statistics import EMStatistics, em_statistics
from pmflib.errors import PmfError
from pmflib.solvers.crowd.annotator_model import Annotators, Rule, split_kinds, update_annotators

Evaluate: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], EMStatistics]
"""Sufficient statistics of all items, under weights of the states, of answers, and of a class by its votes."""

MAX_PASSES = 200
"""Limit of passes, where none is given."""
TOLERANCE = 1e-4
"""Share of the answers that a pass may still move between classes, where none is given: on drawn logs labels are no
better for making more passes."""


@dataclass(frozen=True, eq=False)
class CrowdFit:
    """Annotators, and how they were found.

    Parameters
    ----------
    annotators
        The last update.
    answers
        float64 of shape (n_annotators * n_classes, n_states), what it was made from: each annotator's answers of each
        label, by posterior state.
    log_likelihoods
        Before each pass but the first, nats per item; of votes and answers together.
    moved
        Share of the answers' posterior mass that each pass after the first has moved between classes.
    converged
        Whether the last of them was below the tolerance.
    """

    annotators: Annotators
    answers: FloatArray
    log_likelihoods: tuple[float, ...]
    moved: tuple[float, ...]
    converged: bool


def run_passes(
    evaluate: Evaluate,
    n_annotators: int,
    rule: Rule,
    *,
    n_classes: int,
    start: Annotators | CrowdFit | None = None,
    max_passes: int = MAX_PASSES,
    tol: float = TOLERANCE,
    on_pass: Callable[[CrowdFit], None] | None = None,
) -> CrowdFit:
    """Estimate annotators by passes over the items.

    Parameters
    ----------
    evaluate
        Statistics of the items.
    n_annotators, n_classes
        Sizes.
    rule
        How annotators are estimated.
    start
        Annotators to go on from, or passes that were made already, to the same bits; None begins with the shares of the
        votes.
    max_passes
        Limit of passes, at least 1.
    tol
        Stop when a pass moves less than this share of the answers between classes, at least 0; what it moves between
        kinds of a class does not count.
    on_pass
        Called after each pass but the first: progress.

    Raises
    ------
    PmfError
        If max_passes is below 1 or tol negative.
    """
    if max_passes < 1 or not tol >= 0:
        raise PmfError(f"max_passes is {max_passes}, tol {tol}; give at least 1 and at least 0")
    fit = (
        start
        if isinstance(start, CrowdFit)
        else _begin(evaluate, n_annotators, rule, n_classes, start)
    )
    while len(fit.moved) < max_passes and not fit.converged:
        statistics = evaluate(*weigh_levels(fit.annotators))
        answers = statistics.level_mass
        change = (answers - fit.answers).reshape(-1, rule.kinds, n_classes).sum(axis=1)
        moved = float(np.abs(change).sum() / 2 / max(answers.sum(), 1.0))
        annotators = update_annotators(
            answers, statistics.state_mass, rule, fit.annotators.strength
        )
        mean = statistics.log_likelihood / max(statistics.n_rows, 1)
        seen = (*fit.log_likelihoods, mean), (*fit.moved, moved)
        fit = CrowdFit(annotators, answers, *seen, moved <= tol)
        if on_pass is not None:
            on_pass(fit)
    return fit


def _begin(
    evaluate: Evaluate, n_annotators: int, rule: Rule, n_classes: int, start: Annotators | None
) -> CrowdFit:
    """Stand before the first pass: at given annotators, or at those of the shares of the votes."""
    if start is None:
        silent = np.zeros((n_annotators * n_classes, n_classes))
        statistics = evaluate(np.zeros(n_classes), silent, share_votes())
        answers = statistics.level_mass
        alike = update_annotators(answers, statistics.state_mass, replace(rule, kinds=1))
        if rule.kinds == 1:
            return CrowdFit(alike, answers, (), (), False)
        start = split_kinds(alike)
    return CrowdFit(start, start.mass.reshape(-1, start.states.size), (), (), False)


def weigh_levels(annotators: Annotators) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights of the states, (n_states,), of answers, (n_levels, n_states), and of numbers of votes; nats."""
    return *annotators.take_logs(), weigh_votes(annotators.votes)


def weigh_answers(annotators: Annotators) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights as `weigh_levels`, but none of votes: these lead the passes, and labels go by the answers alone."""
    return *annotators.take_logs(), weigh_votes(0.0)


def evaluate_blocks(
    blocks: Iterable[VotedBlock], log_prior: FloatArray, weights: FloatArray, gains: FloatArray
) -> EMStatistics:
    """Sufficient statistics of blocks, added up in order."""
    parts = [_evaluate(block, log_prior, weights, gains) for block in blocks]
    return EMStatistics.merge(parts or [EMStatistics.zero(len(weights), log_prior.size)])


def _evaluate(
    block: VotedBlock, log_prior: FloatArray, weights: FloatArray, gains: FloatArray
) -> EMStatistics:
    offsets = np.arange(0, len(weights) + 1, block.n_classes)
    if not gains.any():
        return em_statistics(block.answers, offsets, log_prior, weights)
    log_priors, peaks = block.weigh_strata(gains)
    # items of all kinds of a class have its votes
    log_priors = np.tile(log_priors, log_prior.size // block.n_classes) + log_prior
    found = em_statistics(block.answers, offsets, log_priors, weights, block.strata)
    return replace(found, log_likelihood=found.log_likelihood + float(block.sizes @ peaks))


def score_items(
    block: VotedBlock, log_prior: FloatArray, weights: FloatArray, gains: FloatArray
) -> FloatArray:
    """Posterior of the class of every item of a block, float64 of shape (n_rows, n_classes).

    An item without an answer has the prior.
    """
    from pmflib.em.row_tables import score_block

    answers, n_classes = block.answers, block.n_classes
    n_kinds = log_prior.size // n_classes
    offsets = np.arange(0, len(weights) + 1, n_classes)
    log_probs, posteriors = np.empty(answers.n_rows), np.empty((answers.n_rows, log_prior.size))
    if answers.n_rows:
        log_priors = np.tile(block.weigh_strata(gains)[0], n_kinds) + log_prior
        score_block(answers, offsets, log_priors, weights, log_probs, posteriors, block.strata)
    return np.asarray(posteriors.reshape(-1, n_kinds, n_classes).sum(axis=1))


def score_votes(block: VotedBlock, n_annotators: int, n_classes: int) -> FloatArray:
    """Shares of the votes of every item, as `score_items`; even for an item without one."""
    silent = np.zeros((n_annotators * n_classes, n_classes))
    return score_items(block, np.zeros(n_classes), silent, share_votes())


def split_rows(block: SparseBlock, n_rows: int) -> Sequence[SparseBlock]:
    """Cut a block in blocks of at most so many rows."""
    return [
        block.take(np.arange(first, min(first + n_rows, block.n_rows)))
        for first in range(0, block.n_rows, n_rows)
    ]
