"""Wide files: a row is a sample, a column a variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.arrays import IntArray
from pmflib.blocks import DenseBlock
from pmflib.config import SchemaConfig, SourceConfig
from pmflib.errors import ConfigError, SchemaError
from pmflib.hashing import assign_folds
from pmflib.ingest.erased_samples import ErasedSamples, pass_over
from pmflib.ingest.pieces import Piece
from pmflib.ingest.quarantine import QuarantineWriter
from pmflib.ingest.raw_rows import RawRows
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.row_screening import Screen, Verdicts
from pmflib.ingest.sources import Source
from pmflib.ingest.spills import SpillWriter
from pmflib.near_names import list_near
from pmflib.schema import MISSING, Schema
from pmflib.schema.variable import UNDECODABLE, UNKNOWN
from pmflib.store.dataset import LEVEL_COUNTS
from pmflib.store.sample_blocks import SampleWriter


def encode_wide(
    source: Source,
    schema: Schema,
    source_config: SourceConfig,
    policy: SchemaConfig,
    *,
    n_folds: int,
    seed: int,
    folder: Path,
    on_rows: Callable[[int], None] | None = None,
    piece: Piece | None = None,
) -> dict[str, Any]:
    """Encode one file whose rows are samples without identifiers.

    Columns that are no variable are ignored.

    Parameters
    ----------
    source
        The file.
    schema
        Variables and levels; each variable must be a column of the file.
    source_config, policy
        Layout of the file, and the policy for rows that do not fit.
    n_folds
        Folds that rows are dealt to, by a hash of row number and seed.
    seed
        Made from the file's name, so that rows of different files are dealt differently.
    folder
        Folder, made if need be; ``samples`` (dense), ``quarantine.parquet`` and ``LEVEL_COUNTS`` are written into it.
    on_rows
        Called with the number of rows of each batch when it is done: progress.
    piece
        Part of the file that is read; None reads all.

    Returns
    -------
    name of the file, rows_in, rows_encoded, rows_left_out and rows_erased (none here), rows_quarantined, reasons,
    cells_made_missing, ignored_columns, samples, observed, blocks.

    Raises
    ------
    SchemaError
        If a variable is no column of the file, or a value is no level and the policy is to stop.
    SourceError
        If the file cannot be read, or a row is malformed and the policy is to stop.
    ConfigError
        If the source is not laid out wide, or its samples have identifiers.
    """
    if source_config.sample is not None:
        raise ConfigError(
            f"source.sample is {source_config.sample!r}; samples with identifiers are spilled "
            "to buckets (spill_wide) and assembled (assemble_buckets)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    ignored = list_ignored(source, schema, source_config)
    encoder, level_counts = WideEncoder(schema, policy), np.zeros(schema.n_levels, np.int64)
    samples = SampleWriter(folder / "samples", schema, sparse=False)
    with QuarantineWriter(folder / "quarantine.parquet") as quarantine:
        screen = Screen(source, source_config, policy, quarantine)
        names = schema.names
        for raw in read_rows(
            source, source_config, names, on_rows=on_rows, piece=piece, coded=names
        ):
            kept, codes = encoder.encode(raw, Verdicts(raw.batch.num_rows), screen)
            level_counts += encoder.count_levels(codes)
            if kept.size:
                rows = raw.rows[kept]
                samples.append(DenseBlock(codes), assign_folds(rows, n_folds, seed), rows)
    np.save(folder / LEVEL_COUNTS, level_counts)
    facts = {"name": source.name, "ignored_columns": ignored}
    return screen.account.summarise(**facts, **samples.close())


def spill_wide(
    source: Source,
    schema: Schema,
    source_config: SourceConfig,
    policy: SchemaConfig,
    *,
    n_buckets: int,
    folder: Path,
    on_rows: Callable[[int], None] | None = None,
    erased: ErasedSamples | None = None,
    piece: Piece | None = None,
) -> dict[str, Any]:
    """Encode one file whose rows are samples with identifiers, and deal them to buckets by their hash.

    Parameters
    ----------
    source, schema, source_config, policy
        As in `encode_wide`.
    n_buckets
        The same for all files of a dataset: see `choose_buckets`.
    folder
        Folder, made if need be; the spill, ``quarantine.parquet`` and ``LEVEL_COUNTS`` are written into it.
    on_rows
        Called with the number of rows of each batch when it is done: progress.
    erased
        Samples whose rows are passed over.
    piece
        Part of the file that is read; None reads all.

    Returns
    -------
    name of the file, rows_in, rows_encoded, rows_left_out (none here), rows_erased, rows_quarantined, reasons,
    cells_made_missing, ignored_columns. The rows encoded here enter `assemble_buckets`: see `combine_accounts`.

    Raises
    ------
    SchemaError, SourceError
        As in `encode_wide`.
    ConfigError
        If the source is not laid out wide, or names no sample column.
    """
    if source_config.sample is None:
        raise ConfigError("source.sample is not set; rows without identifiers go to encode_wide")
    folder.mkdir(parents=True, exist_ok=True)
    ignored = list_ignored(source, schema, source_config)
    encoder, level_counts = WideEncoder(schema, policy), np.zeros(schema.n_levels, np.int64)
    columns = list(dict.fromkeys([*schema.names, source_config.sample]))
    place = columns.index(source_config.sample)
    width = schema.n_variables * schema.code_dtype.itemsize
    fields = [("sample", pa.binary()), ("codes", pa.binary(width)), ("row", pa.int64())]
    spill = SpillWriter(folder, pa.schema(fields), n_buckets)
    with QuarantineWriter(folder / "quarantine.parquet") as quarantine, spill:
        screen = Screen(source, source_config, policy, quarantine)
        spill.metadata |= {"layout": "wide", "schema": schema.digest, "identifier": str(place)}
        coded = [name for name in schema.names if name != source_config.sample]
        for raw in read_rows(
            source, source_config, columns, on_rows=on_rows, piece=piece, coded=coded
        ):
            raw, identifiers, n_erased = pass_over(raw, place, erased, source_config.separator)
            screen.pass_over(n_erased)
            verdicts = Verdicts(raw.batch.num_rows)
            verdicts.mark(identifiers.undecodable, "undecodable", place)
            verdicts.mark(identifiers.absent, "no_sample", place)
            kept, codes = encoder.encode(raw, verdicts, screen)
            level_counts += encoder.count_levels(codes)
            arrays = [
                identifiers.texts.take(pa.array(kept)),
                _pack(codes, width),
                pa.array(raw.rows[kept]),
            ]
            if kept.size:
                rows = pa.RecordBatch.from_arrays(arrays, names=["sample", "codes", "row"])
                spill.append(identifiers.hashes[kept], rows)
    np.save(folder / LEVEL_COUNTS, level_counts)
    return screen.account.summarise(name=source.name, ignored_columns=ignored)


def list_ignored(source: Source, schema: Schema, config: SourceConfig) -> list[str]:
    """Columns of a wide file that are neither variables nor identifiers.

    Raises
    ------
    ConfigError
        If the source is not laid out wide.
    SchemaError
        If a variable is no column of the file.
    """
    if config.layout != "wide":
        raise ConfigError(f"source.layout is {config.layout!r}; encoding rows needs 'wide'")
    header = read_columns(source, config)
    for name in schema.names:
        if name not in header:
            close = list_near(name, header)
            raise SchemaError(
                f"{source.name}: variable {name!r} is no column of the file, which has {header[:12]} "
                f"({len(header)} columns)"
                + (f"; did you mean {close}?" if close else ".")
                + " Rename the column or the variable, or take the variable out of the schema"
            )
    used = {*schema.names, config.sample}
    return [name for name in header if name not in used]


class WideEncoder:
    """Encodes batches of rows whose first columns are the schema's variables; several threads may share it.

    Parameters
    ----------
    schema
        Variables and levels.
    policy
        What happens to what does not fit.
    """

    def __init__(self, schema: Schema, policy: SchemaConfig) -> None:
        self._schema = schema
        self._unknown_as_missing = policy.on_unknown_level == "missing"

    def encode(self, raw: RawRows, verdicts: Verdicts, screen: Screen) -> tuple[IntArray, IntArray]:
        """Places of the rows that fit, int64, and their codes of shape (n_kept, n_variables)."""
        variables = self._schema.variables
        codes = np.empty((raw.batch.num_rows, len(variables)), self._schema.code_dtype)
        unknown: list[tuple[str, npt.NDArray[np.intp]]] = []
        for place, variable in enumerate(variables):
            column = variable.encode_column(raw.batch.column(place))
            if column.size and column.min() < MISSING:
                verdicts.mark(column == UNDECODABLE, "undecodable", place)
                if self._unknown_as_missing:
                    unknown.append((variable.name, np.flatnonzero(column == UNKNOWN)))
                else:
                    verdicts.mark(column == UNKNOWN, "unknown_level", place)
                column = np.maximum(column, MISSING)
            codes[:, place] = column
        kept = screen.sift(raw, verdicts, lambda row, column: variables[column])
        for name, rows in unknown:
            screen.account.cells_made_missing[name] += int(np.count_nonzero(verdicts.fits[rows]))
        return kept, codes if kept.size == len(codes) else codes[kept]

    def count_levels(self, codes: IntArray) -> IntArray:
        """Number of rows that hold each level, int64 of shape (n_levels,)."""
        counts = np.zeros(self._schema.n_levels, np.int64)
        for place, size in enumerate(self._schema.cardinalities.tolist()):
            # missing cells are counted first, and dropped
            held = np.bincount(codes[:, place] + 1, minlength=size + 1)[1:]
            counts[self._schema.rows_of(place)] = held
        return counts


def _pack(codes: IntArray, width: int) -> pa.FixedSizeBinaryArray:
    """Rows of codes as values of a fixed number of bytes, little-endian."""
    content = np.ascontiguousarray(codes, codes.dtype.newbyteorder("<"))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(codes), [None, pa.py_buffer(content)]
    )
