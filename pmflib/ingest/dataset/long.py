"""Long logs, first pass: encode rows of (sample, variable, value, time) and write them to hash buckets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import ConfigError
from pmflib.ingest.chunks import FileChunk, RawRows
from pmflib.ingest.dataset.accounts import StepSummary, TimeFormat, TimeSpan
from pmflib.ingest.dataset.design_columns import (
    find_decimals,
    list_design_columns,
    read_units,
    read_weight_column,
)
from pmflib.ingest.dataset.erased_samples import ErasedSamples, remove_erased
from pmflib.ingest.dataset.identifiers import count_forms
from pmflib.ingest.dataset.quarantine import QuarantineWriter
from pmflib.ingest.dataset.row_screening import RowDecisions, Screen
from pmflib.ingest.dataset.spills import UNITS, WEIGHT, SpillWriter
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.schema import MISSING, Schema
from pmflib.schema.variable import UNDECODABLE, UNKNOWN, as_text
from pmflib.store.dataset import LEVEL_COUNTS

LEFT_OUT = -4
"""Index of variables that the schema leaves out."""
MAX_REMEMBERED = 1 << 18
"""Size of the cache of codes by variable and raw value."""


def spill_long(
    source: Source,
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    *,
    n_buckets: int,
    folder: Path,
    on_rows: Callable[[int], None] | None = None,
    erased: ErasedSamples | None = None,
    erased_workers: ErasedSamples | None = None,
    chunk: FileChunk | None = None,
) -> StepSummary:
    """Encode a file of a long log, and write its rows to buckets by the hash of their sample.

    Rows with a missing value are encoded, too: their sample exists, with nothing observed.

    Parameters
    ----------
    source
        The file.
    schema
        Variables and levels.
    source_config, policy
        Columns of the file, and policy for rows that do not fit.
    n_buckets
        Number of buckets, the same for all files of a dataset: see `choose_buckets`.
    folder
        Output folder, created if necessary, for the spill, ``quarantine.parquet`` and ``LEVEL_COUNTS``.
    on_rows
        Progress callback, given the number of rows of each finished batch.
    erased
        Samples whose rows are skipped.
    erased_workers
        Variables whose rows are skipped: workers of a label log.
    chunk
        Part of the file to read; None reads all. The format of times is that of the whole file.

    Returns
    -------
    Account and time span of the rows, for `combine_accounts`.

    Raises
    ------
    SourceError, SchemaError
        If the file cannot be read, or a row does not fit and the policy is to stop.
    ConfigError
        If the layout of the source is not long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoder = _LongEncoder(schema, source_config, policy, erased, erased_workers)
    fields = [("sample", pa.binary()), ("level", pa.int32()), ("row", pa.int64())]
    if encoder.time is not None:
        fields.append(("time", pa.float64()))
    fields += [] if encoder.decimals is None else [(WEIGHT, pa.int64())]
    fields += [] if source_config.psu is None else [(name, pa.int64()) for name in UNITS]
    spill = SpillWriter(folder, pa.schema(fields), n_buckets)
    with QuarantineWriter(folder / "quarantine.parquet") as quarantine, spill:
        screen = Screen(source, source_config, policy, quarantine.add)
        spill.metadata |= {"layout": "long", "schema": schema.digest, "identifier": "0"}
        if chunk is not None and not chunk.is_whole:
            encoder.find_time_format(source, source_config)
        for raw in read_rows(source, source_config, encoder.columns, on_rows=on_rows, chunk=chunk):
            encoder.encode(raw, screen, spill)
    screen.count_cells(encoder.count_cells())
    np.save(folder / LEVEL_COUNTS, encoder.level_counts)
    times = TimeSpan(encoder.oldest, encoder.newest, encoder.time_format)
    header = read_columns(source, source_config)
    ignored = [name for name in header if name not in encoder.columns]
    return StepSummary(screen.account, source.name, ignored, times, forms=encoder.forms)


class _LongEncoder:
    """Encodes the batches of one file."""

    def __init__(
        self,
        schema: Schema,
        config: SourceOptions,
        policy: SchemaOptions,
        erased: ErasedSamples | None,
        erased_workers: ErasedSamples | None,
    ) -> None:
        if config.layout != "long" or not (config.sample and config.variable and config.value):
            raise ConfigError(
                f"source.layout is {config.layout!r}; spill_long needs 'long' with sample, variable and value"
            )
        self.time = config.time
        names = (config.sample, config.variable, config.value, *([self.time] if self.time else []))
        self.columns = list(dict.fromkeys([*names, *list_design_columns(config)]))
        self.decimals, self._config = find_decimals(schema, config), config
        self._positions = [self.columns.index(name) for name in names]
        self._erased, self._delimiter = erased, config.separator
        self._erased_workers = erased_workers
        self._schema = schema
        self._unknown_as_missing = policy.on_unknown_level == "missing"
        self._values = ValueEncoder(schema)
        self._times = TimeReader()
        self._made_missing = np.zeros(schema.n_variables, np.int64)
        self.oldest: float | None = None
        self.newest: float | None = None
        self.level_counts = np.zeros(schema.n_levels, np.int64)
        self.forms: Counter[str] = Counter()

    def find_time_format(self, source: Source, config: SourceOptions) -> None:
        """Find the format of times from the beginning of the file, as a reader of the whole file does."""
        if self.time is None:
            return
        for raw in read_rows(source, config, [self.time]):
            self._times.read(raw.batch.column(0))
            if self._times.format is not None:
                return

    def encode(self, raw: RawRows, screen: Screen, spill: SpillWriter) -> None:
        sample, variable, value, *time = self._positions
        indices = encode_variables(self._schema, raw.batch.column(variable))
        if (left_out := indices == LEFT_OUT).any():
            screen.leave_out(int(np.count_nonzero(left_out)))
            batch = raw.batch.filter(pa.array(~left_out))
            raw = replace(raw, batch=batch, rows=raw.rows[~left_out])
            indices = indices[~left_out]
        raw, _, n_workers = remove_erased(raw, variable, self._erased_workers, self._delimiter)
        raw, identifiers, n_samples = remove_erased(raw, sample, self._erased, self._delimiter)
        if n_erased := n_workers + n_samples:
            screen.count_erased(n_erased)
            indices = encode_variables(self._schema, raw.batch.column(variable))
        decisions = RowDecisions(raw.batch.num_rows)
        decisions.mark(identifiers.undecodable, "undecodable", sample)
        decisions.mark(identifiers.absent, "no_sample", sample)
        decisions.mark(indices == UNDECODABLE, "undecodable", variable)
        decisions.mark(indices == UNKNOWN, "unknown_variable", variable)
        known = np.maximum(indices, 0)
        codes = self._values.encode(known, raw.batch.column(value))
        decisions.mark((codes == UNDECODABLE) & (indices >= 0), "undecodable", value)
        unknown = (codes == UNKNOWN) & (indices >= 0)
        if not self._unknown_as_missing:
            decisions.mark(unknown, "unknown_level", value)
        columns: dict[str, Any] = {}
        if time:
            columns["time"] = self._times.read(raw.batch.column(time[0]))
            decisions.mark(np.isnan(columns["time"]), "bad_time", time[0])
            spill.metadata["time"] = str(self._times.format)
        weights = read_weight_column(raw, self.decimals, decisions)
        units = read_units(raw, self.columns, self._config, decisions)
        columns |= {} if weights is None else {WEIGHT: weights.astype(np.int64)}
        columns |= (
            {} if units is None else dict(zip(UNITS, np.ascontiguousarray(units.T), strict=True))
        )
        variables = self._schema.variables
        kept = screen.sift(raw, decisions, lambda row, column: variables[indices[row]])
        if self._unknown_as_missing:
            made_missing = known[unknown & decisions.fits]
            self._made_missing += np.bincount(made_missing, minlength=self._schema.n_variables)
        levels = np.where(codes < 0, MISSING, self._schema.offsets[known] + codes)
        # rows without an answer are counted in the first bin, which is dropped
        counts = np.bincount(levels[kept] + 1, minlength=self.level_counts.size + 1)
        self.level_counts += counts[1:]
        if time and kept.size:
            mine = columns["time"][kept]
            self.oldest = float(min(mine.min(), math.inf if self.oldest is None else self.oldest))
            self.newest = float(max(mine.max(), -math.inf if self.newest is None else self.newest))
        columns = {"level": levels.astype(np.int32), "row": raw.rows, **columns}
        arrays = [identifiers.texts, *map(pa.array, columns.values())]
        rows = pa.RecordBatch.from_arrays(arrays, names=["sample", *columns])
        if kept.size < rows.num_rows:
            rows = rows.take(pa.array(kept))
        if kept.size:
            self.forms.update(count_forms(rows.column("sample")))
            spill.append(identifiers.hashes[kept], rows)

    @property
    def time_format(self) -> TimeFormat | None:
        """Format of times, number or instant; None if there are none."""
        return self._times.format

    def count_cells(self) -> dict[str, int]:
        """Number of unknown levels that count as missing, by variable."""
        counts = zip(self._schema.names, self._made_missing.tolist(), strict=True)
        return {name: count for name, count in counts if count}


def encode_variables(schema: Schema, column: pa.Array) -> IntArray:
    """Indices of variables by name, int64 of shape (n_rows,); negative codes UNKNOWN, UNDECODABLE or LEFT_OUT."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = dict.fromkeys(schema.left_out, LEFT_OUT)
    indices |= {name: index for index, name in enumerate(schema.names)}
    table = []
    for value in coded.dictionary.to_pylist():
        if value is None:
            table.append(UNKNOWN)
            continue
        try:
            name = value.decode("utf-8") if isinstance(value, bytes) else as_text(value)
            table.append(indices.get(name, indices.get(name.strip(), UNKNOWN)))
        except UnicodeDecodeError:
            table.append(UNDECODABLE)
    lookup = np.array([*table, UNKNOWN], np.int64)
    return lookup[_indices(coded)]


class ValueEncoder:
    """Encodes values whose variable differs from row to row.

    Codes are cached by variable and raw value; variables with equal levels share them.

    Parameters
    ----------
    schema
        Variables and levels.
    """

    def __init__(self, schema: Schema) -> None:
        encodings: dict[Any, int] = {}
        encoding_of = []
        self._variables = []
        for variable in schema.variables:
            key = (
                variable.levels,
                variable.edges,
                variable.missing,
                variable.other,
                variable.folded,
            )
            if key not in encodings:
                encodings[key] = len(encodings)
                self._variables.append(variable)
            encoding_of.append(encodings[key])
        self._encoding_of = np.array(encoding_of, np.int64)
        self._known: dict[tuple[int, object], int] = {}

    def encode(self, variables: IntArray, column: pa.Array) -> npt.NDArray[np.int16]:
        """Codes of a batch.

        Parameters
        ----------
        variables
            Index of each row's variable, int64 of shape (n_rows,).
        column
            Arrow array of length n_rows.

        Returns
        -------
        int16 of shape (n_rows,): codes, MISSING, UNKNOWN or UNDECODABLE.
        """
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        values = [*coded.dictionary.to_pylist(), None]
        pairs = self._encoding_of[variables] * len(values) + _indices(coded)
        size = len(self._variables) * len(values)
        if size <= 4 * len(pairs) + 1024:
            seen = np.zeros(size, np.bool_)
            seen[pairs] = True
            table = np.empty(size, np.int16)
            present = np.flatnonzero(seen)
            table[present] = self._look_up(present, values)
            codes: npt.NDArray[np.int16] = table[pairs]
            return codes
        present, inverse = np.unique(pairs, return_inverse=True)
        return self._look_up(present, values)[inverse]

    def _look_up(self, pairs: IntArray, values: list[object]) -> npt.NDArray[np.int16]:
        if len(self._known) > MAX_REMEMBERED:
            self._known.clear()
        known, n_values = self._known, len(values)
        out = np.empty(len(pairs), np.int16)
        for position, pair in enumerate(pairs.tolist()):
            encoding, value_index = divmod(pair, n_values)
            # True, 1 and 1.0 are equal as keys, but differ as texts
            key = (encoding, (type(values[value_index]), values[value_index]))
            code = known.get(key)
            if code is None:
                code = known[key] = self._variables[encoding].encode_value(values[value_index])
            out[position] = code
        return out


def _indices(coded: pa.DictionaryArray) -> IntArray:
    """Dictionary indices, int64; nulls are one past the end."""
    indices = coded.indices.cast(pa.int64()).fill_null(len(coded.dictionary))
    out: IntArray = indices.to_numpy(zero_copy_only=False)
    return out


class TimeReader:
    """Reads the time column of a file, whose times are either all numbers or all instants.

    The first batch with a readable time decides, by majority, numbers in a tie. Times of the other format are invalid,
    as the two cannot be compared. Instants are microseconds since 1970; ISO 8601 texts without a time zone are in UTC.
    Both are float64, exact up to 2**53, which for instants is the year 2255.
    """

    def __init__(self) -> None:
        self.format: TimeFormat | None = None

    def read(self, column: pa.Array) -> FloatArray:
        """Read the times of a batch, float64 of shape (n_rows,); NaN if missing or invalid."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        readers = {"number": _read_numbers, "instant": _read_instants}
        if self.format is not None:
            return readers[self.format](column)
        numbers = _read_numbers(column)
        readable = int(np.count_nonzero(~np.isnan(numbers)))
        if readable == len(numbers):
            self.format = "number" if readable else None
            return numbers
        instants = _read_instants(column)
        if readable >= (others := int(np.count_nonzero(~np.isnan(instants)))):
            self.format = "number" if readable else None
            return numbers
        self.format = "instant" if others else None
        return instants


def _read_numbers(column: pa.Array) -> FloatArray:
    dtype = column.type
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return _finite(column.cast(pa.float64(), safe=False))
    if not _is_text(dtype):
        return np.full(len(column), math.nan)
    try:
        return _finite(column.cast(pa.string()).cast(pa.float64()))
    except pa.ArrowInvalid:
        texts = column.cast(pa.binary()).to_pylist()
        numbers = np.array([_number(text) for text in texts], np.float64)
        return np.where(np.isfinite(numbers), numbers, math.nan)


def _read_instants(column: pa.Array) -> FloatArray:
    dtype = column.type
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        zone = dtype.tz if pa.types.is_timestamp(dtype) else None
        return _microseconds(column.cast(pa.timestamp("us", zone), safe=False))
    if not _is_text(dtype):
        return np.full(len(column), math.nan)
    try:
        return _microseconds(column.cast(pa.string()).cast(pa.timestamp("us")))
    except pa.ArrowInvalid:
        return np.array([_instant(text) for text in column.cast(pa.binary()).to_pylist()])


def _microseconds(column: pa.Array) -> FloatArray:
    return _finite(column.cast(pa.int64()).cast(pa.float64(), safe=False))


def _finite(column: pa.Array) -> FloatArray:
    import pyarrow.compute as pc

    numbers = pc.fill_null(column, math.nan).to_numpy(zero_copy_only=False)
    out: FloatArray = np.where(np.isfinite(numbers), numbers, math.nan)
    return out


def _number(text: bytes | None) -> float:
    try:
        return math.nan if text is None else float(text.decode("utf-8"))
    except ValueError:
        return math.nan


def _instant(text: bytes | None) -> float:
    try:
        moment = datetime.fromisoformat((text or b"").decode("utf-8").strip())
    except ValueError:
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return float((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
    )
