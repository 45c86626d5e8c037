"""Passes over label logs: from votes to annotators, to posteriors of the items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.blocks import SparseBlock
from pmflib.crowd.votes import extend_offsets, share_votes, weigh_votes
from pmflib.em.statistics import EMStatistics, em_statistics
from pmflib.errors import PmfError
from pmflib.solvers.annotators import Annotators, Rule, update_annotators

Evaluate: TypeAlias = Callable[[FloatArray, FloatArray], EMStatistics]
"""Sufficient statistics of all items, under weights of the classes and of all levels, votes included."""


@dataclass(frozen=True, eq=False)
class CrowdFit:
    """Annotators, and how they were found.

    Parameters
    ----------
    annotators
        The last update.
    log_likelihoods
        Before each pass but the first, nats per item; of votes and answers together.
    moved
        Share of the answers' posterior mass that each pass after the first has moved between classes.
    converged
        Whether the last of them was below the tolerance.
    """

    annotators: Annotators
    log_likelihoods: tuple[float, ...]
    moved: tuple[float, ...]
    converged: bool


def run_passes(
    evaluate: Evaluate,
    n_annotators: int,
    rule: Rule,
    *,
    n_classes: int,
    start: Annotators | None = None,
    max_passes: int = 100,
    tol: float = 1e-5,
    on_pass: Callable[[CrowdFit], None] | None = None,
) -> CrowdFit:
    """Estimate annotators by passes over the items.

    Parameters
    ----------
    evaluate
        Statistics of the items, with votes as `add_votes` gives them.
    n_annotators, n_classes
        Sizes.
    rule
        How annotators are estimated.
    start
        Annotators to go on from; None begins with the shares of the votes.
    max_passes
        Limit of passes, at least 1.
    tol
        Stop when a pass moves less than this share of the answers between classes, at least 0.
    on_pass
        Called after each pass but the first: progress.

    Raises
    ------
    PmfError
        If max_passes is below 1 or tol negative.
    """
    if max_passes < 1 or not tol >= 0:
        raise PmfError(f"max_passes is {max_passes}, tol {tol}; give at least 1 and at least 0")
    shares = share_votes(n_annotators, n_classes)
    votes = weigh_votes(n_annotators, n_classes, rule.votes)
    n_answer_levels = n_annotators * n_classes
    if start is None:
        silent = np.zeros((n_answer_levels, n_classes))
        statistics = evaluate(np.zeros(n_classes), np.concatenate([silent, shares]))
        answers = statistics.level_mass[:n_answer_levels]
        start = update_annotators(answers, statistics.state_mass, rule)
    else:
        answers = start.mass.reshape(n_answer_levels, n_classes)
    fit = CrowdFit(start, (), (), False)
    while len(fit.moved) < max_passes and not fit.converged:
        log_prior, weights = fit.annotators.take_logs()
        statistics = evaluate(log_prior, np.concatenate([weights, votes]))
        before, answers = answers, statistics.level_mass[:n_answer_levels]
        moved = float(np.abs(answers - before).sum() / 2 / max(answers.sum(), 1.0))
        annotators = update_annotators(
            answers, statistics.state_mass, rule, fit.annotators.strength
        )
        mean = statistics.log_likelihood / max(statistics.n_rows, 1)
        fit = CrowdFit(annotators, (*fit.log_likelihoods, mean), (*fit.moved, moved), moved <= tol)
        if on_pass is not None:
            on_pass(fit)
    return fit


def weigh_levels(annotators: Annotators) -> tuple[FloatArray, FloatArray]:
    """Weights of the classes, (n_classes,), and of all levels, answers and then votes, (n_levels, n_classes); nats."""
    log_prior, weights = annotators.take_logs()
    n_annotators, n_classes = annotators.mass.shape[:2]
    votes = weigh_votes(n_annotators, n_classes, annotators.rule.votes)
    return log_prior, np.concatenate([weights, votes])


def evaluate_blocks(
    blocks: Iterable[SparseBlock],
    n_annotators: int,
    log_prior: FloatArray,
    weights: FloatArray,
) -> EMStatistics:
    """Sufficient statistics of blocks with votes, added up in order."""
    offsets = extend_offsets(n_annotators, log_prior.size)
    parts = [em_statistics(block, offsets, log_prior, weights) for block in blocks]
    return EMStatistics.merge(parts or [EMStatistics.zero(len(weights), log_prior.size)])


def score_items(
    block: SparseBlock, n_annotators: int, log_prior: FloatArray, weights: FloatArray
) -> FloatArray:
    """Posterior of the class of every item of a block with votes, float64 of shape (n_rows, n_classes).

    An item without an answer has the prior.
    """
    from pmflib.em.row_tables import score_block

    offsets = extend_offsets(n_annotators, log_prior.size)
    log_probs, posteriors = np.empty(block.n_rows), np.empty((block.n_rows, log_prior.size))
    if block.n_rows:
        score_block(block, offsets, log_prior, weights, log_probs, posteriors)
    return posteriors


def score_votes(block: SparseBlock, n_annotators: int, n_classes: int) -> FloatArray:
    """Shares of the votes of every item, as `score_items`; even for an item without one."""
    silent = np.zeros((n_annotators * n_classes, n_classes))
    weights = np.concatenate([silent, share_votes(n_annotators, n_classes)])
    return score_items(block, n_annotators, np.zeros(n_classes), weights)


def split_rows(block: SparseBlock, n_rows: int) -> Sequence[SparseBlock]:
    """Cut a block in blocks of at most so many rows."""
    return [
        block.take(np.arange(first, min(first + n_rows, block.n_rows)))
        for first in range(0, block.n_rows, n_rows)
    ]
