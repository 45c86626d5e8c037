"""Figure of continuous traits: people's scores against the mean of what they answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.argument_checks import check_whole
from pmflib.errors import PmfError
from pmflib.plots.drawing import INK, MAIN, Axes, clear_frame, open_axes
from pmflib.traits.level_scores import read_values

if TYPE_CHECKING:
    from pmflib.model.joint_pmf import JointPMF

MOST_POINTS = 5000
"""People that are drawn, at most: the first ones."""


def plot_traits(model: JointPMF, table: object, *, trait: int = 0, ax: Axes | None = None) -> Axes:
    """Draw scores of people on a trait, with standard errors, against the mean value of their answers.

    The first trait is close to that mean where people answer much, and is drawn toward the mean of all where they
    answer little: the errors say how far it can be trusted. Other traits have less to do with it.

    Parameters
    ----------
    model
        A model with traits, as `pmflib.fit_traits` makes it.
    table
        As for `JointPMF.traits`.
    trait
        Place of the trait, from 0.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The axes. A point per person with an answer to a variable with values; of many people, the first ones.

    Raises
    ------
    PmfError
        If the model has no such trait, no variable has values, or matplotlib is not installed.
    """
    found = model.traits(table)
    check_whole("trait", trait)
    n_traits = found.scores.shape[1]
    if not 0 <= trait < n_traits:
        raise PmfError(f"trait is {trait}, outside [0, {n_traits}); the first is 0")
    codes = model.schema.encode(table)
    total, number = np.zeros((2, len(codes)))
    for place, variable in enumerate(model.schema):
        values = read_values(variable)
        if values is not None:
            own = np.flatnonzero(codes[:, place] >= 0)
            total[own] += np.array(values)[codes[own, place]]
            number[own] += 1
    people = np.flatnonzero(number)[:MOST_POINTS]
    if not people.size:
        raise PmfError("no answer of the table has a value; give the schema's variables values")
    ax = open_axes(ax, (6.0, 4.5))
    ax.errorbar(
        total[people] / number[people],
        found.scores[people, trait],
        yerr=found.errors[people, trait],
        fmt="o",
        markersize=2.5,
        color=MAIN,
        ecolor=MAIN,
        elinewidth=0.5,
        alpha=0.4,
    )
    ax.axhline(0, color=INK, linewidth=0.6)
    ax.set_xlabel("mean value of the answers")
    ax.set_ylabel(f"trait {trait + 1}, score and standard error")
    return clear_frame(ax)
