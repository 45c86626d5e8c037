"""Wide files: encode rows, each of which is a sample with a column per variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import ConfigError, SchemaError
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.base.texts import list_near
from pmflib.ingest.chunks import FileChunk, RawRows
from pmflib.ingest.dataset.accounts import StepSummary
from pmflib.ingest.dataset.design_columns import (
    find_decimals,
    list_design_columns,
    read_replicate_columns,
    read_units,
    read_weight_column,
)
from pmflib.ingest.dataset.erased_samples import ErasedSamples, remove_erased
from pmflib.ingest.dataset.identifiers import Identifiers, as_binary, count_forms
from pmflib.ingest.dataset.quarantine import QuarantineWriter
from pmflib.ingest.dataset.row_screening import RowDecisions, Screen
from pmflib.ingest.dataset.sample_folds import find_folds, hash_samples
from pmflib.ingest.dataset.spills import REPLICATES, UNITS, WEIGHT, SpillWriter
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.schema import MISSING, Schema
from pmflib.schema.variable import UNDECODABLE, UNKNOWN
from pmflib.store.dataset import LEVEL_COUNTS
from pmflib.store.sample_writer import SampleWriter


def encode_wide(
    source: Source,
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    *,
    n_folds: int,
    seed: int,
    folder: Path,
    on_rows: Callable[[int], None] | None = None,
    chunk: FileChunk | None = None,
) -> StepSummary:
    """Encode a file whose rows are samples without identifiers.

    Other columns than variables are ignored.

    Parameters
    ----------
    source
        The file.
    schema
        Variables and levels; each variable must be a column of the file.
    source_config, policy
        Layout of the file, and policy for rows that do not fit.
    n_folds
        Number of folds, to which rows are assigned by a hash of row number and seed.
    seed
        Derived from the file's name, so that rows of different files are assigned independently.
    folder
        Output folder, created if necessary, for ``samples`` (dense), ``quarantine.parquet`` and ``LEVEL_COUNTS``.
    on_rows
        Progress callback, given the number of rows of each finished batch.
    chunk
        Part of the file to read; None reads all.

    Returns
    -------
    Account of the rows, and the numbers of samples written.

    Raises
    ------
    SchemaError
        If the file lacks a variable, or a value is an unknown level and the policy is to stop.
    SourceError
        If the file cannot be read, or a row is malformed and the policy is to stop.
    ConfigError
        If the layout of the source is not wide, or its samples have identifiers.
    """
    if source_config.sample is not None:
        raise ConfigError(
            f"source.sample is {source_config.sample!r}; samples with identifiers are spilled "
            "to buckets (spill_wide) and assembled (assemble_samples)"
        )
    ignored = list_ignored(source, schema, source_config)
    folder.mkdir(parents=True, exist_ok=True)
    decimals = find_decimals(schema, source_config)
    samples = SampleWriter(folder / "samples", schema, sparse=False, weight_decimals=decimals)
    encoder, level_counts = WideEncoder(schema, policy), np.zeros(schema.n_levels, np.int64)
    with QuarantineWriter(folder / "quarantine.parquet") as quarantine:
        screen = Screen(source, source_config, policy, quarantine.add)
        for rows in encode_rows(source, schema, source_config, encoder, screen, on_rows, chunk):
            level_counts += encoder.count_levels(rows.codes)
            folds = find_folds(rows.hash_samples(seed), n_folds)
            block = DenseBlock(rows.codes, rows.weights)
            samples.append(block, folds, rows.numbers, units=rows.units, replicates=rows.replicates)
    np.save(folder / LEVEL_COUNTS, level_counts)
    return StepSummary(screen.account, source.name, ignored, written=samples.close())


def spill_wide(
    source: Source,
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    *,
    n_buckets: int,
    folder: Path,
    on_rows: Callable[[int], None] | None = None,
    erased: ErasedSamples | None = None,
    chunk: FileChunk | None = None,
) -> StepSummary:
    """Encode a file whose rows are samples with identifiers, and write them to buckets by the hash of these.

    Parameters
    ----------
    source, schema, source_config, policy
        As in `encode_wide`.
    n_buckets
        Number of buckets, the same for all files of a dataset: see `choose_buckets`.
    folder
        Output folder, created if necessary, for the spill, ``quarantine.parquet`` and ``LEVEL_COUNTS``.
    on_rows
        Progress callback, given the number of rows of each finished batch.
    erased
        Samples whose rows are skipped.
    chunk
        Part of the file to read; None reads all.

    Returns
    -------
    Account of the rows, for `combine_accounts`.

    Raises
    ------
    SchemaError, SourceError
        As in `encode_wide`.
    ConfigError
        If the layout of the source is not wide, or it has no sample column.
    """
    if source_config.sample is None:
        raise ConfigError("source.sample is not set; rows without identifiers go to encode_wide")
    ignored = list_ignored(source, schema, source_config)
    folder.mkdir(parents=True, exist_ok=True)
    width = schema.n_variables * schema.code_dtype.itemsize
    fields = [("sample", pa.binary()), ("codes", pa.binary(width)), ("row", pa.int64())]
    fields += [] if source_config.weight is None else [(WEIGHT, pa.int64())]
    fields += [] if source_config.psu is None else [(name, pa.int64()) for name in UNITS]
    wide = 8 * len(source_config.replicate_columns)
    fields += [(REPLICATES, pa.binary(wide))] if wide else []
    spill, forms = SpillWriter(folder, pa.schema(fields), n_buckets), Counter[str]()
    encoder, level_counts = WideEncoder(schema, policy), np.zeros(schema.n_levels, np.int64)
    index = _list_columns(schema, source_config).index(source_config.sample)
    with QuarantineWriter(folder / "quarantine.parquet") as quarantine, spill:
        screen = Screen(source, source_config, policy, quarantine.add)
        spill.metadata |= {"layout": "wide", "schema": schema.digest, "identifier": str(index)}
        for rows in encode_rows(
            source, schema, source_config, encoder, screen, on_rows, chunk, erased
        ):
            assert rows.identifiers is not None
            level_counts += encoder.count_levels(rows.codes)
            forms.update(count_forms(rows.identifiers.texts))
            arrays = [rows.identifiers.texts, _pack(rows.codes, width), pa.array(rows.numbers)]
            if rows.weights is not None:
                arrays.append(pa.array(rows.weights.astype(np.int64)))
            if rows.units is not None:
                arrays += [pa.array(np.ascontiguousarray(part)) for part in rows.units.T]
            if rows.replicates is not None:
                arrays.append(_pack(rows.replicates, wide))
            batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])
            spill.append(rows.identifiers.hashes, batch)
    np.save(folder / LEVEL_COUNTS, level_counts)
    return StepSummary(screen.account, source.name, ignored, forms=forms)


@dataclass(frozen=True)
class EncodedRows:
    """Valid rows of a batch, at least one.

    Parameters
    ----------
    raw, kept
        The batch, and the positions of these rows in it, int64.
    codes
        Codes of shape (n_kept, n_variables).
    numbers
        Row numbers in the file, int64.
    identifiers, weights, units, replicates
        Identifiers and sampling design; None if the source names none.
    """

    raw: RawRows
    kept: IntArray
    codes: IntArray
    numbers: IntArray
    identifiers: Identifiers | None
    weights: FloatArray | None
    units: IntArray | None
    replicates: IntArray | None

    def hash_samples(self, seed: int) -> HashArray:
        """Hash the samples for their folds, with the seed of the file: see `pmflib.ingest.dataset.sample_folds`."""
        ids = self.identifiers
        hashes = mix_hashes(self.numbers, seed) if ids is None else ids.hashes
        return hash_samples(hashes, self.units)


def _list_columns(schema: Schema, config: SourceOptions) -> list[str]:
    """Columns to read: variables, the identifier, and the sampling design."""
    named = [] if config.sample is None else [config.sample]
    return list(dict.fromkeys([*schema.columns, *named, *list_design_columns(config)]))


def encode_rows(
    source: Source,
    schema: Schema,
    config: SourceOptions,
    encoder: WideEncoder,
    screen: Screen,
    on_rows: Callable[[int], None] | None = None,
    chunk: FileChunk | None = None,
    erased: ErasedSamples | None = None,
) -> Iterator[EncodedRows]:
    """Encode a file batch by batch; the screen receives rows that do not fit."""
    columns, decimals = _list_columns(schema, config), find_decimals(schema, config)
    coded = [name for name in schema.coded_columns if name != config.sample]
    for raw in read_rows(source, config, columns, on_rows=on_rows, chunk=chunk, coded=coded):
        identifiers = None
        if config.sample is not None:
            index = columns.index(config.sample)
            raw, identifiers, n_erased = remove_erased(raw, index, erased, config.separator)
            screen.count_erased(n_erased)
        decisions = RowDecisions(raw.batch.num_rows)
        if identifiers is not None:
            decisions.mark(identifiers.undecodable, "undecodable", index)
            decisions.mark(identifiers.absent, "no_sample", index)
        weights = read_weight_column(raw, decimals, decisions)
        replicates = read_replicate_columns(raw, config, decimals, decisions)
        units = read_units(raw, columns, config, decisions)
        kept, codes = encoder.encode(raw, decisions, screen)
        if kept.size:
            yield EncodedRows(
                raw,
                kept,
                codes,
                raw.rows[kept],
                None if identifiers is None else identifiers.take(kept),
                None if weights is None else weights[kept],
                None if units is None else units[kept],
                None if replicates is None else replicates[kept],
            )


def list_ignored(
    source: Source, schema: Schema, config: SourceOptions, optional: Sequence[str] = ()
) -> list[str]:
    """List the columns of a wide file that are not used.

    Parameters
    ----------
    source, schema, config
        As in `encode_wide`.
    optional
        Variables that the file may lack.

    Raises
    ------
    ConfigError
        If the layout of the source is not wide.
    SchemaError
        If the file lacks a variable.
    """
    if config.layout != "wide":
        raise ConfigError(f"source.layout is {config.layout!r}; encoding rows needs 'wide'")
    header = read_columns(source, config)
    for variable in schema:
        name = variable.column
        if name not in header and variable.name not in optional:
            close = list_near(name, header)
            raise SchemaError(
                f"{source.name}: variable {name!r} is no column of the file, which has {header[:12]} "
                f"({len(header)} columns)"
                + (f"; did you mean {close}?" if close else ".")
                + " Rename the column or the variable, or take the variable out of the schema"
            )
    used = {*schema.columns, config.sample, *list_design_columns(config)}
    return [name for name in header if name not in used]


class WideEncoder:
    """Encodes batches of rows whose first columns are those of the schema; several threads may share it.

    Parameters
    ----------
    schema
        Variables and levels.
    policy
        Policy for rows that do not fit.
    lenient
        Variables whose unknown levels count as missing, whatever the policy.
    """

    def __init__(self, schema: Schema, policy: SchemaOptions, lenient: Sequence[str] = ()) -> None:
        self._schema = schema
        # parts of a column share it
        self._places = [schema.columns.index(variable.column) for variable in schema]
        self._lenient = schema.names if policy.on_unknown_level == "missing" else lenient

    def encode(
        self,
        raw: RawRows,
        decisions: RowDecisions,
        screen: Screen,
        on_unknown: Callable[[str, pa.Array], None] | None = None,
    ) -> tuple[IntArray, IntArray]:
        """Encode a batch.

        Parameters
        ----------
        raw, decisions
            The rows, and earlier decisions about them.
        screen
            Receives the rows that do not fit, and the numbers of cells made missing.
        on_unknown
            Called with the name of each variable with such cells, and their raw values.

        Returns
        -------
        Indices of the rows that fit, int64, and their codes of shape (n_kept, n_variables).
        """
        variables = self._schema.variables
        codes = np.empty((raw.batch.num_rows, len(variables)), self._schema.code_dtype)
        unknown: list[tuple[int, npt.NDArray[np.intp]]] = []
        for index, (variable, place) in enumerate(zip(variables, self._places, strict=True)):
            column = variable.encode_column(raw.batch.column(place))
            if column.size and column.min() < MISSING:
                decisions.mark(column == UNDECODABLE, "undecodable", place)
                if variable.name in self._lenient:
                    unknown.append((index, np.flatnonzero(column == UNKNOWN)))
                else:
                    decisions.mark(column == UNKNOWN, "unknown_level", place)
                column = np.maximum(column, MISSING)
            codes[:, index] = column
        kept = screen.sift(
            raw, decisions, lambda row, column: variables[self._places.index(column)]
        )
        made_missing = {index: rows[decisions.fits[rows]] for index, rows in unknown}
        names = self._schema.names
        screen.count_cells({names[index]: rows.size for index, rows in made_missing.items()})
        if on_unknown is not None:
            for index, rows in made_missing.items():
                if rows.size:
                    on_unknown(
                        names[index], raw.batch.column(self._places[index]).take(pa.array(rows))
                    )
        return kept, codes if kept.size == len(codes) else codes[kept]

    def count_levels(self, codes: IntArray) -> IntArray:
        """Number of rows with each level, int64 of shape (n_levels,)."""
        counts = np.zeros(self._schema.n_levels, np.int64)
        for index, size in enumerate(self._schema.cardinalities.tolist()):
            # missing cells are counted in the first bin, which is dropped
            counted = np.bincount(codes[:, index] + 1, minlength=size + 1)[1:]
            counts[self._schema.rows_of(index)] = counted
        return counts


def _pack(codes: IntArray, width: int) -> pa.FixedSizeBinaryArray:
    """Pack rows of integers as fixed-size binary values, little-endian."""
    content = np.ascontiguousarray(codes, codes.dtype.newbyteorder("<"))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(codes), [None, pa.py_buffer(content)]
    )


def read_texts(column: pa.Array) -> pa.StringArray:
    """Convert a column of a raw file to texts.

    Parameters
    ----------
    column
        Arrow array of any type that is read from files.

    Returns
    -------
    Texts; null if missing or undecodable.
    """
    import pyarrow.compute as pc

    texts = as_binary(column)
    texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decode(text) for text in texts.to_pylist()], pa.string())


def _decode(text: bytes | None) -> str | None:
    try:
        return None if text is None else text.decode("utf-8")
    except UnicodeDecodeError:
        return None
