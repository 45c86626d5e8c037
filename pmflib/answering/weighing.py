"""Learn the weight of a model relative to counts in answers, in rows, from unseen samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from pmflib.answering.conditional_tables import TableRequest
from pmflib.answering.equivalent_samples import (
    NAME,
    EquivalentSamples,
    find_equivalent_samples,
    learn_equivalent_samples,
)
from pmflib.answering.evidence import count_codes, count_designed
from pmflib.answering.weighted_tables import count_stored_tables
from pmflib.base.arrays import IntArray, check_model_type
from pmflib.base.blocks import DenseBlock, weigh_rows
from pmflib.base.errors import PmfError
from pmflib.base.variance import Variance, weigh_samples
from pmflib.em.stored_samples import StoredSamples
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockReference

AnyModel = TypeVar("AnyModel", bound=JointPMF)

COUNTED_ROWS = 1 << 18
"""Maximum number of training samples that are counted, in whole blocks; the weight is in rows in any case."""
UNSEEN_ROWS = 1 << 17
"""Maximum number of unseen samples that are counted, in whole blocks: their sampling error is far below model bias."""
TRIAL_QUESTIONS = 40
"""Number of questions of each number of variables to a trial, tens of milliseconds to seconds beside its fit."""


def weigh_model(
    model: AnyModel,
    samples: object,
    unseen: object,
    *,
    rng: int = 0,
    design: Variance | None = None,
    unseen_design: Variance | None = None,
) -> AnyModel:
    """Learn how many rows a model counts for beside the counts in answers.

    Parameters
    ----------
    model
        The model.
    samples
        Samples that the model was fitted to: a table, codes, or `StoredSamples`.
    unseen
        Samples that the model was not fitted to, in the same forms.
    rng
        Seed for drawing questions.
    design, unseen_design
        Survey designs of samples and unseen samples in memory, both or none: rows are then effective samples of a table
        under the design, as in answers with a design.

    Returns
    -------
    The model with the learnt weight in its origin as "equivalent_samples", which is saved and loaded with the model and
    used by `pmflib.answering.ask`. Without unseen samples that have a value, the model that was given.

    Raises
    ------
    PmfError
        If only one design is given, or samples with a design are stored or have another number of rows.
    SchemaError
        If samples do not fit the schema of the model.
    StoreError
        If stored samples are gone or damaged.
    """
    check_model_type("model", model, JointPMF)
    schema = model.schema
    if design is not None or unseen_design is not None:
        return _weigh_designed(model, (samples, unseen), (design, unseen_design), rng)
    hidden = _take(unseen, UNSEEN_ROWS)
    codes = hidden.read_codes() if isinstance(hidden, StoredSamples) else schema.encode(hidden)
    if not len(codes):
        return model
    count_unseen = partial(count_codes, codes, schema)
    if isinstance(hidden, StoredSamples) and hidden.is_weighted:
        count_unseen = partial(_count_stored, hidden)
    if isinstance(samples, StoredSamples):
        n_seen, seen = samples.n_samples, _take(samples, COUNTED_ROWS)
        assert isinstance(seen, StoredSamples)
        count_seen = partial(_count_stored, seen)
    else:
        fitted = schema.encode(samples)
        n_seen, step = len(fitted), max(1, -(-len(fitted) // COUNTED_ROWS))
        count_seen = partial(count_codes, fitted[::step], schema)
    found: EquivalentSamples = learn_equivalent_samples(
        model, codes, count_seen, count_unseen, n_seen, rng
    )
    return _keep(model, found)


def weigh_by_trial(
    model: AnyModel, trial: JointPMF, samples: DenseBlock, unseen: DenseBlock
) -> AnyModel:
    """Learn the weight of a model from a trial of it, which was fitted without some of the samples.

    Parameters
    ----------
    model
        The model, fitted to all samples.
    trial
        A model with the same options, fitted to ``samples``.
    samples, unseen
        Samples that the trial was fitted to, and the others; both have weights or neither has.

    Returns
    -------
    The model with the weight of the trial, or as it is if the samples left out hold no value.
    """
    parts = samples, unseen
    if samples.weights is None:
        count_seen, count_unseen = (partial(count_codes, x.codes, model.schema) for x in parts)
        n_seen = len(samples)
    else:
        first, second = (Variance.of_rows(weigh_rows(each)) for each in parts)
        count_seen = partial(_count_designed, samples.codes, model.schema, first)
        count_unseen = partial(_count_designed, unseen.codes, model.schema, second)
        n_seen = round(first.weights.n_effective)
    found = learn_equivalent_samples(
        trial, unseen.codes, count_seen, count_unseen, n_seen, n_questions=TRIAL_QUESTIONS
    )
    n_fitted = float(max(round(samples.n_samples + unseen.n_samples), 1))
    return _keep(model, replace(found, n_fitted=n_fitted))


def inherit_weight(model: AnyModel, start: JointPMF, n_samples: float) -> AnyModel | None:
    """Copy the weight of the model that the passes started from; None if it has none.

    A warm refit hardly changes the bias of a model, and learning the weight anew takes as long as all of its passes.
    The next fit from scratch does.

    Parameters
    ----------
    model
        The model.
    start
        The model that it was refitted from.
    n_samples
        Number of samples of the refit, which limits the weight.
    """
    found = find_equivalent_samples(start.origin)
    if not found.n_questions:
        return None
    return _keep(model, replace(found, n_fitted=float(max(round(n_samples), 1))))


def _keep(model: AnyModel, found: EquivalentSamples) -> AnyModel:
    """Return the model with the learnt weight, if any."""
    if not found.n_questions:
        return model
    return replace(model, origin=model.origin.add(**{NAME: found.to_json()}))


def _weigh_designed(
    model: AnyModel,
    samples: tuple[object, object],
    designs: tuple[Variance | None, Variance | None],
    rng: int,
) -> AnyModel:
    """Learn the weight of a model in effective samples."""
    first, second = designs
    if first is None or second is None:
        raise PmfError("design and unseen_design go together; give how both samples were drawn")
    if any(isinstance(each, StoredSamples) for each in samples):
        raise PmfError("a design is given and samples are stored; pass samples in memory")
    if first.is_simple and second.is_simple:
        return weigh_model(model, *samples, rng=rng)
    schema = model.schema
    seen, unseen = (
        weigh_samples(DenseBlock(schema.encode(each)), design, None).codes
        for each, design in zip(samples, (first, second), strict=True)
    )
    count_seen = partial(_count_designed, seen, schema, first)
    count_unseen = partial(_count_designed, unseen, schema, second)
    n_seen = round(first.weights.n_effective)
    found = learn_equivalent_samples(model, unseen, count_seen, count_unseen, n_seen, rng)
    return _keep(model, found)


def _count_designed(
    codes: IntArray, schema: Schema, design: Variance, requests: Sequence[TableRequest]
) -> list[IntArray]:
    return count_designed(codes, schema, design, requests)[0]


def _take(samples: object, most: int) -> object:
    """Limit stored samples to blocks of about some number of rows; return others unchanged."""
    if not isinstance(samples, StoredSamples) or samples.n_rows <= most:
        return samples
    filled: list[BlockReference] = [block for block in samples.blocks if block.n_rows]
    n_blocks = max(1, most * len(filled) // samples.n_rows)
    chosen = np.linspace(0, len(filled) - 1, n_blocks).round().astype(int)
    return samples.with_blocks([filled[position] for position in np.unique(chosen)])


def _count_stored(samples: StoredSamples, requests: Sequence[TableRequest]) -> list[IntArray]:
    # so few rows are counted here in less time than a request to workers takes
    return count_stored_tables(samples.blocks, samples.schema, requests).to_samples()[0]
