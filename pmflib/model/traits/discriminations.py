"""Discriminations and thresholds: the numbers that item response models are read by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.texts import show_text
from pmflib.model.traits.level_scores import read_values
from pmflib.model.traits.trait_model import TraitModel
from pmflib.schema import Schema


@dataclass(frozen=True, eq=False)
class Discriminations:
    """Discriminations and thresholds of the variables of a trait model, as summaries print them.

    They do not depend on how logits are coded: of two levels, they are the parameters of the two-parameter logistic
    model, ``logit = discrimination * (trait - threshold)``.

    Parameters
    ----------
    levels
        int64 of shape (n_variables, n_traits, 2): rows of the two levels that a trait moves apart most, the one that it
        makes likelier first.
    values
        float64 of shape (n_variables, n_traits): logits between the two per unit of the trait, at least 0.
    steps
        int64 of shape (n_steps, 2): rows of two neighbouring levels, the upper one first. Variables of three or more
        levels without values have none.
    thresholds
        float64 of shape (n_steps,): value of the trait at which both are equally likely; NaN where the trait does not
        move them. Empty for several traits, whose thresholds are lines or planes.
    """

    levels: IntArray
    values: FloatArray
    steps: IntArray
    thresholds: FloatArray

    @classmethod
    def find(cls, traits: TraitModel) -> Discriminations:
        """Find those of a trait model."""
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


def name_contrast(schema: Schema, rows: IntArray) -> tuple[str, str]:
    """Name a variable and two of its levels, given by their rows, such as ("smokes", "yes over no")."""
    position = int(np.searchsorted(schema.offsets, rows[0], "right")) - 1
    variable, first = schema[position], int(schema.offsets[position])
    upper, lower = (show_text(variable.levels[int(row) - first]) for row in rows)
    return variable.name, f"{upper} over {lower}"
