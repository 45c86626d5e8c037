"""Answers in, true labels out: the choice of a method, and what each one does."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.crowd.co_occurrence import MomentMethod, fit_moments
from pmflib.crowd.label_log import Answers, OnRepeated, OnUnknown, read_answers
from pmflib.crowd.likeliest_start import begin_passes
from pmflib.crowd.passes import (
    MAX_PASSES,
    TOLERANCE,
    CrowdFit,
    Evaluate,
    evaluate_blocks,
    run_passes,
    score_items,
    score_votes,
    split_rows,
    weigh_answers,
)
from pmflib.crowd.screening import judge_by
from pmflib.crowd.true_labels import Aggregation
from pmflib.crowd.votes import VotedBlock, add_votes
from pmflib.errors import ConvergenceWarning, PmfError
from pmflib.solvers.crowd.annotator_model import Annotators, Rule
from pmflib.solvers.crowd.class_matching import Order

PassMethod: TypeAlias = Literal["auto", "dawid_skene", "mv_em", "one_coin", "balanced"]
Method: TypeAlias = PassMethod | Literal["majority"] | MomentMethod

RULES: dict[str, Rule] = {
    "auto": Rule(kinds=2),
    "dawid_skene": Rule(strength=0.0, variational=False, votes=False),
    "mv_em": Rule(strength=0.0, variational=False, balanced=True, votes=False),
    "one_coin": Rule(one_coin=True),
    "balanced": Rule(balanced=True),
}
"""How each method that passes over the items estimates the annotators."""

PUBLISHED_PASSES = 10
"""Passes of the published MV-EM."""

BLOCK_ROWS = 1 << 16
"""Items worked on at a time."""


def aggregate(
    answers: object,
    method: Method = "auto",
    *,
    em: bool = True,
    order: Order = "joint",
    rng: np.random.Generator | int = 0,
    classes: Sequence[Any] | None = None,
    on_repeated: OnRepeated = "last",
    on_unknown: OnUnknown = "quarantine",
    max_passes: int = MAX_PASSES,
    tol: float = TOLERANCE,
) -> Aggregation:
    """Find true labels, and how good the workers are.

    Parameters
    ----------
    answers
        Columns task, worker, label: a pandas frame, an Arrow table, a mapping of columns; or `Answers`.
    method
        "auto": Dawid-Skene whose confusion matrices are shrunk, by a strength that is learnt, toward that of all
        workers who are right as often, with two kinds of tasks in every class, and with the votes as evidence of their
        own until the workers are known. It takes workers to be right on the whole, more often than not: where they are
        hardly better than chance but have answered much, "dawid_skene" and those of co-occurrences know more.
        "balanced": the same with one kind, and equally probable classes. "one_coin": the same with one kind, and one
        probability of being right per worker. "dawid_skene": maximum likelihood from the votes on. "mv_em": the same
        with equally probable classes and ten passes, as published. "majority": shares of the votes. The others start
        from co-occurrences of the workers' answers: see `fit_moments`.
    em
        Whether a method of co-occurrences is followed by passes of "dawid_skene"; the published tables make ten. They
        begin there unless others make the answers clearly likelier: see `begin_passes`.
    order, rng
        For methods of co-occurrences: how columns are matched with classes, and the source of starts, or its seed.
    classes, on_repeated, on_unknown
        As for `read_answers`.
    max_passes, tol
        Limit of passes, and the share of answers that a pass may still move between classes; see `run_passes`.

    Returns
    -------
    The aggregation.

    Raises
    ------
    SchemaError, PmfError
        If the answers do not fit, or an argument is out of range.

    Warns
    -----
    ConvergenceWarning
        If the passes did not settle, and tol is above 0. Not for "mv_em", whose passes are a choice.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28; Ibrahim, Fu (2021), ICML.

    Examples
    --------
    >>> found = aggregate({"task": [1, 1, 1, 2, 2], "worker": list("abcab"), "label": list("xxyyy")})
    >>> found.labels["label"].to_pylist()
    ['x', 'y']
    """
    moment_methods = get_args(MomentMethod)
    known = ["majority", *RULES, *moment_methods]
    if method not in known:
        raise PmfError(f"method is {method!r}; give one of {known}")
    if not isinstance(answers, Answers):
        answers = read_answers(
            answers, classes=classes, on_repeated=on_repeated, on_unknown=on_unknown
        )
    if method == "majority":
        return _take_majority(answers)
    if method in moment_methods:
        source = np.random.default_rng(rng)
        start = _start_from_moments(answers, cast(MomentMethod, method), order, source)
        if not em:
            posterior = _score(answers, _cut(answers), start)
            return Aggregation(answers, posterior, start.prior, start.confusion, method)
        begun = begin_passes(
            _evaluate_on(_cut(answers)),
            start,
            source,
            max_passes=max_passes,
            tol=tol,
        )
        fit, posterior = fit_annotators(
            answers, start.rule, start=begun, max_passes=max_passes, tol=tol
        )
    else:
        max_passes, tol = limit_passes(method, max_passes, tol)
        fit, posterior = fit_annotators(answers, RULES[method], max_passes=max_passes, tol=tol)
    if not fit.converged and tol > 0:
        warnings.warn(
            f"the passes moved {fit.moved[-1]:.2g} of the answers at last, above tol = {tol}, after max_passes = "
            f"{max_passes}; raise one of the two",
            ConvergenceWarning,
            stacklevel=2,
        )
    found = fit.annotators
    return Aggregation(
        answers, posterior, found.prior, found.confusion, method, len(fit.moved), fit.converged
    )


def limit_passes(method: str, max_passes: int, tol: float) -> tuple[int, float]:
    """Limits of a method's passes: those given, but for one whose passes are part of what it is."""
    return (PUBLISHED_PASSES, 0.0) if method == "mv_em" else (max_passes, tol)


def fit_annotators(
    answers: Answers,
    rule: Rule,
    *,
    start: Annotators | CrowdFit | None = None,
    max_passes: int,
    tol: float,
) -> tuple[CrowdFit, FloatArray]:
    """Estimate annotators in memory, and the posterior of every task under them."""
    blocks = _cut(answers)
    fit = run_passes(
        _evaluate_on(blocks),
        answers.n_workers,
        rule,
        n_classes=answers.n_classes,
        start=start,
        max_passes=max_passes,
        tol=tol,
    )
    return fit, _score(answers, blocks, fit.annotators)


def _cut(answers: Answers) -> list[VotedBlock]:
    """Blocks of tasks, with their votes."""
    blocks = split_rows(answers.block, BLOCK_ROWS)
    return [add_votes(block, answers.n_classes) for block in blocks]


def _score(answers: Answers, blocks: Sequence[VotedBlock], annotators: Annotators) -> FloatArray:
    weights = weigh_answers(annotators)
    parts = [score_items(block, *weights) for block in blocks]
    return np.concatenate(parts) if parts else np.empty((0, answers.n_classes))


def _start_from_moments(
    answers: Answers, method: MomentMethod, order: Order, rng: np.random.Generator
) -> Annotators:
    """Annotators from co-occurrences; end points are judged by how likely they make the answers."""
    return fit_moments(
        answers.block,
        answers.n_workers,
        answers.n_classes,
        method,
        judge=judge_by(_evaluate_on(_cut(answers))),
        rng=rng,
        order=order,
    )


def _evaluate_on(blocks: Sequence[VotedBlock]) -> Evaluate:
    return lambda *weights: evaluate_blocks(blocks, *weights)


def _take_majority(answers: Answers) -> Aggregation:
    """Shares of the votes, and the annotators as these would have them."""
    sizes = answers.n_workers, answers.n_classes
    blocks = _cut(answers)
    parts = [score_votes(block, *sizes) for block in blocks]
    posterior = np.concatenate(parts) if parts else np.empty((0, sizes[1]))
    counted = np.zeros((sizes[0] * sizes[1], sizes[1]))
    rows = np.repeat(np.arange(answers.n_tasks), np.diff(answers.block.indptr))
    np.add.at(counted, answers.block.indices, posterior[rows])
    states = posterior[np.diff(answers.block.indptr) > 0].sum(axis=0) + 1.0
    rule = Rule(strength=0.0, variational=False, votes=False)
    annotators = Annotators(states, counted.reshape(-1, sizes[1], sizes[1]), 0.0, rule)
    return Aggregation(answers, posterior, annotators.prior, annotators.confusion, "majority")
