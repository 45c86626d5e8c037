"""Whether the counts of two variables contradict what a model says of them."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import IntArray
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.questions.binding import BoundQuestion

CLEARLY = 4.0
"""Standard errors of a share from which on the counts contradict the model."""
NOTICED = 0.02
"""Difference of probabilities below which nobody needs to know."""


def doubt_fit(model: JointPMF, bound: BoundQuestion, cells: IntArray) -> list[str]:
    """Compare a model with the counts of the one or two variables of a question.

    Parameters
    ----------
    model
        The model, without the conditions of the question.
    bound
        A question of two variables at most.
    cells
        Samples that hold each combination of their levels, an axis per variable, as from `find_support`.

    Returns
    -------
    A sentence on the share of a level, among those who have a level of the other variable, that is furthest from its
    probability in standard errors, if these are more than ``CLEARLY``; none otherwise.
    """
    first, *others = (bound.schema[place] for place in bound.involved)
    chances = model.marginal(bound.involved).reshape(first.cardinality, -1)
    counts = cells.reshape(chances.shape)
    n_rows = counts.sum(axis=0)
    shares = counts / np.maximum(n_rows, 1)
    chances = chances / np.maximum(chances.sum(axis=0), FLOOR)
    # the spread of shares if the model is right, or if the counts are: the larger
    varied = np.maximum(shares * (1 - shares), chances * (1 - chances))
    spread = np.sqrt(np.maximum(varied, 0.0) / np.maximum(n_rows, 1))
    apart = np.abs(shares - chances)
    scores = np.where((apart > NOTICED) & (n_rows > 0), apart / np.maximum(spread, 1e-9), 0.0)
    if others:
        asked = [
            code
            for code in range(others[0].cardinality)
            if any(code in given.get(bound.involved[1], [code]) for given in bound.given)
        ]
        scores[:, np.setdiff1d(np.arange(scores.shape[1]), asked)] = 0.0
    level, other = np.unravel_index(int(scores.argmax()), scores.shape)
    score = float(scores[level, other])
    if score <= CLEARLY:
        return []
    among = f" given {others[0].name}={others[0].levels[other]}" if others else ""
    return [
        f"the counts alone give {shares[level, other]:.3g} for {first.name}={first.levels[level]}{among}, and the "
        f"model {chances[level, other]:.3g}: {score:.0f} standard errors apart; the rank may be too small, or values "
        "are missing for a reason"
    ]
