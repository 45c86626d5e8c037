"""Labels of a task under what is known of its workers from other tasks, tempered: blocks in, sums and posteriors out.

The labels of a task have gone into the confusion matrices of its workers, and would confirm themselves: a matrix is
taken without the task's own share. Of each worker of the task, the label is predicted from the other workers' labels,
which count with a power. Given the class, labels of one task may depend on each other, for what misleads one worker
misleads another: of n labels whose errors correlate by c, n / (1 + (n - 1) c) are worth as much as independent ones.
A power of one that is too sharp predicts left-out labels with too much certainty and pays for every surprise, one that
is too flat is never certain: the log-probability of left-out labels is greatest in between, and at 1 if they are
independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock
from pmflib.crowd.votes import tally_votes
from pmflib.level_blocks import FLOOR
from pmflib.solvers.crowd.annotator_model import CrowdModel

POWERS: FloatArray = np.exp(np.linspace(np.log(0.06), np.log(1.2), 13))
"""Powers that are compared."""
KNOWN_POWERS: FloatArray = np.exp(np.linspace(np.log(0.02), np.log(1.5), 30))
"""Powers that known classes choose from."""
SHARED_ERRORS: FloatArray = np.array(
    [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2]
)
"""Shares of tasks whose labels say nothing that known classes choose from."""
VOTES_SHARE = 0.5
"""Share of the votes in the posterior that calibration begins with, beside the one that was found: what is found may
have mistaken one class for another, and is sure of it [drawn]."""
PIECE_CELLS = 1 << 18
"""Most labels times classes that are worked on at a time."""


@dataclass(frozen=True, eq=False)
class Round:
    """A crowd model that tasks are scored under, each without its own share, and the power of their labels.

    Parameters
    ----------
    model
        Crowd model with one subclass.
    power
        Power of the labels; None while it is not known.
    """

    model: CrowdModel
    power: float | None = None

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
        float64 of shape (n_powers,): log-probability of left-out labels by power, nats.
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


def start_sums(rounds: Sequence[Round], n_workers: int, n_classes: int) -> LeftOutSums:
    """Sums over no tasks, under rounds as for `sum_block`."""
    chooses = bool(rounds) and rounds[-1].power is None
    n_levels = 0 if chooses else n_workers * n_classes
    return LeftOutSums(
        np.zeros((n_levels, n_classes)),
        np.zeros(n_classes),
        np.zeros(POWERS.size),
        np.zeros((KNOWN_POWERS.size, SHARED_ERRORS.size)),
    )


def sum_block(
    labels: SparseBlock,
    posterior: FloatArray,
    rounds: Sequence[Round],
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
    for start, stop in _cut(labels, posterior.shape[1]):
        part = labels.cut(start, stop)
        codes = None if known is None else known[start:stop]
        if not chooses:
            shares = follow_rounds(part, posterior[start:stop], rounds, codes)
            lengths = np.diff(part.indptr)
            np.add.at(sums.label_mass, part.indices, np.repeat(shares, lengths, axis=0))
            sums.class_mass[:] += shares[lengths > 0].sum(axis=0)
            continue
        shares = follow_rounds(part, posterior[start:stop], rounds[:-1], codes)
        sums.log_probs[:] += predict_left_out(part, shares, rounds[-1].model)


def _cut(labels: SparseBlock, n_classes: int) -> Iterator[tuple[int, int]]:
    """Bounds of runs of rows that have at most ``PIECE_CELLS`` labels times classes, or one row."""
    start = 0
    while start < labels.n_rows:
        most = labels.indptr[start] + PIECE_CELLS // n_classes
        stop = int(np.searchsorted(labels.indptr, most, side="right")) - 1
        stop = min(max(stop, start + 1), start + PIECE_CELLS, labels.n_rows)
        yield start, stop
        start = stop


def follow_rounds(
    labels: SparseBlock,
    posterior: FloatArray,
    rounds: Sequence[Round],
    known: IntArray | None = None,
) -> FloatArray:
    """Posterior of every task of a block after some rounds, float64 of shape (n_rows, n_classes).

    Parameters
    ----------
    labels, posterior, rounds, known
        As for `sum_block`; all rounds have a power. Without a round it is the posterior that calibration begins with.
    """
    votes = tally_votes(labels, posterior.shape[1]).astype(np.float64)
    totals = votes.sum(axis=1, keepdims=True)
    votes = np.where(totals > 0, votes / np.maximum(totals, 1.0), posterior)
    shares = _fix_known((1 - VOTES_SHARE) * posterior + VOTES_SHARE * votes, known)
    for one in rounds:
        if one.power is None:
            raise ValueError("power is None")
        scores = score_labels(labels, shares, one.model)
        shares = _fix_known(_normalise(np.log(one.model.prior) + one.power * scores), known)
    return shares


def score_labels(labels: SparseBlock, shares: FloatArray, model: CrowdModel) -> FloatArray:
    """Log-weights of the classes of every task by its labels alone, (n_rows, n_states), nats.

    Parameters
    ----------
    labels
        As for `sum_block`.
    shares
        float64 of shape (n_rows, n_states): posterior from which the model was estimated, whose share is taken out.
    model
        Crowd model; of one with two subclasses, the states are weighed.
    """
    weights, _ = _weigh_labels(labels, shares, model)
    return _add_by_row(labels, weights)


def predict_left_out(labels: SparseBlock, shares: FloatArray, model: CrowdModel) -> FloatArray:
    """Log-probability of each label given the others of its task, summed, by power: float64 of shape (n_powers,), nats.

    Tasks with one label say nothing.

    Parameters
    ----------
    labels, shares, model
        As for `score_labels`.
    """
    lengths = np.diff(labels.indptr)
    weights, means = _weigh_labels(labels, shares, model)
    several = np.repeat(lengths > 1, lengths)
    others = (np.repeat(_add_by_row(labels, weights), lengths, axis=0) - weights)[several]
    means, log_prior = means[several], np.log(model.prior)
    found = np.zeros(POWERS.size)
    for place, power in enumerate(POWERS):
        predicted = (_normalise(log_prior + power * others) * means).sum(axis=1)
        found[place] = np.log(np.maximum(predicted, FLOOR)).sum()
    return found


def _predict_known(
    labels: SparseBlock, posterior: FloatArray, known: IntArray, rounds: Sequence[Round]
) -> FloatArray:
    """Log-probability of the classes of tasks that are all known, by power and shared error, nats."""
    model = rounds[-1].model
    shares = follow_rounds(labels, posterior, rounds[:-1], known)
    scores, log_prior = score_labels(labels, shares, model), np.log(model.prior)
    prior, rows = model.prior[known][:, None], np.arange(known.size)
    found = np.zeros((KNOWN_POWERS.size, SHARED_ERRORS.size))
    for place, power in enumerate(KNOWN_POWERS):
        right = _normalise(log_prior + power * scores)[rows, known][:, None]
        mixed = (1 - SHARED_ERRORS) * right + SHARED_ERRORS * prior
        found[place] = np.log(np.maximum(mixed, FLOOR)).sum(axis=0)
    return found


def _weigh_labels(
    labels: SparseBlock, shares: FloatArray, model: CrowdModel
) -> tuple[FloatArray, FloatArray]:
    """Mean logarithms and means of the probability of each label by class, both (n_labels, n_classes)."""
    from pmflib.kernels.digamma import digamma

    own = np.repeat(shares, np.diff(labels.indptr), axis=0)
    cells = model.mass.reshape(-1, shares.shape[1])[labels.indices] - own
    totals = model.mass.sum(axis=1)[labels.indices // model.n_classes] - own
    least = np.finfo(np.float64).eps
    np.maximum(cells, least, out=cells)
    np.maximum(totals, least, out=totals)
    weights = np.maximum(digamma(cells) - digamma(totals), np.log(FLOOR))
    return weights, np.minimum(cells / totals, 1.0)


def _add_by_row(labels: SparseBlock, weights: FloatArray) -> FloatArray:
    """Sums of the weights of each row's labels, (n_rows, n_classes)."""
    sums = np.zeros((labels.n_rows, weights.shape[1]))
    filled = np.flatnonzero(np.diff(labels.indptr))
    if filled.size:
        first = labels.indptr[filled] - labels.indptr[0]
        sums[filled] = np.add.reduceat(weights, first, axis=0)
    return sums


def _normalise(logs: FloatArray) -> FloatArray:
    """Probabilities of log-weights, by row."""
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(shares)


def _fix_known(shares: FloatArray, known: IntArray | None) -> FloatArray:
    """Make the class of known tasks certain; in place."""
    if known is not None:
        rows = np.flatnonzero(known >= 0)
        shares[rows] = 0.0
        shares[rows, known[rows]] = 1.0
    return shares
