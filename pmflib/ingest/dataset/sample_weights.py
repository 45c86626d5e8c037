"""How samples were drawn: weights and replicates, kept as whole numbers of a stated unit; strata and sampling units."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import ConfigError, SchemaError, SourceError
from pmflib.core.hashing import assign_folds, mix_hashes
from pmflib.core.texts import abridge_names
from pmflib.core.weights import LARGEST, MOST_DECIMALS
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.dataset.identifiers import read_identifiers
from pmflib.ingest.dataset.row_screening import RowDecisions
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns
from pmflib.ingest.sources import Source
from pmflib.schema import Schema
from pmflib.schema.drafting.level_order import natural_key
from pmflib.schema.drafting.value_counts import ValueCounts

NEAR_HALF = 1e-3
"""Distance from half a unit within which a number is rounded by the digits that it is written with."""
DIGITS_KEPT = 4
"""Digits after the first one of the smallest weight that are proposed to be kept."""
CLEAR = 1 << 40
"""Units up to which a double is nearer than that to what it was written as."""


def find_decimals(schema: Schema, config: SourceOptions) -> int | None:
    """Decimals that the weights of a pipeline are kept with, the schema's or `MOST_DECIMALS`; None without weights.

    Raises
    ------
    SchemaError
        If a column of the weights, or of replicates, of wide files is a variable of the schema as well.
    """
    if config.weight is None:
        return None
    for option, columns in (("weight", (config.weight,)), ("replicates", config.replicate_columns)):
        taken = [name for name in columns if name in schema]
        if taken and config.layout == "wide":
            raise SchemaError(
                f"source.{option} is {abridge_names(taken)}, which is a variable of the schema as well; a weight says "
                f"how a sample was drawn, and is no answer: take it out of the schema, or remove source.{option}"
            )
    return MOST_DECIMALS if schema.weight_decimals is None else schema.weight_decimals


def name_unit(schema: Schema, config: SourceOptions) -> dict[str, int]:
    """Option of what is made of samples with weights: how many decimals these are kept with. None without weights."""
    decimals = find_decimals(schema, config)
    return {} if decimals is None else {"weight_decimals": decimals}


def read_units(
    raw: RawRows, columns: Sequence[str], config: SourceOptions, decisions: RowDecisions
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


def name_replicates(sources: Sequence[Source], config: SourceOptions) -> SourceOptions:
    """Match a pattern of the columns of replicate weights with those of the first file that can be read.

    Returns
    -------
    The configuration with their names, those with numbers in the order of these. All files must have them.

    Raises
    ------
    ConfigError
        If the pattern matches the weight, fewer columns than two, or not as many as there are factors.
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
            # it is named with all others that cannot be read
            continue
    else:
        return config
    found = sorted((name for name in header if fnmatchcase(name, pattern)), key=natural_key)
    if config.weight in found:
        raise ConfigError(
            f"source.replicates = {pattern!r} matches source.weight = {config.weight!r} as well; give a pattern of the "
            "replicates alone, as 'W_FSTR[0-9]*', or a list"
        )
    if len(found) < 2:
        raise ConfigError(
            f"source.replicates = {pattern!r} matches {found or 'no column'} of {source.name}, which has "
            f"{abridge_names(header)}; replicates are two columns at least"
        )
    factors = config.replicate_factors
    if factors is not None and len(factors) != len(found):
        raise ConfigError(
            f"source.replicate_factors has {len(factors)} numbers, and source.replicates = {pattern!r} matches "
            f"{len(found)} columns of {source.name}; give one for each"
        )
    return config.model_copy(update={"replicates": tuple(found)})


def list_design_columns(config: SourceOptions) -> list[str]:
    """Columns that say how rows were drawn; the weights come last, and their replicates before them."""
    drawn = (config.stratum, config.psu, *config.replicate_columns, config.weight)
    return [name for name in drawn if name is not None]


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
    of_row = _read_numbers(raw.batch.column(position), decimals)
    decisions.mark(of_row < 1, "bad_weight", position)
    weights: FloatArray = np.maximum(of_row, 1).astype(np.float64)
    return weights


def note_weights(counted: ValueCounts, config: SourceOptions) -> list[str]:
    """Say of a draft's column of weights how many rows it would send to quarantine, and what to do.

    Parameters
    ----------
    counted
        Its values.
    config
        Names the column.
    """
    texts = list(counted.counts)
    units = _read_numbers(pa.array(texts, pa.string()), MOST_DECIMALS)
    bad = [text for text, each in zip(texts, units.tolist(), strict=True) if each < 1]
    n_bad, n_counted = (sum(counted.counts[text] for text in each) for each in (bad, texts))
    if not n_bad:
        return []
    small = [-number.adjusted() for text in bad if (number := _read_positive(text)) is not None]
    remedy = "give numbers with a decimal point, or leave these rows out"
    if small:
        decimals = min(max(small) + DIGITS_KEPT, 18)
        remedy = f'put "weight_decimals": {decimals} into schema.json, which keeps smaller units'
    return [
        f"{config.weight}: {n_bad:,} of {n_counted:,} values, as {bad[0][:40]!r}, are no weights above half of "
        f"10**-{MOST_DECIMALS}, and such rows go to quarantine; {remedy}"
    ]


def _read_positive(text: str) -> Decimal | None:
    """Number below 1 and above 0; None where it is none."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        return None
    return number if number.is_finite() and 0 < number < 1 else None


def read_replicate_columns(
    raw: RawRows, config: SourceOptions, decimals: int | None, decisions: RowDecisions
) -> IntArray | None:
    """Read the replicate weights of a batch of rows, and mark the rows that lack one.

    Parameters
    ----------
    raw, decimals
        As for `read_weight_column`; the columns of the replicates are before the last one.
    config
        Names these columns.
    decisions
        Decisions on the rows: those with a replicate weight that is missing, no number, negative, infinite or not below
        `LARGEST` units are marked. One of 0 leaves the sample out of the replicate.

    Returns
    -------
    int64 of shape (n_rows, n_replicates): whole numbers of units. None without replicates.
    """
    n = len(config.replicate_columns)
    if decimals is None or not n:
        return None
    found = np.empty((raw.batch.num_rows, n), np.int64)
    first = raw.batch.num_columns - 1 - n
    for place in range(n):
        found[:, place] = _read_numbers(raw.batch.column(first + place), decimals)
        decisions.mark(found[:, place] < 0, "bad_weight", first + place)
    return found


def _read_numbers(column: pa.Array, decimals: int) -> IntArray:
    """Units of numbers of at least 0, int64 of the same length; -1 where there is none, as it is written."""
    coded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    distinct = coded.dictionary
    units = np.full(len(distinct) + 1, -1, np.int64)
    numbers = _read_doubles(distinct)
    # of its digits, so that one unit is not lost where a double is just below a half
    slow = np.arange(len(distinct))
    if numbers is not None:
        scaled = numbers * 10.0**decimals
        is_clear = (numbers >= 0) & (scaled < CLEAR)
        scaled = np.where(is_clear, scaled, 0.0)
        is_clear &= np.abs(scaled - np.floor(scaled) - 0.5) > NEAR_HALF
        units[:-1][is_clear] = np.rint(scaled[is_clear]).astype(np.int64)
        slow = np.flatnonzero(~is_clear)
    units[slow] = [_read(value, decimals) for value in distinct.take(pa.array(slow)).to_pylist()]
    codes = coded.indices.cast(pa.int64()).fill_null(len(distinct)).to_numpy()
    of_row: IntArray = units[codes]
    return of_row


def _read_doubles(values: pa.Array) -> FloatArray | None:
    """Numbers as doubles, NaN where there is none; None where something is no number."""
    if pa.types.is_boolean(values.type):
        return None
    try:
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            values = values.cast(pa.string())
        found: FloatArray = values.cast(pa.float64()).fill_null(np.nan).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return found


def _read(value: Any, decimals: int) -> int:
    """Units of one number of at least 0; -1 where it is none."""
    if value is None or isinstance(value, bool):
        return -1
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else str(value)
        number = Decimal(text.strip())
        if not (number.is_finite() and 0 <= number < LARGEST):
            return -1
        units = int(number.scaleb(decimals).to_integral_value())
    except (ArithmeticError, ValueError):
        return -1
    return units if units < LARGEST else -1
