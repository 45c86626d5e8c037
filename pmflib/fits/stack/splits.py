"""Training and held-out samples of a stack."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import PmfError
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.em_fit import N_FOLDS
from pmflib.schema import Schema

FEW_ROWS = 2000
"""Rows below which each of the folds is held out in turn; with more, one fold tells the weights."""
LEAST_ROWS = 10
"""Rows below which nothing is held out, and variables are taken as independent."""
MOST_HELD_OUT = 50_000
"""Number of held-out rows from which weights are learnt, if there are so many; stored ones are whole blocks."""


class Split(NamedTuple):
    """Training and held-out samples; the latter are stored if the former are, so that workers share their scoring."""

    training: DenseBlock | StoredSamples
    held_out: DenseBlock | StoredSamples


def split_samples(
    samples: DenseBlock | StoredSamples, validation: object | None, schema: Schema
) -> list[Split]:
    """Return training and held-out samples: one split, or one for each fold if there are few rows."""
    if isinstance(validation, StoredSamples):
        if not validation.n_rows:
            return []
        if isinstance(samples, StoredSamples):
            return [Split(samples, limit_rows(validation))]
        return [Split(samples, validation.read_some(MOST_HELD_OUT))]
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
        return [Split(samples.with_blocks(rest), limit_rows(samples.with_blocks(last)))]
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


def limit_rows(samples: StoredSamples) -> StoredSamples:
    """Return blocks spread over stored samples, with ``MOST_HELD_OUT`` rows or hardly more."""
    filled = [block for block in samples.blocks if block.n_rows]
    n_blocks = max(1, MOST_HELD_OUT * len(filled) // max(samples.n_rows, 1))
    if n_blocks >= len(filled):
        return samples
    positions = np.linspace(0, len(filled) - 1, n_blocks).astype(np.int64)
    return samples.with_blocks([filled[position] for position in np.unique(positions)])
