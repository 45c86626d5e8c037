"""How many rows a model counts for in answers, learnt from samples that its fit has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.counting.conditional_tables import TableRequest, count_stored_tables
from pmflib.em.stored_samples import StoredSamples
from pmflib.model import JointPMF
from pmflib.model.questions.equivalent_samples import (
    NAME,
    EquivalentSamples,
    learn_equivalent_samples,
)
from pmflib.model.questions.evidence import count_codes
from pmflib.store.sample_blocks import BlockReference

AnyModel = TypeVar("AnyModel", bound=JointPMF)

COUNTED_ROWS = 1 << 18
"""Samples of the fit that are counted at most, in whole blocks; m is in rows, whatever their number."""
UNSEEN_ROWS = 1 << 17
"""Unseen samples that are counted at most, in whole blocks: their sampling error is far below the bias of models."""


def weigh_model(model: AnyModel, samples: object, unseen: object, *, rng: int = 0) -> AnyModel:
    """Learn how many rows a model counts for in answers, beside counts.

    Parameters
    ----------
    model
        The model.
    samples
        Samples that it was fitted to: a table, codes, or `StoredSamples`.
    unseen
        Samples that it was not fitted to, likewise.
    rng
        Seed of the questions that are drawn.

    Returns
    -------
    The model, whose origin has what was learnt as "equivalent_samples"; it is saved and loaded with the model, and
    `pmflib.model.questions.ask` uses it. Without unseen samples that hold a value it is the model that was given.

    Raises
    ------
    SchemaError
        If samples do not fit the schema of the model.
    StoreError
        If stored samples are gone or damaged.
    """
    schema = model.schema
    hidden = _take(unseen, UNSEEN_ROWS)
    codes = hidden.read_codes() if isinstance(hidden, StoredSamples) else schema.encode(hidden)
    if not len(codes):
        return model
    count_unseen = partial(count_codes, codes, schema)
    if isinstance(hidden, StoredSamples) and hidden.is_weighted:
        count_unseen = partial(_count_stored, hidden)
    if isinstance(samples, StoredSamples):
        n_seen, seen = round(samples.n_samples), _take(samples, COUNTED_ROWS)
        assert isinstance(seen, StoredSamples)
        count_seen = partial(_count_stored, seen)
    else:
        fitted = schema.encode(samples)
        n_seen, step = len(fitted), max(1, -(-len(fitted) // COUNTED_ROWS))
        count_seen = partial(count_codes, fitted[::step], schema)
    found: EquivalentSamples = learn_equivalent_samples(
        model, codes, count_seen, count_unseen, n_seen, rng
    )
    if not found.n_questions:
        return model
    return replace(model, origin={**model.origin, NAME: found.to_json()})


def _take(samples: object, most: int) -> object:
    """Stored samples of as many blocks as hold so many rows, spread over all; others as they are."""
    if not isinstance(samples, StoredSamples) or samples.n_rows <= most:
        return samples
    filled: list[BlockReference] = [block for block in samples.blocks if block.n_rows]
    n_blocks = max(1, most * len(filled) // samples.n_rows)
    chosen = np.linspace(0, len(filled) - 1, n_blocks).round().astype(int)
    return replace(samples, blocks=[filled[position] for position in np.unique(chosen)])


def _count_stored(samples: StoredSamples, requests: Sequence[TableRequest]) -> list[IntArray]:
    # so few rows are counted here in less time than workers take to be asked
    return count_stored_tables(samples.blocks, samples.schema, requests).to_samples()[0]
