"""Training and held-out samples of a stack."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import PmfError
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.em_fit import N_FOLDS
from pmflib.schema import Schema
from pmflib.store.dataset import take_block

FEW_ROWS = 2000
"""Rows below which each of the folds is held out in turn; with more, one fold tells the weights."""
LEAST_ROWS = 10
"""Rows below which nothing is held out, and variables are taken as independent."""
MOST_HELD_OUT = 50_000
"""Maximum number of held-out rows from which weights are learnt."""


class Split(NamedTuple):
    """Training samples, and held-out ones in memory."""

    training: DenseBlock | StoredSamples
    held_out: DenseBlock


def split_samples(
    samples: DenseBlock | StoredSamples, validation: object | None, schema: Schema
) -> list[Split]:
    """Return training and held-out samples: one split, or one for each fold if there are few rows."""
    if isinstance(validation, StoredSamples):
        held_out = validation.read_some(MOST_HELD_OUT)
        return [Split(samples, held_out)] if len(held_out) else []
    if validation is not None:
        held_out = DenseBlock(schema.encode(validation))
        if not len(held_out):
            raise PmfError("validation has no rows; omit it, or hold out at least one sample")
        return [Split(samples, held_out)]
    if isinstance(samples, StoredSamples):
        folds = sorted({block.fold for block in samples.blocks})
        rest = [block for block in samples.blocks if block.fold != folds[-1]]
        last = [block for block in samples.blocks if block.fold == folds[-1]]
        if not rest:
            return []
        held_out = take_block(last, schema, MOST_HELD_OUT)
        return [Split(samples.with_blocks(rest), held_out)]
    if len(samples) < LEAST_ROWS:
        return []
    fold = samples.assign_folds(N_FOLDS)
    turns = range(N_FOLDS if len(samples) < FEW_ROWS else 1)
    # a design may have so few units that folds are empty
    return [
        Split(samples[fold != k], samples[fold == k])
        for k in turns
        if 0 < np.count_nonzero(fold == k) < len(samples)
    ]
