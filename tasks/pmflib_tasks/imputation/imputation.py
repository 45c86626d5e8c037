"""Multiple imputation of tables: each row once per draw, with its missing cells drawn from a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.errors import SchemaError
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.em.stored_samples import StoredSamples
from pmflib.inference.imputation.imputing import draw_gaps, seed_rows
from pmflib.inference.imputation.resampled_fits import fit_resampled
from pmflib.ingest.dataset.identifiers import as_binary, hash_identifiers
from pmflib.model import JointPMF
from pmflib.model.measures import TargetSums
from pmflib.model.table_makers import ScoreOptions, digest_model
from pmflib.store.sample_blocks import iterate_blocks

DRAW = "draw"
"""Column with the number of the draw, from 1."""
ORIGINS = ("sample", "file", "row", DRAW)
"""Reserved names of columns."""


class TableImputer:
    """Imputer of the missing cells of rows, once per draw.

    The drawn cells of a row depend on the seed, the draw, the observed cells, and the identity of the row: the
    identifier of its sample, or its file and number. They do not depend on the partition into blocks.

    Parameters
    ----------
    model
        The fitted model, with the schema of the rows.
    draw_models
        Model of each draw, at least one.
    observed
        bool of shape (n_variables,): whether any training sample has the variable. Cells of the other variables stay
        missing.
    seed
        Seed of the draws.
    metadata
        Metadata of every table by name: the model and its run.

    Raises
    ------
    SchemaError
        If a variable has a reserved name.
    """

    def __init__(
        self,
        model: JointPMF,
        draw_models: Sequence[JointPMF],
        observed: BoolArray,
        seed: int,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.schema, self.options = model, model.schema, ScoreOptions()
        self._draw_models, self._observed, self._seed = tuple(draw_models), observed, seed
        for name in ORIGINS:
            if name in model.schema:
                raise SchemaError(
                    f"variable {name!r} has the name of a column of filled tables, which have {ORIGINS}; rename it"
                )
        facts = {
            "model": digest_model(model),
            "schema": model.schema.digest,
            "draws": str(len(self._draw_models)),
            "seed": str(seed),
            **(metadata or {}),
        }
        self.metadata = {f"pmf.{name}": text for name, text in facts.items()}

    @property
    def facts(self) -> Mapping[str, object]:
        """Names of the variables whose cells stay missing."""
        names = self.schema.names
        return {"left_missing": [names[each] for each in np.flatnonzero(~self._observed).tolist()]}

    def score(
        self, codes: IntArray, origins: Mapping[str, pa.Array] | None = None
    ) -> tuple[pa.Table, list[TargetSums]]:
        """Impute rows.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.
        origins
            Leading columns, which identify the rows: identifiers, or files with row numbers.

        Returns
        -------
        Table with the origins, the number of the draw and the levels of all variables, draw after draw; and no sums,
        because no target is predicted.
        """
        keys = hash_rows(origins or {}, len(codes))
        gaps = (codes < 0) & self._observed
        filled = [
            draw_gaps(model, codes, gaps, seed_rows(keys, self._seed, draw))
            for draw, model in enumerate(self._draw_models)
        ]
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            name: pa.chunked_array([column] * len(filled))
            for name, column in (origins or {}).items()
        }
        numbers = np.arange(1, len(filled) + 1, dtype=np.int16)
        columns[DRAW] = pa.array(np.repeat(numbers, len(codes)))
        stacked = np.concatenate(filled)
        for position, variable in enumerate(self.schema):
            own = stacked[:, position]
            indices = pa.array(np.ascontiguousarray(own), mask=own < 0)
            levels = pa.array(variable.levels, pa.string())
            columns[variable.name] = pa.DictionaryArray.from_arrays(indices, levels)
        return pa.table(columns).replace_schema_metadata(self.metadata), []


def make_imputer(
    model: JointPMF,
    training: StoredSamples,
    draws: int,
    seed: int,
    metadata: Mapping[str, str] | None = None,
    on_fit: Callable[[int, int], None] = lambda *_: None,
) -> TableImputer:
    """Make an imputer; a single draw uses the model, several draws each use a fit to a bootstrap sample.

    Parameters
    ----------
    model
        The model.
    training
        Training samples of the model.
    draws
        Number of draws, at least 1.
    seed
        Seed of the bootstrap samples and of the draws.
    metadata
        As for `TableImputer`.
    on_fit
        As for `pmflib.inference.imputation.resampled_fits.fit_resampled`.
    """
    observed = np.zeros(model.schema.n_variables, bool)
    for block in iterate_blocks(training.blocks):
        observed |= (block.to_codes(model.schema.offsets) >= 0).any(axis=0)
        if observed.all():
            break
    models = [model] if draws == 1 else fit_resampled(model, training, draws, seed, on_fit)
    return TableImputer(model, models, observed, seed, metadata)


def hash_rows(origins: Mapping[str, pa.Array], n_rows: int) -> HashArray:
    """Hash the identities of rows: identifiers, else files and row numbers, else positions."""
    rows = np.arange(n_rows)
    if "row" in origins:
        rows = origins["row"].fill_null(-1).to_numpy(zero_copy_only=False)
    by_row = mix_hashes(rows)
    if "file" in origins:
        by_row = mix_hashes(by_row ^ hash_identifiers(as_binary(origins["file"])))
    if "sample" not in origins:
        return by_row
    samples = origins["sample"]
    is_named = samples.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_named, hash_identifiers(as_binary(samples)), by_row)
