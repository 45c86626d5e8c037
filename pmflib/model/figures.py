"""Figures of a model: states, associations, the PMF of a variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import Interval, at_least, check, check_shapes
from pmflib.base.display.drawing import (
    DIVERGING,
    DIVERGING_EDGES,
    FAINT,
    GROUPS,
    MAIN,
    MARKERS,
    Axes,
    clear_frame,
    colour_cells,
    label_rows,
    name_marks,
    open_axes,
    write_cell,
    write_text,
)
from pmflib.base.errors import PmfError
from pmflib.model.associations import Associations, measure_associations
from pmflib.model.conditions import Given, describe_conditions, encode_conditions
from pmflib.model.mixture import Mixture
from pmflib.model.state_descriptions import StateDescription, describe_states
from pmflib.schema import Schema

MOST_STATE_ROWS = 36
"""Maximum number of levels in the figure of the states."""
MOST_POINTS = 5000
"""Maximum number of people drawn: the first ones."""
LEAST_SHARE = 0.2
"""Default minimum share of the samples for an edge to be drawn."""


def plot_states(
    model: Mixture,
    *,
    per_state: int | None = None,
    level_counts: IntArray | None = None,
    descriptions: Sequence[StateDescription] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the distinguishing levels of the latent states: a row per level, a column per state, the largest first.

    Parameters
    ----------
    model
        The model.
    per_state
        Number of levels per state, at least 1; None shows as many as fit on a page.
    level_counts
        As for `pmflib.model.state_descriptions.describe_states`.
    descriptions
        Output of that function, if already computed.
    ax
        Axes to draw on; None creates them.

    Returns
    -------
    The Axes; states are numbered as in the model. Cells show the probability given the state, in per cent; colours
    show its ratio to the overall probability, with steps at 1.2, 2 and 4 and at their inverses.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or an argument is out of range.
    """
    check(at_least(1, also=(None,)), per_state=per_state)
    requested = per_state or max(1, min(4, MOST_STATE_ROWS // model.rank))
    if descriptions is None:
        descriptions = describe_states(model, most=requested, level_counts=level_counts)
    rows: dict[tuple[str, str], int] = {}
    for described in descriptions:
        # a state without frequent levels is distinguished by its rare ones
        for each in (described.frequent or described.rare)[:requested]:
            variable = model.schema[each.variable]
            row = model.schema.rows_of(each.variable).start + variable.levels.index(each.level)
            rows.setdefault((each.variable, each.level), row)
    order = [each.state for each in descriptions]
    ax = open_axes(ax, (2.9 + 0.62 * len(order), 1.1 + 0.27 * max(len(rows), 1)))
    if not rows:
        ax.text(0.5, 0.5, "No level distinguishes a state.", ha="center", transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    positions = list(rows.values())
    given = model.factors[positions][:, order]
    overall = (model.factors[positions] @ model.prior)[:, None]
    lifts = np.log2(np.maximum(given, 1e-12) / np.maximum(overall, 1e-12))
    colour_cells(ax, lifts, DIVERGING_EDGES, DIVERGING)
    for row, column in np.ndindex(given.shape):
        is_dark = abs(lifts[row, column]) >= DIVERGING_EDGES[-1]
        write_cell(ax, row, column, f"{100 * given[row, column]:.0f}", is_dark)
    label_rows(ax, [f"{write_text(name, 26)} = {write_text(level, 22)}" for name, level in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    heads = [f"{each.state}\n{100 * each.prior:.0f} %" for each in descriptions]
    ax.set_xticks(range(len(heads)), heads)
    ax.tick_params(axis="x", length=0)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("state, and its share of the samples")
    return clear_frame(ax, ("top", "right", "left", "bottom"))


class Intervals(Protocol):
    """Confidence intervals of an array of parameters, NaN if undefined."""

    @property
    def lower(self) -> FloatArray:
        """Lower ends."""

    @property
    def upper(self) -> FloatArray:
        """Upper ends."""


def plot_profiles(
    model: Mixture,
    *,
    errors: Mapping[str, Intervals] | None = None,
    variables: Sequence[str | int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the profiles of the latent states: the probability of each level given the state, with optional intervals.

    Parameters
    ----------
    model
        The model.
    errors
        Intervals by name of the array, as returned by `pmflib.inference.standard_errors`; ``["factors"]``, of shape
        (n_levels, rank), is drawn. None draws no intervals.
    variables
        Names or positions of the variables to draw; None draws the first ones that fit on a page.
    ax
        Axes to draw on; None creates them.

    Returns
    -------
    The Axes: a row per level (only the second level of a binary variable), and a mark for each of the largest
    ``len(GROUPS)`` states.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or errors belong to another model.
    SchemaError
        If a variable is unknown.
    """
    if errors is not None:
        lower = errors["factors"].lower
        check_shapes("pass those of this model", PmfError, errors=(lower, model.factors.shape))
    states = np.argsort(-model.prior, kind="stable")[: len(GROUPS)].tolist()
    labels = [f"state {state}, {100 * model.prior[state]:.0f} %" for state in states]
    ends = None
    if errors is not None:
        found = errors["factors"]
        ends = found.lower[:, states], found.upper[:, states]
    ax = _draw_profiles(model.schema, model.factors[:, states], labels, ends, variables, ax)
    said = ", with intervals of 95 %" if errors is not None else ""
    ax.set_xlabel(f"probability in the state, %{said}")
    if n_left := model.rank - len(states):
        ax.get_legend().set_title(f"the largest; {n_left} more are left out")
    return ax


def plot_side_by_side(
    models: Mapping[str, Mixture],
    state: int,
    *,
    variables: Sequence[str | int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the profile of one latent state under several models of the same schema, such as one model per group.

    Parameters
    ----------
    models
        Models by name, with the same numbering of states; the first ``len(GROUPS)`` are drawn.
    state
        Position of the state.
    variables, ax
        As for `plot_profiles`.

    Returns
    -------
    The Axes: a row per level, and a mark per model.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or there is no such state.
    SchemaError
        If a variable is unknown.
    """
    shown = list(models.items())[: len(GROUPS)]
    first = shown[0][1]
    check(Interval(0, first.rank - 1, whole=True), state=state)
    values = np.stack([model.factors[:, state] for _, model in shown], axis=1)
    labels = [f"{write_text(name, 24)}, {100 * model.prior[state]:.0f} %" for name, model in shown]
    ax = _draw_profiles(first.schema, values, labels, None, variables, ax)
    ax.set_xlabel(f"probability in state {state}, %")
    ax.get_legend().set_title("and the share of the state")
    return ax


def _draw_profiles(
    schema: Schema,
    values: FloatArray,
    labels: Sequence[str],
    ends: tuple[FloatArray, FloatArray] | None,
    variables: Sequence[str | int] | None,
    ax: Axes | None,
) -> Axes:
    """Draw probabilities of levels, (n_levels, n_columns), as marks; only the second level of a binary variable."""
    if variables is None:
        sizes = [each.cardinality if each.cardinality > 2 else 1 for each in schema]
        variables = range(max(1, int((np.cumsum(sizes) <= MOST_STATE_ROWS).sum())))
    rows: list[tuple[str, int]] = []
    for each in variables:
        variable, own = schema[each], schema.rows_of(each)
        first = 1 if variable.cardinality == 2 else 0
        rows += [
            (f"{write_text(variable.name, 26)} = {write_text(level, 22)}", own.start + code)
            for code, level in enumerate(variable.levels)
            if code >= first
        ]
    ax = open_axes(ax, (6.8, 1.2 + 0.3 * len(rows)))
    places, n_columns = [place for _, place in rows], values.shape[1]
    shifts = np.linspace(-0.28, 0.28, n_columns) if n_columns > 1 else np.zeros(1)
    for column, label in enumerate(labels):
        down = np.arange(len(rows)) + shifts[column]
        if ends is not None:
            low, high = (100 * each[places, column] for each in ends)
            ax.hlines(down, low, high, color=GROUPS[column], linewidth=1.2)
        mark = {"color": GROUPS[column], "markersize": 4, "label": label}
        ax.plot(100 * values[places, column], down, MARKERS[column], **mark)
    for row in range(1, len(rows)):
        ax.axhline(row - 0.5, color=FAINT, linewidth=0.3)
    label_rows(ax, [name for name, _ in rows])
    ax.set_xlim(-2, 102)
    name_marks(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return clear_frame(ax)


def plot_associations(
    model: Mixture | Associations,
    *,
    most: int = 20,
    support: IntArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the pairs of variables with the most mutual information, the largest at the top.

    Parameters
    ----------
    model
        The model, or associations measured under it.
    most
        Maximum number of pairs to draw, at least 1.
    support
        Number of samples in which each pair is observed, as for `Associations.rank_pairs`.
    ax
        Axes to draw on; None creates them.

    Returns
    -------
    The Axes: a bar per pair, nats.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or an argument is out of range.
    """
    check(at_least(1), most=most)
    found = model if isinstance(model, Associations) else measure_associations(model)
    pairs = found.rank_pairs(most, support)
    values = [found.mutual_information[pair] for pair in pairs]
    ax = open_axes(ax, (6.4, 0.8 + 0.25 * max(len(pairs), 1)))
    ax.barh(range(len(pairs)), values, color=MAIN)
    names = [[write_text(found.names[position], 24) for position in pair] for pair in pairs]
    label_rows(ax, [" and ".join(pair) for pair in names])
    ax.set_xlabel("mutual information, nats")
    return clear_frame(ax)


def plot_marginal(
    model: Mixture,
    variable: str | int,
    *,
    given: Given | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the PMF of a variable; given a condition, the conditional PMF next to the marginal one.

    Parameters
    ----------
    model
        The model.
    variable
        Name or position.
    given
        Levels of other variables, as for `JointPMF.marginal`.
    ax
        Axes to draw on; None creates them.

    Returns
    -------
    The Axes: a bar per level, in per cent.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    SchemaError
        If a variable or level is unknown.
    """
    known = model.schema[variable]
    pmf = 100 * model.marginal([variable])
    ax = open_axes(ax, (5.6, 0.8 + 0.28 * pmf.size))
    positions = np.arange(pmf.size)
    if given is not None:
        condition = describe_conditions(model.schema, encode_conditions(model.schema, given))
        ax.barh(
            positions - 0.2,
            100 * model.marginal([variable], given),
            0.4,
            color=MAIN,
            label=write_text(f"given {condition}", 60),
        )
        ax.barh(positions + 0.2, pmf, 0.4, color=FAINT, label="of all samples")
        name_marks(ax)
    else:
        ax.barh(positions, pmf, color=MAIN)
    label_rows(ax, known.levels)
    ax.set_xlabel("probability, %")
    ax.set_title(write_text(known.name, 60), loc="left", parse_math=False)
    return clear_frame(ax)
