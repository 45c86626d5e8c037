"""Two models on the same hidden cells: every observed cell is hidden once, in rounds, and predicted from the others."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.level_blocks import FLOOR
from pmflib.model.evaluation import draw_cells
from pmflib.model.joint_pmf import JointPMF

N_SUMS = 6
"""Length of what `compare_hidden` returns: what `pmflib.selection.comparison.estimate_gain_per_cell` takes."""

MAX_ROUNDS = 20
"""Rounds at most: to hide less than a twentieth at a time changes next to nothing, and every round costs a look at all
samples."""


def count_rounds(share: float) -> int:
    """Rounds in which all cells are hidden once, about this share of them at a time: two at least.

    Parameters
    ----------
    share
        In (0, 1).
    """
    return max(2, min(round(1 / share), MAX_ROUNDS))


def deal_rounds(codes: IntArray, rows: IntArray, n_rounds: int, seed: int) -> IntArray:
    """Deal observed cells to rounds by a hash of their place: the same in every run, however rows are cut.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    n_rounds
        Number of rounds, at least 1.
    seed
        Integer in [0, 2**64).

    Returns
    -------
    int64 of shape (n_rows, n_variables), in [0, n_rounds); -1 where nothing is observed.
    """
    # with 32 bits the product stays in uint64
    drawn = draw_cells(codes.shape, rows, seed) >> np.uint64(32)
    dealt = (drawn * np.uint64(n_rounds)) >> np.uint64(32)
    return np.where(codes >= 0, dealt.astype(np.int64), -1)


def compare_hidden(
    codes: IntArray, rounds: IntArray, n_rounds: int, better: JointPMF, worse: JointPMF
) -> FloatArray:
    """Predict the cells of each round from those of the others, by two models, and add up by how much the first gains.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rounds
        int64 of the same shape: round in which a cell is hidden, as `deal_rounds` gives it; cells of rounds from
        ``n_rounds`` on are never hidden.
    n_rounds
        Number of rounds to go through.
    better, worse
        Models of one schema; the gain is that of the first.

    Returns
    -------
    float64 of shape (N_SUMS,), additive over samples: number of samples with hidden cells; sums over them of the cells
    m, of the gain g (log-probability of the true answers under the first model less that under the second, nats), of
    m^2, of g m and of g^2.
    """
    gains, n_cells = np.zeros(len(codes)), np.zeros(len(codes))
    for place in range(n_rounds):
        hidden = rounds == place
        samples, variables = np.nonzero(hidden)
        if not samples.size:
            continue
        shown = np.where(hidden, -1, codes).astype(codes.dtype)
        cells = samples, variables, codes[samples, variables].astype(np.int64)
        gain = _score_cells(better, shown, *cells)
        gain -= _score_cells(worse, shown, *cells)
        gains += np.bincount(samples, gain, len(codes))
        n_cells += np.bincount(samples, minlength=len(codes))
    parts = (n_cells > 0, n_cells, gains, n_cells**2, gains * n_cells, gains**2)
    return np.array([part.sum() for part in parts], float)


def _score_cells(
    model: JointPMF, shown: IntArray, samples: IntArray, variables: IntArray, truths: IntArray
) -> FloatArray:
    """Log-probability of the true codes of some cells, from what is shown of their samples."""
    chances = model.predict_codes(shown, samples, variables, truths)
    return np.log(np.maximum(chances, FLOOR))
