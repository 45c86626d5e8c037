"""Columns beside the variables: weights and replicate weights, integers in a fixed unit; strata and sampling units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import ConfigError, SchemaError, SourceError
from pmflib.base.hashing import mix_hashes
from pmflib.base.texts import abridge_names, natural_key
from pmflib.base.weights import LARGEST, LARGEST_ERROR, MOST_DECIMALS
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.dataset.identifiers import read_identifiers
from pmflib.ingest.dataset.row_screening import RowDecisions
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns
from pmflib.ingest.sources import Source
from pmflib.schema import Schema

NEAR_HALF = 1e-3
"""Distance from half a unit within which a number is rounded by its decimal digits instead of its double."""
STORED_DECIMALS = 18
"""Largest number of decimals of stored weights."""
CLEAR = 1 << 40
"""Number of units up to which doubles are more precise than ``NEAR_HALF``."""


def find_decimals(schema: Schema, config: SourceOptions) -> int | None:
    """Decimals of stored weights: those of the schema, or `MOST_DECIMALS`; None without weights.

    Raises
    ------
    SchemaError
        If a weight or replicate column of wide files is also a variable of the schema.
    """
    if config.weight is None:
        return None
    for option, columns in (("weight", (config.weight,)), ("replicates", config.replicate_columns)):
        taken = [name for name in columns if name in schema]
        if taken and config.layout == "wide":
            raise SchemaError(
                f"source.{option} is {abridge_names(taken)}, which is a variable of the schema as well; take it "
                f"out of the schema, or remove source.{option}"
            )
    return MOST_DECIMALS if schema.weight_decimals is None else schema.weight_decimals


def name_unit(schema: Schema, config: SourceOptions) -> dict[str, float]:
    """Options with the decimals of stored weights, and the largest error of rounding; empty without weights."""
    decimals = find_decimals(schema, config)
    return {} if decimals is None else {"weight_decimals": decimals, "weight_error": LARGEST_ERROR}


def read_units(
    raw: RawRows, columns: Sequence[str], config: SourceOptions, decisions: RowDecisions
) -> IntArray | None:
    """Read the strata and sampling units of a batch, and mark rows that lack one.

    Parameters
    ----------
    raw
        The rows.
    columns
        Names of the columns of the batch.
    config
        Options with the columns of strata and units.
    decisions
        Decisions about the rows.

    Returns
    -------
    Hashes of the stratum (0 without strata) and of the unit within it, int64 of shape (n_rows, 2); None without units.
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
        # units are identified within their stratum
        found.append(mix_hashes(texts.hashes ^ mix_hashes(found[-1])))
    strata = found[1] if config.stratum is not None else found[0]
    return np.column_stack([strata, found[-1]]).view(np.int64)


def name_replicates(sources: Sequence[Source], config: SourceOptions) -> SourceOptions:
    """Match the pattern of replicate columns with the columns of the first readable file.

    Returns
    -------
    The options with the names of these columns in natural order. All files must have them.

    Raises
    ------
    ConfigError
        If the pattern matches the weight, fewer than two columns, or another number of columns than factors.
    """
    pattern = config.replicates
    if not isinstance(pattern, str):
        return config
    header: list[str] = []
    for source in sources:
        try:
            header = read_columns(source, config)
            break
        except SourceError:
            # all unreadable files are reported later
            continue
    else:
        return config
    found = sorted((name for name in header if fnmatchcase(name, pattern)), key=natural_key)
    if config.weight in found:
        raise ConfigError(
            f"source.replicates = {pattern!r} matches source.weight = {config.weight!r} as well; pass a pattern of the "
            "replicates alone, as 'W_FSTR[0-9]*', or a list"
        )
    if len(found) < 2:
        raise ConfigError(
            f"source.replicates = {pattern!r} matches {found or 'no column'} of {source.name}, which has "
            f"{abridge_names(header)}; pass at least two columns"
        )
    factors = config.replicate_factors
    if factors is not None and len(factors) != len(found):
        raise ConfigError(
            f"source.replicate_factors has {len(factors)} numbers, and source.replicates = {pattern!r} matches "
            f"{len(found)} columns of {source.name}; pass one for each"
        )
    return config.model_copy(update={"replicates": tuple(found)})


def list_design_columns(config: SourceOptions) -> list[str]:
    """Columns of the sampling design; the weight is last, after its replicates."""
    drawn = (config.stratum, config.psu, *config.replicate_columns, config.weight)
    return [name for name in drawn if name is not None]


def read_weight_column(
    raw: RawRows, decimals: int | None, decisions: RowDecisions
) -> FloatArray | None:
    """Read the weights of a batch, and mark rows without a valid one.

    Parameters
    ----------
    raw
        The rows, whose last column has the weights, as numbers or texts.
    decimals
        Decimals to keep; None without weights.
    decisions
        Decisions about the rows; a weight is invalid if it is missing, not a number, 0, negative, infinite, changed by
        rounding by more than `LARGEST_ERROR`, or not below `LARGEST` units.

    Returns
    -------
    Exact whole numbers of units, float64 of shape (n_rows,), 1 for marked rows; None without weights.
    """
    if decimals is None:
        return None
    position = raw.batch.num_columns - 1
    of_row = read_in_units(raw.batch.column(position), decimals, LARGEST_ERROR)
    decisions.mark(of_row < 1, "bad_weight", position)
    weights: FloatArray = np.maximum(of_row, 1).astype(np.float64)
    return weights


def read_replicate_columns(
    raw: RawRows, config: SourceOptions, decimals: int | None, decisions: RowDecisions
) -> IntArray | None:
    """Read the replicate weights of a batch, and mark rows with an invalid one.

    Parameters
    ----------
    raw, decimals
        As for `read_weight_column`; the replicate columns precede the last one.
    config
        Options with the names of these columns.
    decisions
        Decisions about the rows; a replicate weight is invalid if it is missing, not a number, negative, infinite, or
        not below `LARGEST` units. With 0, the sample is not in the replicate.

    Returns
    -------
    Whole numbers of units, int64 of shape (n_rows, n_replicates); None without replicates.
    """
    n = len(config.replicate_columns)
    if decimals is None or not n:
        return None
    found = np.empty((raw.batch.num_rows, n), np.int64)
    first = raw.batch.num_columns - 1 - n
    for place in range(n):
        found[:, place] = read_in_units(raw.batch.column(first + place), decimals)
        decisions.mark(found[:, place] < 0, "bad_weight", first + place)
    return found


def read_in_units(column: pa.Array, decimals: int, most_error: float = math.inf) -> IntArray:
    """Convert non-negative numbers to units, int64, by their decimal digits; -1 if invalid or changed too much."""
    import pyarrow.compute as pc

    coded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    distinct = coded.dictionary
    units = np.full(len(distinct) + 1, -1, np.int64)
    numbers = _read_doubles(distinct)
    # by digits, as the double may be just below a half
    slow = np.arange(len(distinct))
    if numbers is not None:
        scaled = numbers * 10.0**decimals
        is_clear = (numbers >= 0) & (scaled < CLEAR) & (scaled >= 1 / most_error)
        scaled = np.where(is_clear, scaled, 0.0)
        is_clear &= np.abs(scaled - np.floor(scaled) - 0.5) > NEAR_HALF
        units[:-1][is_clear] = np.rint(scaled[is_clear]).astype(np.int64)
        slow = np.flatnonzero(~is_clear)
    units[slow] = [
        _read(value, decimals, most_error) for value in distinct.take(pa.array(slow)).to_pylist()
    ]
    codes = coded.indices.cast(pa.int64()).fill_null(len(distinct)).to_numpy()
    of_row: IntArray = units[codes]
    return of_row


def _read_doubles(values: pa.Array) -> FloatArray | None:
    """Convert to doubles, NaN for nulls; None if any value is not a number."""
    if pa.types.is_boolean(values.type):
        return None
    try:
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            values = values.cast(pa.string())
        found: FloatArray = values.cast(pa.float64()).fill_null(np.nan).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return found


def _read(value: Any, decimals: int, most_error: float) -> int:
    """Convert one non-negative number to units; -1 if invalid or changed too much."""
    if value is None or isinstance(value, bool):
        return -1
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else str(value)
        number = Decimal(text.strip())
        if not (number.is_finite() and 0 <= number < LARGEST):
            return -1
        exact = number.scaleb(decimals)
        units = int(exact.to_integral_value())
        if exact and abs(float(units / exact) - 1) > most_error:
            return -1
    except (ArithmeticError, ValueError):
        return -1
    return units if units < LARGEST else -1
