"""Discriminations and thresholds, the usual parameters of item response models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.display.summary import SummaryTable
from pmflib.base.texts import show_text
from pmflib.families.traits.level_scores import read_values
from pmflib.families.traits.trait_model import TraitModel
from pmflib.schema import Schema


@dataclass(frozen=True, eq=False)
class Discriminations:
    """Discriminations and thresholds of the variables of a trait model, as shown in summaries.

    They do not depend on the coding of the logits. For two levels, they are the parameters of the two-parameter
    logistic model, ``logit = discrimination * (trait - threshold)``.

    Parameters
    ----------
    levels
        int64 of shape (n_variables, n_traits, 2): rows of the two levels with the largest difference of slopes on a
        trait, the one with the larger slope first.
    values
        float64 of shape (n_variables, n_traits): that difference in logits per unit of the trait, at least 0.
    steps
        int64 of shape (n_steps, 2): rows of two neighbouring levels, the upper one first. Variables with three or more
        levels and no values have none.
    thresholds
        float64 of shape (n_steps,): value of the trait at which both levels are equally likely; NaN if they do not
        depend on the trait. Empty for several traits, whose thresholds are lines or planes.
    """

    levels: IntArray
    values: FloatArray
    steps: IntArray
    thresholds: FloatArray

    @classmethod
    def find(cls, traits: TraitModel) -> Discriminations:
        """Compute the discriminations and thresholds of a trait model."""
        schema, slopes = traits.schema, traits.slopes
        levels = np.empty((schema.n_variables, traits.n_traits, 2), np.int64)
        steps: list[tuple[int, int]] = []
        for position, variable in enumerate(schema):
            rows = schema.rows_of(position)
            own, last = slopes[rows], variable.cardinality - 1
            is_flat = own.max(axis=0) == own.min(axis=0)
            levels[position, :, 0] = rows.start + np.where(is_flat, last, own.argmax(axis=0))
            levels[position, :, 1] = rows.start + np.where(is_flat, 0, own.argmin(axis=0))
            values = read_values(variable)
            if traits.n_traits == 1 and (values is not None or variable.cardinality == 2):
                ordered = np.arange(last + 1) if values is None else np.argsort(values)
                steps += zip(rows.start + ordered[1:], rows.start + ordered[:-1], strict=True)
        pairs = np.array(steps, np.int64).reshape(-1, 2)
        every = np.arange(traits.n_traits)
        moved = slopes[levels[..., 0], every] - slopes[levels[..., 1], every]
        thresholds = np.zeros(0)
        if len(pairs):
            base, slope = traits.base[pairs], slopes[pairs, 0]
            slope = slope[:, 0] - slope[:, 1]
            thresholds = (base[:, 1] - base[:, 0]) / np.where(slope == 0, np.nan, slope)
        return cls(levels, moved, pairs, thresholds)


def tabulate_items(traits: TraitModel) -> SummaryTable:
    """List the discriminations of the variables, the levels they contrast and, for a single trait, the thresholds."""
    found, schema = Discriminations.find(traits), traits.schema
    owners = np.searchsorted(schema.offsets, found.steps[:, 0], "right") - 1
    rows = []
    for position, variable in enumerate(schema):
        cells = [variable.name]
        for value, levels in zip(found.values[position], found.levels[position], strict=True):
            cells.append(f"{value:.2f} ({name_contrast(schema, levels)[1]})")
        if found.steps.size:
            cells.append(", ".join(f"{each:.2f}" for each in found.thresholds[owners == position]))
        rows.append(tuple(cells))
    title = "Discriminations: logits between two levels per standard deviation of a trait"
    columns = ("variable", *(f"trait {f}" for f in range(traits.n_traits)))
    if found.steps.size:
        title += "; thresholds: trait at which neighbouring levels are equally likely"
        columns = (*columns, "thresholds")
    return SummaryTable(title, columns, rows, len(rows), "result.to_frame()")


def name_contrast(schema: Schema, rows: IntArray) -> tuple[str, str]:
    """Return the names of a variable and of two of its levels, given by rows, such as ("smokes", "yes over no")."""
    position = int(np.searchsorted(schema.offsets, rows[0], "right")) - 1
    variable, first = schema[position], int(schema.offsets[position])
    upper, lower = (show_text(variable.levels[int(row) - first]) for row in rows)
    return variable.name, f"{upper} over {lower}"
