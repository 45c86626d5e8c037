"""Scores of rows as Arrow tables: one row per sample, with its log-probability, anomaly score and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.codes import Codes
from pmflib.model.marginals import RowScores
from pmflib.model.measures import TargetSums, score_target
from pmflib.model.mixture import Mixture
from pmflib.model.row_scores import ReferenceScores, RowScorer
from pmflib.model.table_makers import ScoreOptions, digest_model

NO_OPTIONS = ScoreOptions()
"""No optional columns."""


class TableScorer:
    """Scorer that returns, as a table, the scores of rows and predictions of target variables from the others.

    Parameters
    ----------
    model
        The model.
    reference
        Reference scores for the percentiles.
    options
        Optional columns to compute besides the scores.
    metadata
        Metadata of every table, by key: the model and its run.

    Raises
    ------
    SchemaError
        If a name in ``targets`` or ``keep`` is not a variable.
    """

    def __init__(
        self,
        model: Mixture,
        reference: ReferenceScores,
        options: ScoreOptions = NO_OPTIONS,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.schema, self.options = model, model.schema, options
        self.metadata = {
            f"pmf.{name}": text
            for name, text in {
                "model": digest_model(model),
                "schema": model.schema.digest,
                "reference": f"{reference.surprises.size} {reference.origin}",
                **(metadata or {}),
            }.items()
        }
        self._scorer, self._reference = RowScorer(model), reference
        schema = model.schema
        for name in (*options.targets, *options.keep):
            schema.position(name)
        labels = {level: None for variable in schema for level in variable.levels}
        positions = {level: position for position, level in enumerate(labels)}
        self._labels = pa.array(list(labels), pa.string())
        self._names = pa.array(schema.names, pa.string())
        # position of every (stacked) level among the distinct labels
        self._label_of = np.array(
            [positions[level] for variable in schema for level in variable.levels], np.int32
        )

    def score(
        self, codes: IntArray, origins: Mapping[str, pa.Array] | None = None
    ) -> tuple[pa.Table, list[TargetSums]]:
        """Score rows.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.
        origins
            Columns to put first: identifiers, files, row numbers.

        Returns
        -------
        table
            The origins; the kept variables; log_prob (nats); state (most probable latent state); observed (number of
            observed cells); anomaly_score and anomaly_percentile; surprising_variable, surprising_level and
            surprising_probability: the least probable cell given the others; expected_level and expected_probability:
            its most probable level; null if nothing is observed. For each target T: T.label, T.probability, T.expected
            if T is ordinal, and T=L for each level L if requested.
        sums
            Evaluation of the predictions of each target, over the rows in which the target is observed.
        """
        return self.make_table(codes, self._scorer.score(codes), origins)

    @property
    def facts(self) -> Mapping[str, object]:
        """Empty: the report already contains the measures."""
        return {}

    def make_table(
        self, codes: IntArray, found: RowScores, origins: Mapping[str, pa.Array] | None = None
    ) -> tuple[pa.Table, list[TargetSums]]:
        """Make the table of `score` from the scores of the rows."""
        model, options = self.model, self.options
        columns: dict[str, pa.Array] = {
            **(origins or {}),
            **{name: self._take_levels(codes, name) for name in options.keep},
            "log_prob": pa.array(found.log_probs),
            "state": pa.array(found.states),
            "observed": pa.array(found.n_observed),
            **self._describe(codes, found),
        }
        scored = []
        for target in options.targets:
            variable = model.schema[target]
            pmf = model.predict_proba(Codes(codes), target)
            scored.append(score_target(pmf, codes[:, model.schema.position(target)]))
            columns |= self._read_pmf(pmf, target)
            if options.probabilities:
                for code, level in enumerate(variable.levels):
                    columns[f"{target}={level}"] = pa.array(pmf[:, code])
        return pa.table(columns).replace_schema_metadata(self.metadata), scored

    def _describe(self, codes: IntArray, found: RowScores) -> dict[str, pa.Array]:
        """Return the columns on anomalies of each row."""
        nothing = found.n_observed == 0
        percentiles = self._reference.find_percentiles(found.surprises, found.n_observed)
        surprising = np.maximum(found.variables, 0)
        first = self.model.schema.offsets[surprising]
        own = codes[np.arange(len(codes)), surprising].astype(np.int64)
        levels = [self._label_of[first + np.maximum(code, 0)] for code in (own, found.expected)]
        return {
            "anomaly_score": _narrow(found.surprises, nothing),
            "anomaly_percentile": _narrow(percentiles, nothing),
            "surprising_variable": _name(found.variables, self._names, nothing),
            "surprising_level": _name(levels[0], self._labels, nothing),
            "surprising_probability": _narrow(found.probabilities, nothing),
            "expected_level": _name(levels[1], self._labels, nothing),
            "expected_probability": _narrow(found.expected_probabilities, nothing),
        }

    def _take_levels(self, codes: IntArray, name: str) -> pa.Array:
        """Return the levels of a variable, null if missing."""
        levels = codes[:, self.model.schema.position(name)].astype(np.int32)
        return _name(levels, pa.array(self.model.schema[name].levels, pa.string()), levels < 0)

    def _read_pmf(self, pmf: FloatArray, target: str) -> dict[str, pa.Array]:
        variable = self.model.schema[target]
        best = pmf.argmax(axis=1).astype(np.int32)
        chances = pmf[np.arange(len(pmf)), best] if len(pmf) else np.empty(0)
        columns = {
            f"{target}.label": _name(best, pa.array(variable.levels, pa.string()), None),
            f"{target}.probability": pa.array(chances),
        }
        if variable.values is not None:
            columns[f"{target}.expected"] = pa.array(pmf @ variable.numeric_values())
        return columns


def _name(positions: IntArray, names: pa.Array, mask: np.ndarray | None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(positions, pa.int32(), mask=mask), names)


def _narrow(values: FloatArray, mask: np.ndarray) -> pa.Array:
    """Convert values to float32, which is precise enough for scores and halves the size of files."""
    return pa.array(values.astype(np.float32), mask=mask)


def score_table(
    model: Mixture,
    table: object,
    targets: Sequence[str] = (),
    *,
    reference: ReferenceScores | None = None,
    probabilities: bool = False,
) -> pa.Table:
    """Score rows: log-probability, anomaly score, the least expected cell, and predictions of target variables.

    Parameters
    ----------
    model
        The model.
    table
        As for `JointPMF.log_prob`.
    targets
        Names of variables to predict from the others.
    reference
        Reference scores for the percentiles, as loaded by `pmflib.model.row_scores.ReferenceScores`; by default
        those of samples drawn from the model.
    probabilities
        Whether to return the probability of every level of a target as well.

    Returns
    -------
    Arrow table with the columns of `TableScorer.score`, one row per input row.

    Raises
    ------
    SchemaError
        If the table does not fit the schema, or a target is not a variable.
    """
    codes = model.encode(table)
    reference = ReferenceScores.draw(model) if reference is None else reference
    options = ScoreOptions(tuple(targets), probabilities)
    return TableScorer(model, reference, options).score(codes)[0]
