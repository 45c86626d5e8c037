"""Imputation by draws from a model: joint draws per row, from random numbers that depend only on the row."""

from __future__ import annotations

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.codes import Codes
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.model.mixture import Mixture

BATCH_NUMBERS = 1 << 22
"""Number of posteriors and cells in memory at a time: 32 MiB."""


def seed_rows(keys: IntArray | HashArray, seed: int, draw: int = 0) -> HashArray:
    """Compute a seed for each row and draw, so that draws depend neither on the order of rows nor on the worker.

    Parameters
    ----------
    keys
        Integers of shape (n_rows,) that identify the rows, such as positions or hashes of identifiers.
    seed
        Integer in [0, 2**64).
    draw
        Number of the draw, at least 0; draws with different numbers are independent.

    Returns
    -------
    uint64 of shape (n_rows,).
    """
    of_draw = int(mix_hashes(np.array([draw]), seed)[0])
    return mix_hashes(keys, of_draw)


def draw_uniforms(seeds: HashArray, stream: int) -> FloatArray:
    """Draw a uniform number for each row.

    Parameters
    ----------
    seeds
        As returned by `seed_rows`.
    stream
        Index of the number within the row, at least 0.

    Returns
    -------
    float64 of the same shape, in [0, 1), multiples of 2**-53.
    """
    return np.asarray((mix_hashes(seeds, stream) >> np.uint64(11)) * 2.0**-53)


def draw_gaps(model: Mixture, codes: IntArray, gaps: BoolArray, seeds: HashArray) -> IntArray:
    """Fill missing cells with a draw from their posterior given the observed cells of the row.

    The latent state of a row is drawn first, then one cell after another given the state and, in a model with forests,
    the cells observed or already drawn, so that the cells of a row have the dependence of the model.

    Parameters
    ----------
    model
        The model; for a model with traits, its states are used.
    codes
        Valid codes of shape (n_rows, n_variables), -1 missing.
    gaps
        bool of that shape: the cells to fill, all of which are missing.
    seeds
        Seeds of the rows as returned by `seed_rows`. Streams 0 to n_variables are consumed.

    Returns
    -------
    The codes with these cells filled in.

    References
    ----------
    Vermunt, van Ginkel, van der Ark, Sijtsma (2008), "Multiple imputation of incomplete categorical data using latent
    class analysis", Sociological Methodology 38(1), section 3.
    """
    filled = codes.copy()
    rows = np.flatnonzero(gaps.any(axis=1))
    step = max(1, BATCH_NUMBERS // (model.rank + codes.shape[1]))
    for first in range(0, rows.size, step):
        mine = rows[first : first + step]
        batch, missing, own = filled[mine], gaps[mine], seeds[mine]
        states = _draw_codes(model.posterior(Codes(batch)), draw_uniforms(own, 0))
        for position in np.flatnonzero(missing.any(axis=0)).tolist():
            cells = np.flatnonzero(missing[:, position])
            chances = model.predict_in_states(batch[cells], states[cells], position)
            # later cells of a row may depend on this draw
            batch[cells, position] = _draw_codes(chances, draw_uniforms(own[cells], 1 + position))
        filled[mine] = batch
    return filled


def _draw_codes(probabilities: FloatArray, uniforms: FloatArray) -> IntArray:
    """Draw a code from each row of probabilities by inversion of a uniform number; int64 of shape (n_rows,)."""
    ends = np.cumsum(probabilities, axis=1)
    reached = uniforms * ends[:, -1]
    codes: IntArray = (ends[:, :-1] <= reached[:, None]).sum(axis=1)
    return codes
