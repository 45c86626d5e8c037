"""Figures of a model: its states, its strongest associations, a variable's PMF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import IntArray
from pmflib.plots.drawing import (
    DIVERGING,
    DIVERGING_EDGES,
    FAINT,
    INK,
    MAIN,
    PAPER,
    Axes,
    clear_frame,
    colour_cells,
    name_rows,
    open_axes,
    write_text,
)

if TYPE_CHECKING:
    from pmflib.model.associations import Associations
    from pmflib.model.joint_pmf import JointPMF
    from pmflib.model.state_descriptions import StateDescription
    from pmflib.questions.conditions import Given

MOST_ROWS = 36
"""Levels that the figure of the states shows, at most."""


def plot_states(
    model: JointPMF,
    *,
    per_state: int | None = None,
    level_counts: IntArray | None = None,
    descriptions: Sequence[StateDescription] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what distinguishes the latent states: a row per level, a column per state, the largest first.

    Parameters
    ----------
    model
        The model.
    per_state
        Levels to take of each state, at least 1; None takes as many as a page has room for.
    level_counts
        As for `pmflib.model.state_descriptions.describe_states`.
    descriptions
        What that function gave, where it is known already.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes; states have the numbers of their places in the model. Numbers in cells are probabilities given the state,
    in per cent; colours say how many times as probable as over all samples (one from 1.2 times on, one from 2, one from
    4), or as many times less.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or an argument is out of range.
    """
    from pmflib.errors import PmfError
    from pmflib.model.state_descriptions import describe_states

    if per_state is not None and per_state < 1:
        raise PmfError(f"per_state is {per_state}; give at least 1")
    wanted = per_state or max(1, min(4, MOST_ROWS // model.rank))
    if descriptions is None:
        descriptions = describe_states(model, most=wanted, level_counts=level_counts)
    rows: dict[tuple[str, str], int] = {}
    for described in descriptions:
        # a state that lacks what others have is distinguished by what it has less often
        for each in (described.frequent or described.rare)[:wanted]:
            variable = model.schema[each.variable]
            row = model.schema.rows_of(each.variable).start + variable.levels.index(each.level)
            rows.setdefault((each.variable, each.level), row)
    order = [each.state for each in descriptions]
    ax = open_axes(ax, (2.9 + 0.62 * len(order), 1.1 + 0.27 * max(len(rows), 1)))
    if not rows:
        ax.text(0.5, 0.5, "No level distinguishes a state.", ha="center", transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    places = list(rows.values())
    given = model.factors[places][:, order]
    overall = (model.factors[places] @ model.prior)[:, None]
    lifts = np.log2(np.maximum(given, 1e-12) / np.maximum(overall, 1e-12))
    colour_cells(ax, lifts, DIVERGING_EDGES, DIVERGING)
    for row, column in np.ndindex(given.shape):
        ax.text(
            column,
            row,
            f"{100 * given[row, column]:.0f}",
            ha="center",
            va="center",
            fontsize=8,
            color=PAPER if abs(lifts[row, column]) >= DIVERGING_EDGES[-1] else INK,
        )
    name_rows(ax, [f"{write_text(name, 26)} = {write_text(level, 22)}" for name, level in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    heads = [f"{each.state}\n{100 * each.prior:.0f} %" for each in descriptions]
    ax.set_xticks(range(len(heads)), heads)
    ax.tick_params(axis="x", length=0)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("state, and its share of the samples")
    return clear_frame(ax, ("top", "right", "left", "bottom"))


def plot_associations(
    model: JointPMF | Associations,
    *,
    most: int = 20,
    support: IntArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the pairs of variables with the most mutual information, the largest on top.

    Parameters
    ----------
    model
        The model, or the associations that were measured under it.
    most
        Pairs to draw, at most; at least 1.
    support
        Samples that hold each pair, as for `Associations.rank_pairs`.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: a bar per pair, nats.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or an argument is out of range.
    """
    from pmflib.errors import PmfError
    from pmflib.model.associations import Associations, measure_associations

    if most < 1:
        raise PmfError(f"most is {most}; give at least 1")
    found = model if isinstance(model, Associations) else measure_associations(model)
    pairs = found.rank_pairs(most, support)
    values = [found.mutual_information[pair] for pair in pairs]
    ax = open_axes(ax, (6.4, 0.8 + 0.25 * max(len(pairs), 1)))
    ax.barh(range(len(pairs)), values, color=MAIN)
    names = [[write_text(found.names[place], 24) for place in pair] for pair in pairs]
    name_rows(ax, [" and ".join(pair) for pair in names])
    ax.set_xlabel("mutual information, nats")
    return clear_frame(ax)


def plot_marginal(
    model: JointPMF,
    variable: str | int,
    *,
    given: Given | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the PMF of a variable; with a condition, next to the one without.

    Parameters
    ----------
    model
        The model.
    variable
        Name or place.
    given
        Levels of other variables, as for `JointPMF.marginal`.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: a bar per level, per cent.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    SchemaError
        If a variable or level is unknown.
    """
    from pmflib.questions.conditions import describe_conditions, encode_conditions

    known = model.schema[variable]
    pmf = 100 * model.marginal([variable])
    ax = open_axes(ax, (5.6, 0.8 + 0.28 * pmf.size))
    places = np.arange(pmf.size)
    if given:
        condition = describe_conditions(model.schema, encode_conditions(model.schema, given))
        ax.barh(
            places - 0.2,
            100 * model.marginal([variable], given),
            0.4,
            color=MAIN,
            label=write_text(f"given {condition}", 60),
        )
        ax.barh(places + 0.2, pmf, 0.4, color=FAINT, label="of all samples")
        for text in ax.legend(frameon=False).get_texts():
            text.set_parse_math(False)
    else:
        ax.barh(places, pmf, color=MAIN)
    name_rows(ax, known.levels)
    ax.set_xlabel("probability, %")
    ax.set_title(write_text(known.name, 60), loc="left", parse_math=False)
    return clear_frame(ax)
