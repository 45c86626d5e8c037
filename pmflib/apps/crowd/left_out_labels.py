"""Predict each label from the other labels of its task, under confusion matrices without the task's own share.

The labels of a task were used to estimate the confusion matrices of its workers, and would confirm themselves.
Therefore the task's own share is removed from the matrices. Each label is predicted from the other labels of the task,
whose evidence is tempered by a power. Labels of one task are dependent given its class, because what misleads one
worker misleads another: n labels with error correlation c are worth n / (1 + (n - 1) c) independent ones. The power
that maximises the log-probability of left-out labels measures this dependence; it is 1 for independent labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.apps.crowd.e_step import fix_known
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock

POWERS: FloatArray = np.exp(np.linspace(np.log(0.06), np.log(1.2), 13))
"""Powers that are compared."""
KNOWN_POWERS: FloatArray = np.exp(np.linspace(np.log(0.02), np.log(1.5), 30))
"""Powers that are compared by known classes."""
SHARED_ERRORS: FloatArray = np.array(
    [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2]
)
"""Shares of tasks that look like any class that are compared by known classes."""
VOTES_SHARE = 0.5
"""Share of the votes in the posterior that calibration starts from: the method's posterior may confuse two classes with
high confidence. Chosen by benchmarks/crowd/calibration.py."""
LEAST_LABELS = 2
"""Tasks with fewer labels are not used to estimate workers: a single label is confirmed by nothing but itself."""
CHUNK_CELLS = 1 << 18
"""Limit of labels times classes in memory at a time."""


@dataclass(frozen=True, eq=False)
class CalibrationRound:
    """A crowd model under which tasks are scored without their own share, and the power of their labels.

    Parameters
    ----------
    model
        Crowd model with one subclass.
    power
        Power of the labels; None while it is unknown.
    """

    model: CrowdModel
    power: float | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.model.mass.nbytes + self.model.states.nbytes


@dataclass(frozen=True, eq=False)
class LeftOutSums:
    """Sums over tasks; those of the parts of a log add up.

    Parameters
    ----------
    label_mass
        float64 of shape (n_workers * n_classes, n_classes): each worker's labels by posterior class; (0, n_classes)
        while a power is being chosen.
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
        """Add up sums, at least one, in the order given."""
        first = parts[0]
        total = LeftOutSums(*(array.copy() for array in _list_arrays(first)))
        for part in parts[1:]:
            for mine, theirs in zip(_list_arrays(total), _list_arrays(part), strict=True):
                mine += theirs
        return total


def _list_arrays(sums: LeftOutSums) -> tuple[FloatArray, ...]:
    return sums.label_mass, sums.class_mass, sums.log_probs, sums.known_log_probs


def start_sums(rounds: Sequence[CalibrationRound], n_workers: int, n_classes: int) -> LeftOutSums:
    """Zero sums, for rounds as for `add_block_sums`."""
    chooses = bool(rounds) and rounds[-1].power is None
    n_levels = 0 if chooses else n_workers * n_classes
    return LeftOutSums(
        np.zeros((n_levels, n_classes)),
        np.zeros(n_classes),
        np.zeros(POWERS.size),
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
    """Add a block to sums: labels by posterior class, or log-probabilities if the last round has no power.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    posterior
        float64 of shape (n_rows, n_classes): posterior of a method.
    rounds
        Earlier rounds, in order.
    sums
        As from `start_sums`; changed in place.
    known
        int64 of shape (n_rows,): class of each task, -1 where it is unknown; None if no class is known.
    every
        Left-out labels are predicted for one task in ``every``.
    """
    from pmflib.apps.crowd.kernels.left_out import add_shares

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
    """Yield bounds of runs of rows that have at most ``CHUNK_CELLS`` labels times classes, at least one row each."""
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
        As for `add_block_sums`; all rounds have a power. Without rounds, the result is the posterior that calibration
        starts from.
    """
    from pmflib.apps.crowd.kernels.left_out import mix_votes

    shares = posterior.copy()
    mix_votes(labels.indptr, labels.indices, VOTES_SHARE, shares)
    shares = fix_known(shares, known)
    for one in rounds:
        if one.power is None:
            raise ValueError("power is None")
        scores = score_labels(labels, _find_own_shares(labels, shares, known), one.model)
        shares = fix_known(_normalise(np.log(one.model.prior) + one.power * scores), known)
    return shares


def _find_own_shares(labels: SparseBlock, shares: FloatArray, known: IntArray | None) -> FloatArray:
    """Share of each task in the confusion matrices of its workers, (n_rows, n_classes).

    Tasks with fewer than ``LEAST_LABELS`` labels have none, unless their class is known.
    """
    counted = np.diff(labels.indptr) >= LEAST_LABELS
    if known is not None:
        counted |= known >= 0
    return shares if counted.all() else shares * counted[:, None]


def score_labels(labels: SparseBlock, shares: FloatArray, model: CrowdModel) -> FloatArray:
    """Log-weights of the states of every task by its labels, without the prior, (n_rows, n_states), nats.

    Parameters
    ----------
    labels
        As for `add_block_sums`.
    shares
        float64 of shape (n_rows, n_states): share of each task in the model's counts, which is removed.
    model
        Crowd model.
    """
    return weigh_labels(labels, shares, model.mass, each=False)[0]


def predict_left_out(labels: SparseBlock, shares: FloatArray, model: CrowdModel) -> FloatArray:
    """Log-probability of each label given the others of its task, summed, by power: float64 of shape (n_powers,), nats.

    Tasks with one label are ignored.

    Parameters
    ----------
    labels, shares, model
        As for `score_labels`.
    """
    lengths = np.diff(labels.indptr)
    scores, weights, means = weigh_labels(labels, shares, model.mass, each=True)
    several = np.repeat(lengths > 1, lengths)
    others = (np.repeat(scores, lengths, axis=0) - weights)[several]
    means, log_prior = means[several], np.log(model.prior)
    found = np.zeros(POWERS.size)
    for index, power in enumerate(POWERS):
        predicted = (_normalise(log_prior + power * others) * means).sum(axis=1)
        found[index] = np.log(np.maximum(predicted, FLOOR)).sum()
    return found


def _predict_known(
    labels: SparseBlock, posterior: FloatArray, known: IntArray, rounds: Sequence[CalibrationRound]
) -> FloatArray:
    """Log-probability of the classes of known tasks, by power and shared error, nats."""
    model = rounds[-1].model
    shares = follow_rounds(labels, posterior, rounds[:-1], known)
    scores = score_labels(labels, _find_own_shares(labels, shares, known), model)
    log_prior, rows = np.log(model.prior), np.arange(known.size)
    found = np.zeros((KNOWN_POWERS.size, SHARED_ERRORS.size))
    for index, power in enumerate(KNOWN_POWERS):
        right = _normalise(log_prior + power * scores)[rows, known][:, None]
        mixed = (1 - SHARED_ERRORS) * right + SHARED_ERRORS / model.n_classes
        found[index] = np.log(np.maximum(mixed, FLOOR)).sum(axis=0)
    return found


def weigh_labels(
    labels: SparseBlock, shares: FloatArray, mass: FloatArray, *, each: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum the mean log-probabilities of each task's labels, (n_rows, n_states); optionally those of each label.

    Parameters
    ----------
    labels, shares
        As for `score_labels`.
    mass
        float64 of shape (n_workers, n_classes, n_states): parameters for the labels by state, as in `CrowdModel`.
    each
        Whether mean log-probabilities and mean probabilities of each label are returned as well, (n_labels, n_states).
    """
    from pmflib.apps.crowd.kernels.digamma import digamma
    from pmflib.apps.crowd.kernels.left_out import LEAST, weigh_left_out

    n_classes, n_states = mass.shape[1:]
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
    """Posterior whose evidence relative to the prior is raised to a power, (n_rows, n_classes).

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
    """Probabilities of log-weights, by row; overwrites its argument."""
    from pmflib.apps.crowd.kernels.left_out import normalise_logs

    normalise_logs(logs)
    return logs
