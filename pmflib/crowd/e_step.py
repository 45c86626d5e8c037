"""The E-step of a crowd: posteriors of the tasks, sums for the M-step; and labels weighed by what others say.

The labels of a task have gone into the confusion matrices of its workers, and would confirm themselves: a matrix is
taken without the task's own share. Of each worker of the task, the label is predicted from the other workers' labels,
which count with a power. Given the class, labels of one task may depend on each other, for what misleads one worker
misleads another: of n labels whose errors correlate by c, n / (1 + (n - 1) c) are worth as much as independent ones.
A power of one that is too sharp predicts left-out labels with too much certainty and pays for every surprise, one that
is too flat is never certain: the log-probability of left-out labels is greatest in between, and at 1 if they are
independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.crowd.label_log import LabelLog
from pmflib.crowd.votes import VotedBlock, add_votes, share_votes, weigh_votes
from pmflib.model.statistics import Assessor, EMStatistics, Evaluate, em_statistics, sum_fields
from pmflib.solvers.crowd.annotator_model import CrowdModel

BLOCK_ROWS = 1 << 16
"""Most tasks of a block in memory."""
MOST_AGREEMENT = 0.95
"""Agreement of a worker above which votes weigh no more: one who always agrees would outvote all others."""


@dataclass(frozen=True, eq=False)
class LogWeights:
    """What tasks are scored under, nats.

    Parameters
    ----------
    states
        float64 of shape (n_states,), of the states.
    labels
        float64 of shape (n_workers * n_classes, n_states), of the labels that workers give.
    votes
        float64 of shape (MOST_VOTES + 1,), of a class by its number of votes.
    with_known
        Whether other classes than the known ones are all but ruled out; else these tasks are scored as the others are.
    """

    states: FloatArray
    labels: FloatArray
    votes: FloatArray
    with_known: bool = True

    @classmethod
    def from_model(cls, model: CrowdModel, *, with_votes: bool) -> LogWeights:
        """Weights under a crowd model.

        Parameters
        ----------
        model
            Prior and confusion matrices.
        with_votes
            Whether votes are evidence beside the labels: they lead the passes, but true labels are found without them.
        """
        return cls(*model.take_logs(), weigh_votes(model.vote_weight if with_votes else 0.0))

    @classmethod
    def from_votes(cls, n_workers: int, n_classes: int) -> LogWeights:
        """Weights under which a task's posterior is its shares of the votes: even for a task without a label."""
        silent = np.zeros((n_workers * n_classes, n_classes))
        return cls(np.zeros(n_classes), silent, share_votes())

    @classmethod
    def from_agreement(
        cls, agreement: FloatArray, n_classes: int, shares: FloatArray
    ) -> LogWeights:
        """Weights of votes by who gave them: a worker is right as often as chance and agreement make it.

        Parameters
        ----------
        agreement
            float64 of shape (n_workers,), as from `pmflib.solvers.crowd.shrinkage.measure_agreement`; those below 0
            count as 0, and the vote for nothing.
        n_classes
            Number of classes, at least 2.
        shares
            float64 of shape (n_workers,): weight of each worker's labels beside those of others.
        """
        right = np.clip(agreement, 0.0, MOST_AGREEMENT)
        right += (1 - right) / n_classes
        weights = shares * np.log(right * (n_classes - 1) / (1 - right))
        labels = weights[:, None, None] * np.eye(n_classes)
        return cls(np.zeros(n_classes), labels.reshape(-1, n_classes), weigh_votes(0.0))

    @property
    def n_states(self) -> int:
        """Number of states."""
        return self.states.size

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.states.nbytes + self.labels.nbytes + self.votes.nbytes


def make_scorer(evaluate: Evaluate[LogWeights]) -> Assessor[CrowdModel]:
    """Score crowd models by their log-likelihood, from the statistics of all tasks: a pass each time."""
    return lambda model: evaluate(LogWeights.from_model(model, with_votes=True)).log_likelihood


def evaluate_blocks(blocks: Iterable[VotedBlock], weights: LogWeights) -> EMStatistics:
    """Sufficient statistics of blocks, added up in order."""
    parts = [_evaluate_block(block, weights) for block in blocks]
    return sum_fields(parts or [EMStatistics.zero(len(weights.labels), weights.n_states)])


def _evaluate_block(block: VotedBlock, weights: LogWeights) -> EMStatistics:
    offsets = np.arange(0, len(weights.labels) + 1, block.n_classes)
    if not weights.votes.any() and not (weights.with_known and (block.known >= 0).any()):
        return em_statistics(block.labels, offsets, weights.states, weights.labels)
    log_priors, peaks = block.weigh_strata(weights.votes, with_known=weights.with_known)
    # the states of all subclasses of a class have its votes
    log_priors = np.tile(log_priors, weights.n_states // block.n_classes) + weights.states
    found = em_statistics(block.labels, offsets, log_priors, weights.labels, block.strata)
    return replace(found, log_likelihood=found.log_likelihood + float(block.sizes @ peaks))


def score_tasks(block: VotedBlock, weights: LogWeights) -> FloatArray:
    """Posterior of the class of every task of a block, float64 of shape (n_rows, n_classes).

    A task without a label has the prior; one whose class is known has that.
    """
    posteriors, n_classes = score_states(block, weights), block.n_classes
    by_class = posteriors.reshape(-1, weights.n_states // n_classes, n_classes)
    return _fix_known(by_class.sum(axis=1), block.codes if weights.with_known else None)


def score_states(block: VotedBlock, weights: LogWeights) -> FloatArray:
    """Posterior of the state of every task of a block, float64 of shape (n_rows, n_states): see `score_tasks`."""
    from pmflib.model.row_tables import score_block

    labels, n_classes, n_states = block.labels, block.n_classes, weights.n_states
    offsets = np.arange(0, len(weights.labels) + 1, n_classes)
    log_probs, posteriors = np.empty(labels.n_rows), np.empty((labels.n_rows, n_states))
    if labels.n_rows:
        by_votes, _ = block.weigh_strata(weights.votes, with_known=weights.with_known)
        log_priors = np.tile(by_votes, n_states // n_classes) + weights.states
        score_block(
            labels, offsets, log_priors, weights.labels, log_probs, posteriors, block.strata
        )
    return posteriors


def score_blocks(blocks: Sequence[VotedBlock], weights: LogWeights, n_classes: int) -> FloatArray:
    """Do `score_tasks` for all tasks of several blocks, in order; no block is legal."""
    parts = [score_tasks(block, weights) for block in blocks]
    return np.concatenate(parts) if parts else np.empty((0, n_classes))


def split_log(log: LabelLog) -> list[VotedBlock]:
    """Split the tasks of a label log into blocks, with their votes and what is known of them."""
    known = np.full(log.n_tasks, -1) if log.known is None else log.known.codes
    starts = range(0, log.n_tasks, BLOCK_ROWS)
    return [
        add_votes(block, log.n_classes, known[first : first + BLOCK_ROWS])
        for first, block in zip(starts, split_sparse_block(log.block, BLOCK_ROWS), strict=True)
    ]


def split_sparse_block(block: SparseBlock, n_rows: int) -> Sequence[SparseBlock]:
    """Split a block into blocks of at most so many rows."""
    return [
        block.take(np.arange(first, min(first + n_rows, block.n_rows)))
        for first in range(0, block.n_rows, n_rows)
    ]


POWERS: FloatArray = np.exp(np.linspace(np.log(0.06), np.log(1.2), 13))
"""Powers that are compared."""
KNOWN_POWERS: FloatArray = np.exp(np.linspace(np.log(0.02), np.log(1.5), 30))
"""Powers that known classes choose from."""
HARD_SHARES: FloatArray = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5])
"""Shares of tasks so hard that their labels are guesses, that are compared."""
SHARED_ERRORS: FloatArray = np.array(
    [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2]
)
"""Shares of tasks whose labels say nothing that known classes choose from."""
VOTES_SHARE = 0.5
"""Share of the votes in the posterior that calibration begins with, beside the one that was found: what is found may
have mistaken one class for another, and is sure of it [drawn]."""
LEAST_LABELS = 2
"""Labels of a task from which on they say how good workers are: a label alone is confirmed by nothing but itself."""
CHUNK_CELLS = 1 << 18
"""Most labels times classes that are worked on at a time."""


@dataclass(frozen=True, eq=False)
class CalibrationRound:
    """A crowd model that tasks are scored under, each without its own share, and the power of their labels.

    Parameters
    ----------
    model
        Crowd model with one subclass.
    power
        Power of the labels; None while it is not known.
    hard_share
        Share of the tasks whose labels are guesses: as each worker gives them to all tasks, whatever the class.
    """

    model: CrowdModel
    power: float | None = None
    hard_share: float = 0.0

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.model.mass.nbytes + self.model.states.nbytes


@dataclass(frozen=True, eq=False)
class LeftOutSums:
    """Sums over tasks, of which those of any parts of a log add up.

    Parameters
    ----------
    label_mass
        float64 of shape (n_workers * n_classes, n_classes): each worker's labels by posterior class; (0, n_classes)
        while a power is to be chosen.
    class_mass
        float64 of shape (n_classes,): labelled tasks by posterior class.
    log_probs
        float64 of shape (n_hard_shares, n_powers): log-probability of left-out labels by share of hard tasks and power,
        nats.
    known_log_probs
        float64 of shape (n_known_powers, n_shared_errors): log-probability of known classes, nats.
    """

    label_mass: FloatArray
    class_mass: FloatArray
    log_probs: FloatArray
    known_log_probs: FloatArray

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(array.nbytes for array in _list_arrays(self))

    @staticmethod
    def merge(parts: Sequence[LeftOutSums]) -> LeftOutSums:
        """Add up sums, at least one, in the order given: equal order, equal bits."""
        first = parts[0]
        total = LeftOutSums(*(array.copy() for array in _list_arrays(first)))
        for part in parts[1:]:
            for mine, theirs in zip(_list_arrays(total), _list_arrays(part), strict=True):
                mine += theirs
        return total


def _list_arrays(sums: LeftOutSums) -> tuple[FloatArray, ...]:
    return sums.label_mass, sums.class_mass, sums.log_probs, sums.known_log_probs


def start_sums(rounds: Sequence[CalibrationRound], n_workers: int, n_classes: int) -> LeftOutSums:
    """Sums over no tasks, under rounds as for `add_block_sums`."""
    chooses = bool(rounds) and rounds[-1].power is None
    n_levels = 0 if chooses else n_workers * n_classes
    return LeftOutSums(
        np.zeros((n_levels, n_classes)),
        np.zeros(n_classes),
        np.zeros((HARD_SHARES.size, POWERS.size)),
        np.zeros((KNOWN_POWERS.size, SHARED_ERRORS.size)),
    )


def add_block_sums(
    labels: SparseBlock,
    posterior: FloatArray,
    rounds: Sequence[CalibrationRound],
    sums: LeftOutSums,
    *,
    known: IntArray | None = None,
    every: int = 1,
) -> None:
    """Add a block to sums: labels by posterior class, or, where the last round has no power, log-probabilities.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    posterior
        float64 of shape (n_rows, n_classes): as it was found by a method.
    rounds
        Rounds so far, in order.
    sums
        As from `start_sums`; changed in place.
    known
        int64 of shape (n_rows,): class of each task, -1 where it is not known; None where none is.
    every
        Left-out labels are predicted of one task of so many.
    """
    from pmflib.kernels.left_out import add_shares

    chooses = bool(rounds) and rounds[-1].power is None
    if chooses and known is not None:
        found = np.flatnonzero((known >= 0) & (np.diff(labels.indptr) > 0))
        some = labels.take(found), posterior[found], known[found]
        sums.known_log_probs[:] += _predict_known(*some, rounds)
    step = every if chooses else 1
    if step > 1:
        rows = np.arange(0, labels.n_rows, step)
        labels, posterior = labels.take(rows), posterior[rows]
        known = None if known is None else known[rows]
    for start, stop in _split_by_cells(labels, posterior.shape[1]):
        part = labels.cut(start, stop)
        codes = None if known is None else known[start:stop]
        if not chooses:
            shares = follow_rounds(part, posterior[start:stop], rounds, codes)
            own = _find_own_shares(part, shares, codes)
            add_shares(part.indptr, part.indices, own, sums.label_mass)
            sums.class_mass[:] += shares[np.diff(part.indptr) > 0].sum(axis=0)
            continue
        shares = follow_rounds(part, posterior[start:stop], rounds[:-1], codes)
        own = _find_own_shares(part, shares, codes)
        sums.log_probs[:] += predict_left_out(part, own, rounds[-1].model)


def _split_by_cells(labels: SparseBlock, n_classes: int) -> Iterator[tuple[int, int]]:
    """Bounds of runs of rows that have at most ``CHUNK_CELLS`` labels times classes, or one row."""
    start = 0
    while start < labels.n_rows:
        most = labels.indptr[start] + CHUNK_CELLS // n_classes
        stop = int(np.searchsorted(labels.indptr, most, side="right")) - 1
        stop = min(max(stop, start + 1), start + CHUNK_CELLS, labels.n_rows)
        yield start, stop
        start = stop


def follow_rounds(
    labels: SparseBlock,
    posterior: FloatArray,
    rounds: Sequence[CalibrationRound],
    known: IntArray | None = None,
) -> FloatArray:
    """Posterior of every task of a block after some rounds, float64 of shape (n_rows, n_classes).

    Parameters
    ----------
    labels, posterior, rounds, known
        As for `add_block_sums`; all rounds have a power. Without a round it is the posterior that calibration begins
        with.
    """
    from pmflib.kernels.left_out import mix_votes

    shares = posterior.copy()
    mix_votes(labels.indptr, labels.indices, VOTES_SHARE, shares)
    shares = _fix_known(shares, known)
    for one in rounds:
        if one.power is None:
            raise ValueError("power is None")
        scores = score_labels(labels, _find_own_shares(labels, shares, known), one.model)
        shares = _fix_known(_normalise(np.log(one.model.prior) + one.power * scores), known)
    return shares


def find_hard_tasks(
    labels: SparseBlock,
    posterior: FloatArray,
    rounds: Sequence[CalibrationRound],
    known: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Posterior of every task if its labels are no guesses, as by `follow_rounds`, and probability that they are.

    Parameters
    ----------
    labels, posterior, rounds, known
        As for `follow_rounds`, with a round at least.

    Returns
    -------
    float64 of shapes (n_rows, n_classes) and (n_rows, 1).
    """
    last = rounds[-1]
    if not last.hard_share or last.power is None:
        return follow_rounds(labels, posterior, rounds, known), np.zeros((labels.n_rows, 1))
    shares = follow_rounds(labels, posterior, rounds[:-1], known)
    own = _find_own_shares(labels, shares, known)
    logs = last.power * _weigh_labels(labels, own, _add_guesses(last.model), each=False)[0]
    logs[:, :-1] += np.log(last.model.prior)
    even = _take_even_odds(logs)
    shares = _fix_known(_normalise(np.ascontiguousarray(logs[:, :-1])), known)
    return shares, _find_odds(even, last.hard_share)[:, None]


def _take_even_odds(logs: FloatArray) -> FloatArray:
    """Probability of the last state, (n_rows,), below 1: that labels are guesses if they are on every second task."""
    most = 1 - np.finfo(np.float64).epsneg
    return np.asarray(np.minimum(_normalise(logs.copy())[:, -1], most))


def _find_odds(even: FloatArray, share: float) -> FloatArray:
    """Probability that labels are guesses if they are on such a share of the tasks, from that at even odds."""
    return np.asarray(share * even / (share * even + (1 - share) * (1 - even)))


def _find_own_shares(labels: SparseBlock, shares: FloatArray, known: IntArray | None) -> FloatArray:
    """What each task has added to the confusion matrices of its workers, (n_rows, n_classes).

    A task with fewer than ``LEAST_LABELS`` labels adds nothing, unless its class is known.
    """
    counted = np.diff(labels.indptr) >= LEAST_LABELS
    if known is not None:
        counted |= known >= 0
    return shares if counted.all() else shares * counted[:, None]


def score_labels(labels: SparseBlock, shares: FloatArray, model: CrowdModel) -> FloatArray:
    """Log-weights of the classes of every task by its labels alone, (n_rows, n_states), nats.

    Parameters
    ----------
    labels
        As for `add_block_sums`.
    shares
        float64 of shape (n_rows, n_states): what each task has added to the model's counts, and is taken out.
    model
        Crowd model; of one with two subclasses, the states are weighed.
    """
    return _weigh_labels(labels, shares, model.mass, each=False)[0]


def predict_left_out(labels: SparseBlock, shares: FloatArray, model: CrowdModel) -> FloatArray:
    """Log-probability of each label given the others of its task, summed: float64 of shape (n_hard_shares, n_powers).

    It is in nats, by the share of tasks whose labels are guesses, and by power. Tasks with one label say nothing.

    Parameters
    ----------
    labels, shares, model
        As for `score_labels`.
    """
    lengths = np.diff(labels.indptr)
    scores, weights, means = _weigh_labels(labels, shares, _add_guesses(model), each=True)
    several = np.repeat(lengths > 1, lengths)
    others = (np.repeat(scores, lengths, axis=0) - weights)[several]
    means, log_prior = means[several], np.append(np.log(model.prior), 0.0)
    guessed = means[:, -1]
    found = np.zeros((HARD_SHARES.size, POWERS.size))
    for index, power in enumerate(POWERS):
        logs = log_prior + power * others
        even = _take_even_odds(logs)
        by_class = (_normalise(np.ascontiguousarray(logs[:, :-1])) * means[:, :-1]).sum(axis=1)
        for number, share in enumerate(HARD_SHARES):
            predicted = by_class + _find_odds(even, share) * (guessed - by_class)
            found[number, index] = np.log(np.maximum(predicted, FLOOR)).sum()
    return found


def _add_guesses(model: CrowdModel) -> FloatArray:
    """Labels of each worker by class, and in one more column of all classes, (n_workers, n_classes, n_states + 1)."""
    return np.concatenate([model.mass, model.mass.sum(axis=2, keepdims=True)], axis=2)


def _predict_known(
    labels: SparseBlock, posterior: FloatArray, known: IntArray, rounds: Sequence[CalibrationRound]
) -> FloatArray:
    """Log-probability of the classes of tasks that are all known, by power and shared error, nats."""
    model = rounds[-1].model
    shares = follow_rounds(labels, posterior, rounds[:-1], known)
    scores = score_labels(labels, _find_own_shares(labels, shares, known), model)
    log_prior = np.log(model.prior)
    prior, rows = model.prior[known][:, None], np.arange(known.size)
    found = np.zeros((KNOWN_POWERS.size, SHARED_ERRORS.size))
    for index, power in enumerate(KNOWN_POWERS):
        right = _normalise(log_prior + power * scores)[rows, known][:, None]
        mixed = (1 - SHARED_ERRORS) * right + SHARED_ERRORS * prior
        found[index] = np.log(np.maximum(mixed, FLOOR)).sum(axis=0)
    return found


def _weigh_labels(
    labels: SparseBlock, shares: FloatArray, mass: FloatArray, *, each: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of the mean logarithms of each task's labels, (n_rows, n_states), and of each label, if they are asked for.

    Those of each label, and the means of its probability, are of shape (n_labels, n_states). Of mass with one state
    more than shares, as from `_add_guesses`, all of a task's share is taken out there.
    """
    from pmflib.kernels.digamma import digamma
    from pmflib.kernels.left_out import LEAST, weigh_left_out

    n_classes, n_states = mass.shape[1:]
    if n_states > shares.shape[1]:
        shares = np.append(shares, shares.sum(axis=1, keepdims=True), axis=1)
    cells = np.ascontiguousarray(np.maximum(mass.reshape(-1, n_states), LEAST))
    totals = np.maximum(mass.sum(axis=1), LEAST)
    n_kept = labels.n_observed if each else 0
    scores, weights, means = np.empty(shares.shape), *np.empty((2, n_kept, n_states))
    tables = cells, totals, digamma(cells), digamma(totals)
    weigh_left_out(
        labels.indptr,
        labels.indices,
        n_classes,
        np.ascontiguousarray(shares),
        *tables,
        scores,
        weights,
        means,
    )
    return scores, weights, means


def temper(posterior: FloatArray, prior: FloatArray, power: float) -> FloatArray:
    """Posterior whose evidence beside the prior counts with a power, (n_rows, n_classes).

    Parameters
    ----------
    posterior, prior
        float64 of shapes (n_rows, n_classes) and (n_classes,).
    power
        Above 0.
    """
    least = np.finfo(np.float64).tiny
    return _normalise(power * np.log(np.maximum(posterior, least)) + (1 - power) * np.log(prior))


def _normalise(logs: FloatArray) -> FloatArray:
    """Probabilities of log-weights, by row; overwrites what it is given."""
    from pmflib.kernels.left_out import normalise_logs

    normalise_logs(logs)
    return logs


def _fix_known(shares: FloatArray, known: IntArray | None) -> FloatArray:
    """Make the class of known tasks certain; in place."""
    if known is not None:
        rows = np.flatnonzero(known >= 0)
        shares[rows] = 0.0
        shares[rows, known[rows]] = 1.0
    return shares
