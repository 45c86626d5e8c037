"""Latent classes for people to read beside a stack that answers, and how far the two disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray, sum_blocks
from pmflib.base.blocks import DenseBlock, weigh_rows
from pmflib.base.codes import Codes
from pmflib.base.comparison import compare_samples
from pmflib.base.json_records import JsonRecord
from pmflib.model import JointPMF

MOST_LEVELS = 3000
"""Maximum number of levels for which the tables of all pairs are compared, in 0.2 GB."""


@dataclass(frozen=True)
class Disagreement(JsonRecord):
    """How far latent classes are from a stack of models.

    Parameters
    ----------
    n_classes
        Number of latent classes.
    n_rows
        Number of held-out samples.
    gap, error
        Log-likelihood of the stack minus that of the classes per held-out sample, nats, and its standard error; 0
        without held-out samples.
    variation
        Total variation between the joint PMFs of two variables, in [0, 1], mean over pairs; None if there are more
        levels than ``MOST_LEVELS``, or no pairs.
    largest
        That of the pair that differs most.
    pair
        Names of that pair; empty without one.
    """

    n_classes: int
    n_rows: int
    gap: float
    error: float
    variation: float | None = None
    largest: float | None = None
    pair: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say it in a sentence."""
        text = f"{self.n_classes} latent classes to read, beside the stack that answers"
        if self.n_rows:
            gap = f"{self.gap:.3f} +- {self.error:.3f} nats"
            text += f": {self.n_rows:,} held-out rows are {gap} likelier under the stack"
        if self.variation is None or self.largest is None:
            return text
        text += f"; tables of two variables differ by {100 * self.variation:.2g} % of the rows in the mean"
        return f"{text}, and most, {100 * self.largest:.2g} %, those of {' and '.join(self.pair)}"


def compare_readings(stack: JointPMF, classes: JointPMF, held_out: DenseBlock) -> Disagreement:
    """Measure how far latent classes are from a stack of models.

    Parameters
    ----------
    stack, classes
        Models of one schema.
    held_out
        Samples that neither was fitted to; may have no rows.

    Returns
    -------
    The differences, of held-out samples by their weights.
    """
    gap, error = 0.0, 0.0
    if len(held_out):
        rows, weights = Codes(held_out.codes), weigh_rows(held_out)
        weights = weights / weights.mean()
        scores = [each.log_prob(rows) * weights for each in (stack, classes)]
        gap, error = compare_samples(*scores)
    found = _compare_pairs(stack, classes)
    if found is None:
        return Disagreement(classes.rank, len(held_out), gap, error)
    names = stack.schema.names
    pair = names[found.first], names[found.second]
    return Disagreement(classes.rank, len(held_out), gap, error, found.mean, found.largest, pair)


class _Pairs(NamedTuple):
    mean: float
    largest: float
    first: int
    second: int


def _compare_pairs(stack: JointPMF, classes: JointPMF) -> _Pairs | None:
    schema = stack.schema
    if schema.n_variables < 2 or schema.n_levels > MOST_LEVELS:
        return None
    apart: FloatArray = np.abs(stack.find_pairs() - classes.find_pairs()) / 2
    by_pair = sum_blocks(sum_blocks(apart, schema.offsets), schema.offsets, axis=1)
    rows, columns = np.triu_indices(schema.n_variables, 1)
    found = by_pair[rows, columns]
    most = int(found.argmax())
    return _Pairs(float(found.mean()), float(found[most]), int(rows[most]), int(columns[most]))
