"""Figure of traits: scores of people."""

from __future__ import annotations

import numpy as np

from pmflib.base.constraints import Interval, check
from pmflib.base.display.drawing import INK, MAIN, Axes, clear_frame, open_axes
from pmflib.base.errors import PmfError
from pmflib.families.traits.level_scores import read_values
from pmflib.families.traits.trait_pmf import score_traits
from pmflib.model.joint_pmf import JointPMF

MOST_POINTS = 5000
"""Maximum number of people drawn: the first ones."""


def plot_traits(model: JointPMF, table: object, *, trait: int = 0, ax: Axes | None = None) -> Axes:
    """Draw people's scores on a trait, with standard errors, against the mean value of their answers.

    The first trait is close to that mean for people with many answers, and shrinks toward the overall mean for people
    with few; the standard errors show its precision. Other traits are less related to the mean.

    Parameters
    ----------
    model
        A model with traits.
    table
        The people's answers, as for `JointPMF.log_prob`.
    trait
        Position of the trait, from 0.
    ax
        Axes to draw on; None creates them.

    Returns
    -------
    The Axes: a point for each of the first ``MOST_POINTS`` people with an answer to a variable that has values.

    Raises
    ------
    PmfError
        If the model has no traits or no such trait, no variable has values, or matplotlib is not installed.
    """
    schema, found = model.schema, score_traits(model, table)
    scores, errors, codes = found.scores, found.errors, schema.encode(table)
    n_traits = scores.shape[1]
    check(Interval(0, n_traits - 1, hint="the first is 0", whole=True), trait=trait)
    total, number = np.zeros((2, len(codes)))
    for position, variable in enumerate(schema):
        values = read_values(variable)
        if values is not None:
            own = np.flatnonzero(codes[:, position] >= 0)
            total[own] += np.array(values)[codes[own, position]]
            number[own] += 1
    people = np.flatnonzero(number)[:MOST_POINTS]
    if not people.size:
        raise PmfError("no answer of the table has a value; pass the schema's variables values")
    ax = open_axes(ax, (6.0, 4.5))
    ax.errorbar(
        total[people] / number[people],
        scores[people, trait],
        yerr=errors[people, trait],
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
