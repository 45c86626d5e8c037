"""Rows of some folds drawn from wide files, with the numbers behind the codes, before there is a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.hashing import mix_hashes
from pmflib.base.weights import read_weights
from pmflib.ingest.dataset.design_columns import name_replicates
from pmflib.ingest.dataset.row_screening import Screen
from pmflib.ingest.dataset.sample_folds import find_folds, seed_file
from pmflib.ingest.dataset.wide import EncodedRows, WideEncoder, encode_rows
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.sources import Source
from pmflib.schema import Schema
from pmflib.schema.tables import read_numbers


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Rows drawn from files.

    Parameters
    ----------
    block
        Codes, scaled weights, and folds in which samples of one sampling unit or identifier stay together.
    numbers
        Numbers of some variables by position, float64 of shape (n_rows,); NaN for other values.
    """

    block: DenseBlock
    numbers: Mapping[int, FloatArray]


def draw_rows(
    sources: Sequence[Source],
    schema: Schema,
    config: SourceOptions,
    *,
    n_folds: int,
    folds: Collection[int],
    target: int,
    numeric: Sequence[int],
    most: int,
) -> DrawnRows:
    """Draw rows of some folds, as a dataset of these files would assign them, in memory for the drawn rows.

    Parameters
    ----------
    sources, schema, config
        Wide files, their variables and their layout. Rows that would go to quarantine are skipped.
    n_folds, folds
        Number of folds of the dataset, and those to draw from.
    target
        Position of a variable that is observed in all drawn rows.
    numeric
        Positions of variables whose numbers are read.
    most
        Maximum number of rows, at least 1. Of more, those with the smallest hash of their file and row number are
        drawn, so that the draw does not depend on rows of other folds.

    Raises
    ------
    SourceError
        If a file cannot be read or lacks a column.
    """
    config, policy = name_replicates(sources, config), SchemaOptions()
    encoder = WideEncoder(schema, policy)
    empty = (np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0))
    shaped = (np.empty((0, schema.n_variables), schema.code_dtype), np.empty((0, len(numeric))))
    drawn: list[np.ndarray] = [*empty, *shaped]
    for source in sources:
        seed, screen = seed_file(source.name), Screen(source, config, policy)
        for rows in encode_rows(source, schema, config, encoder, screen):
            hashes = rows.hash_samples(seed)
            is_used = np.isin(find_folds(hashes, n_folds), list(folds))
            used = np.flatnonzero(is_used & (rows.codes[:, target] >= 0))
            order = mix_hashes(mix_hashes(rows.numbers, seed), 1)
            weights = np.ones(hashes.size) if rows.weights is None else rows.weights
            # the lowest bit is dropped, as folds are remainders of non-negative int64
            dealt = (hashes >> np.uint64(1)).astype(np.int64)
            read = [order[used], dealt[used], weights[used], rows.codes[used]]
            read.append(_read_columns(rows, used, [schema[place].column for place in numeric]))
            drawn = [np.concatenate(pair) for pair in zip(drawn, read, strict=True)]
            if len(drawn[0]) > 2 * most:
                drawn = _take_first(drawn, most)
    _, dealt, weights, codes, numbers = _take_first(drawn, most)
    block = DenseBlock(codes, dealt=dealt)
    if config.weight is not None and len(block):
        block = DenseBlock(codes, read_weights(weights, len(block)).scale(), dealt)
    return DrawnRows(block, dict(zip(numeric, numbers.T, strict=True)))


def _read_columns(rows: EncodedRows, used: IntArray, names: Sequence[str]) -> FloatArray:
    """Read the numbers of some columns in used rows, float64 of shape (n_used, n_columns)."""
    places = pa.array(rows.kept[used])
    columns = [read_numbers(rows.raw.batch.column(name).take(places)) for name in names]
    return np.stack(columns, axis=1)


def _take_first(arrays: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
    """Take the rows with the smallest numbers in the first array, in their order."""
    kept = np.sort(np.argsort(arrays[0], kind="stable")[:most])
    return [each[kept] for each in arrays]
