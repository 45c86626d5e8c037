"""Rows to score: what is not known of one is a cell that is missing, and seldom a reason to refuse the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from pmflib.ingest.chunks import RawRows
from pmflib.ingest.dataset.wide import WideEncoder
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.readers import read_columns
from pmflib.ingest.sources import Source
from pmflib.schema import Schema


def soften_policy(policy: SchemaOptions) -> SchemaOptions:
    """Policy for rows to score: where the row of an unknown level would go to quarantine, the cell counts as missing.

    What a model is fitted to can do without a row; who asks for scores is to have them. A policy to stop is kept to.
    """
    rule = policy.on_unknown_level
    return policy.model_copy(
        update={"on_unknown_level": "missing" if rule == "quarantine" else rule}
    )


def make_encoder(schema: Schema, policy: SchemaOptions, targets: Sequence[str]) -> WideEncoder:
    """Encoder of rows to score.

    Parameters
    ----------
    schema
        Variables and levels.
    policy
        What happens to what does not fit: see `soften_policy`.
    targets
        Variables that are predicted: their own levels are only evaluated by, so that an unknown one stops nothing.
    """
    return WideEncoder(schema, soften_policy(policy), targets)


def list_absent(source: Source, targets: Sequence[str], config: SourceOptions) -> list[str]:
    """Targets that are no column of a file: they are not known in any of its rows.

    Raises
    ------
    SourceError
        If the file cannot be read.
    """
    header = read_columns(source, config) if targets else ()
    return [name for name in targets if name not in header]


def add_columns(raw: RawRows, names: Sequence[str]) -> RawRows:
    """Rows with all columns of some names, in that order; one that they do not have is null.

    Parameters
    ----------
    raw
        A batch of rows.
    names
        Names of the columns.
    """
    nothing = pa.nulls(raw.batch.num_rows, pa.string())
    present = raw.batch.schema.names
    columns = [raw.batch.column(name) if name in present else nothing for name in names]
    return replace(raw, batch=pa.RecordBatch.from_arrays(columns, names=list(names)))
