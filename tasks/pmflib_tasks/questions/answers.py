"""Questions about stored samples, and tables of answers with a row per question."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FLOOR, IntArray
from pmflib.base.errors import ConfigError, SourceError
from pmflib.base.hashing import HashArray
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import hash_identifiers, read_identifiers, spell_like
from pmflib.ingest.dataset.long import ValueEncoder, encode_variables
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib_tasks.gate.value_errors import ERRORS, describe_errors, find_scales


def answer_questions(
    codes: IntArray, variables: IntArray, truths: IntArray, model: JointPMF
) -> dict[str, pa.Array]:
    """Predict one variable of each sample from its others.

    Parameters
    ----------
    codes
        Shape (n_questions, n_variables): codes of the sample, -1 missing.
    variables
        int64 of shape (n_questions,): variable to predict in each row; its own column is ignored.
    truths
        Codes of the true answers, shape (n_questions,); -1 if unknown.
    model
        The model.

    Returns
    -------
    Columns label, probability, expected (null for variables without values) and log_prob of the true answer (nats; null
    if unknown). Rows are folded in if the model has traits.
    """
    known = codes.copy()
    known[np.arange(len(known)), variables] = -1
    predict = model.make_predictor(known, variables[:, None] == np.arange(model.schema.n_variables))
    label = np.full(len(known), "", object)
    probability, expected, log_prob = (np.full(len(known), np.nan) for _ in range(3))
    for position in np.unique(variables):
        rows = np.flatnonzero(variables == position)
        variable = model.schema[int(position)]
        pmf = predict(int(position), rows)
        best = pmf.argmax(axis=1)
        label[rows] = np.array(variable.levels, object)[best]
        probability[rows] = pmf[np.arange(rows.size), best]
        if variable.values is not None:
            expected[rows] = pmf @ variable.numeric_values()
        truth = truths[rows]
        chance = np.maximum(pmf[np.arange(rows.size), np.maximum(truth, 0)], FLOOR)
        log_prob[rows] = np.where(truth >= 0, np.log(chance), np.nan)
    return {
        "label": pa.array(label, pa.string()),
        "probability": pa.array(probability),
        "expected": pa.array(expected, from_pandas=True),
        "log_prob": pa.array(log_prob, from_pandas=True),
    }


def score_answers(
    answers: pa.Table, variables: IntArray, truths: IntArray, model: JointPMF
) -> dict[str, Any]:
    """Evaluate answers to questions with a known truth.

    Parameters
    ----------
    answers
        Columns label, expected and log_prob, one row per question.
    variables, truths
        int64 of shape (n_questions,): position of the variable, and code of the true answer; negative if unknown.
    model
        The model behind the answers.

    Returns
    -------
    Number of questions with a known truth; accuracy and mean log-probability (nats) over them; and, for variables whose
    levels are numbers, ``ERRORS``: for each scale of `find_scales` the number of questions ("cells"), and the root mean
    squared and mean absolute error of the expected value. Empty if no truth is known.
    """
    scored = np.flatnonzero((truths >= 0) & (variables >= 0))
    if not scored.size:
        return {}
    labels = answers["label"].to_pylist()
    expected = answers["expected"].to_numpy()
    errors, n_correct = np.zeros(len(answers)), 0
    for question in scored.tolist():
        variable = model.schema[int(variables[question])]
        truth = int(truths[question])
        n_correct += labels[question] == variable.levels[truth]
        if variable.values is not None:
            errors[question] = expected[question] - variable.values[truth]
    out: dict[str, Any] = {
        "judged": float(scored.size),
        "accuracy": n_correct / scored.size,
        "log_prob": float(np.mean(answers["log_prob"].to_numpy()[scored])),
    }
    by_scale = {}
    for name, positions in find_scales(model.schema).items():
        own = errors[scored[np.isin(variables[scored], positions)]]
        if own.size:
            sums = float(np.square(own).sum()), float(np.abs(own).sum())
            by_scale[name] = {"cells": own.size, **describe_errors(own.size, *sums)}
    return {**out, ERRORS: by_scale} if by_scale else out


@dataclass(frozen=True)
class Questions:
    """Questions, in the order of their file.

    Parameters
    ----------
    samples
        Binary of length n_questions: identifiers.
    hashes
        uint64 of shape (n_questions,): hashes of the identifiers.
    variables
        int64 of shape (n_questions,): position of the variable to predict; negative if the schema lacks it.
    names
        Text of length n_questions: name of the variable, as written.
    truths
        int64 of shape (n_questions,): code of the true answer; negative if not given or not a level.
    """

    samples: pa.BinaryArray
    hashes: HashArray
    variables: IntArray
    names: pa.StringArray
    truths: IntArray

    def spell_like(self, forms: Collection[str]) -> Questions:
        """Spell whole numbers as the samples of a dataset are spelt: see `pmflib.ingest.dataset.identifiers`."""
        samples = spell_like(self.samples, forms)
        return replace(self, samples=samples, hashes=hash_identifiers(samples))

    def leave_out(self, erased: ErasedSamples | None) -> Questions:
        """Select the questions about samples that are not erased."""
        if erased is None:
            return self
        kept = ~erased.find(self.samples, self.hashes)
        return Questions(
            self.samples.filter(pa.array(kept)),
            self.hashes[kept],
            self.variables[kept],
            self.names.filter(pa.array(kept)),
            self.truths[kept],
        )


def read_questions(source: Source, schema: Schema, config: SourceOptions) -> Questions:
    """Read questions from a file with a long layout, with or without the column of values.

    Parameters
    ----------
    source
        The file.
    schema
        Variables and levels.
    config
        Options with the names of the columns, and a long layout. The file may have a header even if those of the log
        have none.

    Raises
    ------
    ConfigError
        If the layout is wide.
    SourceError
        If the file cannot be read, or has a ragged row.
    """
    if config.layout != "long" or not (config.sample and config.variable and config.value):
        raise ConfigError(
            f"source.layout is {config.layout!r}; questions need 'long' with sample, variable and value"
        )
    requested = [config.sample, config.variable]
    named = config.model_copy(update={"columns": None})
    if config.columns is not None and {*requested} <= {*read_columns(source, named)}:
        # the file of questions has a header although the log has none
        config = named
    if config.value in read_columns(source, config):
        requested.append(config.value)
    encoder = ValueEncoder(schema)
    samples, hashes, positions, names, truths = [], [], [], [], []
    for raw in read_rows(source, config, requested):
        if raw.ragged:
            raise SourceError(
                f"{source.name}, row {raw.ragged[0][0]}: has too few or too many fields; correct the file, or name its "
                f"columns in a header, {requested[0]!r} and {requested[1]!r} among them"
            )
        identifiers = read_identifiers(raw.batch.column(0))
        variables = encode_variables(schema, raw.batch.column(1))
        samples.append(identifiers.texts)
        hashes.append(identifiers.hashes)
        positions.append(variables)
        names.append(read_identifiers(raw.batch.column(1)).texts.cast(pa.string()))
        known = np.full(len(variables), -1, np.int64)
        if len(requested) == 3:
            known = encoder.encode(np.maximum(variables, 0), raw.batch.column(2)).astype(np.int64)
        truths.append(np.where(variables >= 0, known, -1))
    if not samples:
        raise SourceError(f"{source.name}: has no questions; pass at least one row")
    return Questions(
        pa.concat_arrays(samples),
        np.concatenate(hashes),
        np.concatenate(positions),
        pa.concat_arrays(names),
        np.concatenate(truths),
    )
