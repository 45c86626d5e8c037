"""How samples were drawn: weights, kept as whole numbers of a stated unit, and strata and sampling units."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.config import SourceConfig
from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import SchemaError
from pmflib.core.hashing import assign_folds, mix_hashes
from pmflib.core.weights import LARGEST, MOST_DECIMALS
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.dataset.identifiers import read_identifiers
from pmflib.ingest.dataset.row_screening import RowDecisions
from pmflib.schema import Schema


def find_decimals(schema: Schema, config: SourceConfig) -> int | None:
    """Decimals that the weights of a pipeline are kept with, the schema's or `MOST_DECIMALS`; None without weights.

    Raises
    ------
    SchemaError
        If the column of the weights of wide files is a variable of the schema as well.
    """
    if config.weight is None:
        return None
    if config.layout == "wide" and config.weight in schema:
        raise SchemaError(
            f"source.weight is {config.weight!r}, which is a variable of the schema as well; a weight says how a "
            "sample was drawn, and is no answer: take it out of the schema, or remove source.weight"
        )
    return MOST_DECIMALS if schema.weight_decimals is None else schema.weight_decimals


def name_unit(schema: Schema, config: SourceConfig) -> dict[str, int]:
    """Option of what is made of samples with weights: how many decimals these are kept with. None without weights."""
    decimals = find_decimals(schema, config)
    return {} if decimals is None else {"weight_decimals": decimals}


def read_units(
    raw: RawRows, columns: Sequence[str], config: SourceConfig, decisions: RowDecisions
) -> IntArray | None:
    """Read strata and sampling units of a batch of rows, and mark the rows that have none.

    Parameters
    ----------
    raw
        The rows.
    columns
        Names of their columns.
    config
        Names the columns of strata and units.
    decisions
        Decisions on the rows.

    Returns
    -------
    int64 of shape (n_rows, 2): hashes of the stratum, 0 where none are named, and of the unit within it. None where no
    units are named.
    """
    if config.psu is None:
        return None
    found = [np.zeros(raw.batch.num_rows, np.uint64)]
    for name in (config.stratum, config.psu):
        if name is None:
            continue
        position = columns.index(name)
        texts = read_identifiers(raw.batch.column(position))
        decisions.mark(texts.undecodable, "undecodable", position)
        decisions.mark(texts.absent, "no_unit", position)
        # a unit is one within its stratum
        found.append(mix_hashes(texts.hashes ^ mix_hashes(found[-1])))
    strata = found[1] if config.stratum is not None else found[0]
    return np.column_stack([strata, found[-1]]).view(np.int64)


def assign_unit_folds(units: IntArray, n_folds: int) -> IntArray:
    """Fold of each sample by its unit, whichever file it is from: int64 of shape (n_rows,)."""
    return assign_folds(units[:, 1].view(np.uint64), n_folds)


def list_design_columns(config: SourceConfig) -> list[str]:
    """Columns that say how rows were drawn; the weights come last."""
    return [name for name in (config.stratum, config.psu, config.weight) if name is not None]


def read_weight_column(
    raw: RawRows, decimals: int | None, decisions: RowDecisions
) -> FloatArray | None:
    """Read the weights of a batch of rows, and mark the rows that have none.

    Parameters
    ----------
    raw
        The rows; the last column has the weights: numbers, or texts that are numbers.
    decimals
        Decimals that are kept; None where there are no weights.
    decisions
        Decisions on the rows: those whose weight is missing, no number, 0, negative, infinite, less than half a unit or
        not below `LARGEST` units are marked.

    Returns
    -------
    float64 of shape (n_rows,): whole numbers of units, exact; 1 where a row is marked. None without weights.
    """
    if decimals is None:
        return None
    position = raw.batch.num_columns - 1
    column = raw.batch.column(position)
    coded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    # of an exact decimal, so that one unit is not lost where a double is just below a half
    read = [_read(value, decimals) for value in coded.dictionary.to_pylist()]
    units = np.array([*read, 0], np.int64)
    of_row = units[coded.indices.cast(pa.int64()).fill_null(len(read)).to_numpy()]
    decisions.mark(of_row < 1, "bad_weight", position)
    weights: FloatArray = np.maximum(of_row, 1).astype(np.float64)
    return weights


def _read(value: Any, decimals: int) -> int:
    """Units of one weight; 0 where it is none."""
    if value is None or isinstance(value, bool):
        return 0
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else str(value)
        number = Decimal(text.strip())
        if not (number.is_finite() and 0 < number < LARGEST):
            return 0
        units = int(number.scaleb(decimals).to_integral_value())
    except (ArithmeticError, ValueError):
        return 0
    return units if units < LARGEST else 0
