"""Questions about samples: the value of one variable of one sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pmflib.arrays import IntArray
from pmflib.config import SourceConfig
from pmflib.errors import ConfigError, SourceError
from pmflib.hashing import HashArray
from pmflib.ingest.erased_samples import ErasedSamples
from pmflib.ingest.identifiers import read_identifiers
from pmflib.ingest.long import ValueEncoder, encode_variables
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.schema import Schema


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
        int64 of shape (n_questions,): place of the variable to predict, negative where the schema lacks it.
    names
        Text of length n_questions: the variable's name as it was written.
    truths
        int64 of shape (n_questions,): code of the true answer, negative where not given or no level.
    """

    samples: pa.BinaryArray
    hashes: HashArray
    variables: IntArray
    names: pa.StringArray
    truths: IntArray

    def leave_out(self, erased: ErasedSamples | None) -> Questions:
        """Questions about samples that are not erased."""
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


def read_questions(source: Source, schema: Schema, config: SourceConfig) -> Questions:
    """Read questions from a file laid out like a long log, with or without the column of values.

    Parameters
    ----------
    source
        The file.
    schema
        Variables and levels.
    config
        Names of the columns; its layout is long. Where its files have no header, questions may have one all the same.

    Raises
    ------
    ConfigError
        If the layout is wide.
    SourceError
        If the file cannot be read, or has a row with too few or too many fields.
    """
    if config.layout != "long" or not (config.sample and config.variable and config.value):
        raise ConfigError(
            f"source.layout is {config.layout!r}; questions need 'long' with sample, variable and value"
        )
    wanted = [config.sample, config.variable]
    named = config.model_copy(update={"columns": None})
    if config.columns is not None and {*wanted} <= {*read_columns(source, named)}:
        # a log without a header may be asked about by a file that has one
        config = named
    if config.value in read_columns(source, config):
        wanted.append(config.value)
    encoder = ValueEncoder(schema)
    samples, hashes, places, names, truths = [], [], [], [], []
    for raw in read_rows(source, config, wanted):
        if raw.ragged:
            raise SourceError(
                f"{source.name}, row {raw.ragged[0][0]}: has too few or too many fields; correct the file, or name its "
                f"columns in a header, {wanted[0]!r} and {wanted[1]!r} among them"
            )
        identifiers = read_identifiers(raw.batch.column(0))
        variables = encode_variables(schema, raw.batch.column(1))
        samples.append(identifiers.texts)
        hashes.append(identifiers.hashes)
        places.append(variables)
        names.append(read_identifiers(raw.batch.column(1)).texts.cast(pa.string()))
        known = np.full(len(variables), -1, np.int64)
        if len(wanted) == 3:
            known = encoder.encode(np.maximum(variables, 0), raw.batch.column(2)).astype(np.int64)
        truths.append(np.where(variables >= 0, known, -1))
    if not samples:
        raise SourceError(f"{source.name}: has no questions; give at least one row")
    return Questions(
        pa.concat_arrays(samples),
        np.concatenate(hashes),
        np.concatenate(places),
        pa.concat_arrays(names),
        np.concatenate(truths),
    )
