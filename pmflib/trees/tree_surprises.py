"""Which observed cell of each row is the least probable given the others, where variables hang together by forests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import IntArray

if TYPE_CHECKING:
    from pmflib.model.joint_pmf import JointPMF
    from pmflib.model.row_scores import RowScores


def find_surprises_in_turn(model: JointPMF, codes: IntArray, out: RowScores) -> None:
    """Find the least probable cell of each row given the others, and its most probable level: each is hidden in turn.

    Parameters
    ----------
    model
        The model.
    codes, out
        As for `pmflib.model.surprises.find_surprises`.
    """
    out.states[:] = out.posteriors.argmax(axis=1)
    least = np.full(len(codes), np.inf)
    out.variables[:], out.expected[:] = -1, -1
    out.probabilities[:], out.expected_probabilities[:] = np.nan, np.nan
    for place in range(model.schema.n_variables):
        rows = np.flatnonzero(codes[:, place] >= 0)
        if not rows.size:
            continue
        pmf = model.predict_proba(codes[rows], place)
        chances = np.minimum(pmf[np.arange(rows.size), codes[rows, place]], 1.0)
        is_less = chances < least[rows]
        found = rows[is_less]
        least[found] = out.probabilities[found] = chances[is_less]
        out.variables[found] = place
        out.expected[found] = pmf[is_less].argmax(axis=1)
        out.expected_probabilities[found] = np.minimum(pmf[is_less].max(axis=1), 1.0)
