"""Missing cells drawn from a model: each row's together, by numbers that depend on the row alone."""

from __future__ import annotations

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray
from pmflib.core.hashing import HashArray, mix_hashes
from pmflib.model.mixture import Mixture

BATCH_NUMBERS = 1 << 22
"""Posteriors and cells that are held at a time: 32 MiB."""


def seed_rows(keys: IntArray | HashArray, seed: int, draw: int = 0) -> HashArray:
    """Make a seed of every row for one draw, so that what is drawn does not depend on who draws, or in which order.

    Parameters
    ----------
    keys
        Integers of shape (n_rows,): what distinguishes rows, such as their positions, or hashes of their identifiers.
    seed
        Integer in [0, 2**64).
    draw
        Number of the draw, at least 0: others are independent of it.

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
        As `seed_rows` makes them.
    stream
        Which number of the row, at least 0.

    Returns
    -------
    float64 of the same shape, in [0, 1), multiples of 2**-53.
    """
    return np.asarray((mix_hashes(seeds, stream) >> np.uint64(11)) * 2.0**-53)


def draw_gaps(model: Mixture, codes: IntArray, gaps: BoolArray, seeds: HashArray) -> IntArray:
    """Fill missing cells by a draw from their posterior given what is observed of their row.

    The latent state of a row is drawn first, then cell after cell given the state and, where a model has forests, what
    is known of the row by then: the cells of a row depend on each other as the model says.

    Parameters
    ----------
    model
        The model; of one with traits its states.
    codes
        Valid codes of shape (n_rows, n_variables), -1 missing.
    gaps
        Which cells are to be filled, of that shape; all of them are missing.
    seeds
        Seeds of the rows as `seed_rows` makes them. Streams 0 to n_variables are used up.

    Returns
    -------
    The codes with these cells filled.

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
        states = _draw_codes(model.posterior(batch), draw_uniforms(own, 0))
        for position in np.flatnonzero(missing.any(axis=0)).tolist():
            cells = np.flatnonzero(missing[:, position])
            chances = model.predict_in_states(batch[cells], states[cells], position)
            # later cells of a row may depend on what is drawn here
            batch[cells, position] = _draw_codes(chances, draw_uniforms(own[cells], 1 + position))
        filled[mine] = batch
    return filled


def _draw_codes(probabilities: FloatArray, uniforms: FloatArray) -> IntArray:
    """Code of each row of probabilities at a uniform number, int64 of shape (n_rows,)."""
    ends = np.cumsum(probabilities, axis=1)
    reached = uniforms * ends[:, -1]
    codes: IntArray = (ends[:, :-1] <= reached[:, None]).sum(axis=1)
    return codes
