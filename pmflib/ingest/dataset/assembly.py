"""Second pass: assemble samples from the spills of all files, and quarantine superseded rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.blocks import SPARSE_BELOW, Block, DenseBlock, SparseBlock
from pmflib.base.errors import SchemaError, SourceError, StoreError
from pmflib.base.hashing import HashArray
from pmflib.ingest.dataset.accounts import Account, StepSummary
from pmflib.ingest.dataset.design_columns import find_decimals
from pmflib.ingest.dataset.identifiers import hash_identifiers
from pmflib.ingest.dataset.quarantine import (
    QUARANTINE,
    QUARANTINE_HASHES,
    ROW_GROUP,
    SUPERSEDED_SCHEMA,
    QuarantineWriter,
    raw_text,
)
from pmflib.ingest.dataset.sample_folds import find_folds, hash_samples
from pmflib.ingest.dataset.spills import REPLICATES, UNITS, WEIGHT, Spill, find_levels
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.schema import MISSING, Schema
from pmflib.store.sample_writer import SampleWriter


def assemble_samples(
    spills: Sequence[Path],
    names: Sequence[str],
    chosen: tuple[int, int] | HashArray,
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    *,
    n_folds: int,
    folder: Path,
    since: float = -math.inf,
) -> StepSummary:
    """Make samples from the spills of all files, in memory for the rows of these samples.

    Each spill is opened once. Samples are sorted by the bytes of their identifiers. Of several answers of a sample to a
    variable, or several wide rows of a sample, ``policy.on_duplicate`` keeps the last or the first, by time, then file,
    then row. The others go to quarantine, with a raw text that is written from their codes. Rows with a missing value
    neither supersede others nor are superseded. The weight, stratum and unit of a sample of a long log are those of one
    of its rows, chosen in the same way; rows that give others go to quarantine as conflicts before answers are
    compared.

    Parameters
    ----------
    spills, names
        Folders of the spills and names of their files, in the order of the files and of their rows.
    chosen
        Buckets whose samples are made, the first and the one after the last; or keys of the samples, uint64 and sorted:
        see `make_keys`.
    schema, source_config, policy
        The same as for the spills; a spill that names its levels may have been encoded with a part of the schema.
    n_folds
        Number of folds, of which the number of buckets of the spills is a multiple: samples of bucket b are in fold
        b % n_folds, or in the fold of their sampling unit.
    folder
        Output folder, created if necessary, for ``samples`` (sparse if less than ``SPARSE_BELOW`` is observed) and
        ``quarantine.parquet``.
    since
        Start of the window: rows with an earlier time are skipped.

    Returns
    -------
    Account of the rows, for `combine_accounts`, and the numbers of samples written.

    Raises
    ------
    SchemaError
        If there are duplicates or conflicts and the policy is to stop.
    SourceError
        If the times of one file are numbers and those of another are instants.
    StoreError
        If a spill is damaged or was made with another schema.
    """

    def read(spill: Spill) -> pa.Table:
        return (
            spill.read_buckets(*chosen) if isinstance(chosen, tuple) else spill.read_samples(chosen)
        )

    rows = read_spilled_rows(spills, names, schema, source_config.layout, since, read)
    identifiers, rank = _rank_samples(rows.samples)
    block: Block
    others = np.empty(0, np.int64)
    if source_config.layout == "long":
        drawn, others, fitting = _choose_draws(rows, rank, policy)
        kept, lost, winners, keys = _choose_answers(rows, rank, schema, policy, fitting)
        block = _fill_absent(_join_answers(rows, rank, kept, drawn, len(identifiers)), schema)
    else:
        kept, lost, winners, keys = _choose(np.arange(rank.size), [rank], policy)
        block = DenseBlock(rows.values[kept], None if rows.weights is None else rows.weights[kept])
        drawn = kept

    def describe(indices: IntArray) -> list[str]:
        write = describe_answers if rows.values.ndim == 1 else describe_rows
        return write(rows, indices, schema, source_config)

    if lost.size and policy.on_duplicate == "error":
        raise duplicate_error(rows, lost, keys)
    # "" marks duplicates, which have no column at fault
    faults = np.full(rank.size, "", object)
    faults[others] = _name_conflicts(rows, others, drawn[rank[others]], source_config)
    sizes = [np.bincount(part, minlength=len(identifiers)) for part in (rank, rank[lost])]
    if others.size:
        sizes.append(np.bincount(rank[others], minlength=len(identifiers)))
    n_repeated, lost = lost.size, np.concatenate([lost, others])
    winners = np.concatenate([winners, drawn[rank[others]]])
    order = np.lexsort((rows.numbers[lost], rows.files[lost]))
    lost, winners = lost[order], winners[order]
    folder.mkdir(parents=True, exist_ok=True)
    with QuarantineWriter(folder / QUARANTINE, SUPERSEDED_SCHEMA) as quarantine:
        for start in range(0, lost.size, ROW_GROUP):
            part = slice(start, start + ROW_GROUP)
            quarantine.add_all(
                (file, number, "conflict" if fault else "duplicate", fault or None, raw, *winner)
                for (file, number), fault, raw, winner in zip(
                    rows.name_rows(lost[part]),
                    faults[lost[part]].tolist(),
                    describe(lost[part]),
                    describe_winners(rows, lost[part], winners[part]),
                    strict=True,
                )
            )
    hashes = hash_identifiers(pa.array(identifiers, pa.binary()))
    np.save(folder / QUARANTINE_HASHES, hashes[rank[lost]])
    reasons = Counter(duplicate=n_repeated, conflict=others.size)
    account = Account(rank.size, rank.size - lost.size, reasons=reasons)
    # row numbers are meaningful only for a single file
    single = rows.values.ndim == 2 and len({*rows.names}) == 1
    origins = rows.numbers[kept] if single else np.full(block.n_rows, -1, np.int64)
    observed = (
        len(block.indices) if isinstance(block, SparseBlock) else int((block.codes >= 0).sum())
    )
    sparse = observed < SPARSE_BELOW * block.n_rows * schema.n_variables
    decimals = find_decimals(schema, source_config)
    samples = SampleWriter(folder / "samples", schema, sparse=sparse, weight_decimals=decimals)
    if block.n_rows:
        units = None if rows.units is None else rows.units[drawn]
        folds = find_folds(hash_samples(hashes, units), n_folds)
        replicates = None if rows.replicates is None else rows.replicates[kept]
        counts = np.column_stack(sizes)
        samples.append(block, folds, origins, identifiers, counts, units, replicates)
    return StepSummary(account, written=samples.close())


def _rank_samples(samples: pa.BinaryArray) -> tuple[npt.NDArray[np.object_], IntArray]:
    """Distinct identifiers sorted by bytes, and the index of each row's identifier."""
    import pyarrow.compute as pc

    coded = samples.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy().astype(np.int64)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    identifiers = np.empty(order.size, object)
    identifiers[:] = coded.dictionary.take(pa.array(order)).to_pylist()
    return identifiers, rank[coded.indices.to_numpy()]


def _choose_draws(
    rows: SpilledRows, rank: IntArray, policy: SchemaOptions
) -> tuple[IntArray, IntArray, BoolArray]:
    """Choose the weight, stratum and unit of each sample of a long log.

    Returns
    -------
    Chosen row of each sample, conflicting rows, and a mask of the rows that agree with their sample.

    Raises
    ------
    SchemaError
        If there are conflicts and the policy is to stop.
    """
    fitting: BoolArray = np.ones(rank.size, np.bool_)
    if rows.weights is None:
        return np.empty(0, np.int64), np.empty(0, np.int64), fitting
    times = np.zeros(rank.size) if rows.times is None else rows.times
    drawn = _choose(np.argsort(times, kind="stable"), [rank], policy)[0]
    fitting &= rows.weights == rows.weights[drawn[rank]]
    if rows.units is not None:
        fitting &= (rows.units == rows.units[drawn[rank]]).all(axis=1)
    others = np.flatnonzero(~fitting)
    if others.size and policy.on_duplicate == "error":
        raise conflict_error(rows, others, drawn[rank[others]])
    return drawn, others, fitting


def _name_conflicts(
    rows: SpilledRows, others: IntArray, drawn: IntArray, config: SourceOptions
) -> list[str]:
    """Name of the column in which each conflicting row differs from the chosen one."""
    if rows.weights is None:
        return []
    names = np.full(others.size, config.psu or "", object)
    if rows.units is not None:
        names[rows.units[others, 0] != rows.units[drawn, 0]] = config.stratum
    names[rows.weights[others] != rows.weights[drawn]] = config.weight
    return list(names)


def _choose_answers(
    rows: SpilledRows, rank: IntArray, schema: Schema, policy: SchemaOptions, fitting: BoolArray
) -> tuple[IntArray, IntArray, IntArray, list[IntArray]]:
    answered = np.flatnonzero((rows.values >= 0) & fitting)
    variable_of = np.repeat(np.arange(schema.n_variables), schema.cardinalities)
    variable = np.zeros(rank.size, np.int64)
    variable[answered] = variable_of[rows.values[answered]]
    if rows.times is not None:
        answered = answered[np.argsort(rows.times[answered], kind="stable")]
    return _choose(answered, [rank, variable], policy)


def _choose(
    indices: IntArray, keys: list[IntArray], policy: SchemaOptions
) -> tuple[IntArray, IntArray, IntArray, list[IntArray]]:
    """Choose the last or the first of the rows with equal keys.

    Returns
    -------
    Chosen rows, sorted by keys; other rows; for each of these, the row chosen instead; and the keys.
    """
    for key in reversed(keys):
        indices = indices[_stable_order(key[indices])]
    # whether a row has the same keys as the next one
    same: BoolArray = np.ones(max(indices.size - 1, 0), np.bool_)
    for key in keys:
        ordered = key[indices]
        same &= ordered[1:] == ordered[:-1]
    edge = np.zeros(1, np.bool_)
    lost = np.concatenate([edge, same] if policy.on_duplicate == "first" else [same, edge])
    lost = lost[: indices.size]
    kept = indices[~lost]
    # one row is kept per run of equal keys
    run_of = np.concatenate([edge, ~same]).cumsum()[: indices.size]
    return kept, indices[lost], kept[run_of[lost]], keys


def _stable_order(key: IntArray) -> IntArray:
    """Stable order of non-negative integers: radix sort, 16 bits at a time."""
    order: IntArray = np.argsort((key & 0xFFFF).astype(np.uint16), kind="stable")
    shift = 16
    while key.size and int(key.max()) >> shift:
        digit = ((key[order] >> shift) & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
        shift += 16
    return order


def _join_answers(
    rows: SpilledRows, rank: IntArray, kept: IntArray, drawn: IntArray, n_samples: int
) -> SparseBlock:
    indptr = np.zeros(n_samples + 1, np.int64)
    np.cumsum(np.bincount(rank[kept], minlength=n_samples), out=indptr[1:])
    weights = None if rows.weights is None else rows.weights[drawn]
    return SparseBlock(indptr, rows.values[kept].astype(np.int32), weights)


def _fill_absent(block: SparseBlock, schema: Schema) -> Block:
    """Give variables without a row of the sample the level that is said for them, if any."""
    levels = [MISSING if each.absent is None else each.levels.index(each.absent) for each in schema]
    if max(levels) == MISSING:
        return block
    codes = block.to_codes(schema.offsets)
    return DenseBlock(
        np.where(codes == MISSING, np.array(levels, codes.dtype), codes), block.weights
    )


@dataclass(frozen=True)
class SpilledRows:
    """Rows of some samples, spill after spill, in the order of each spill.

    ``samples`` are identifiers; ``values`` are level indices (long: shape (n_rows,), -1 if missing) or codes (wide:
    shape (n_rows, n_variables)); ``times`` are float64 or None; ``files`` and ``numbers`` are the spill of each row and
    its number in the file; ``time_format`` is the format of times. ``weights`` are whole numbers of units, float64;
    ``units`` are hashes of strata and sampling units, int64 of shape (n_rows, 2); ``replicates`` are replicate weights
    in units, int64 of shape (n_rows, n_replicates); each None if the samples have none.
    """

    samples: pa.BinaryArray
    values: IntArray
    times: FloatArray | None
    files: IntArray
    numbers: IntArray
    names: Sequence[str]
    time_format: str = ""
    weights: FloatArray | None = None
    units: IntArray | None = None
    replicates: IntArray | None = None

    def name_rows(self, indices: IntArray) -> list[tuple[str, int]]:
        """File and row number of each row."""
        files = [self.names[file] for file in self.files[indices].tolist()]
        return list(zip(files, self.numbers[indices].tolist(), strict=True))


def read_spilled_rows(
    spills: Sequence[Path],
    names: Sequence[str],
    schema: Schema,
    layout: str,
    since: float,
    read: Callable[[Spill], pa.Table],
) -> SpilledRows:
    """Read rows of each spill with ``read``; for the other parameters, see `assemble_samples`."""
    if len(spills) != len(names) or not spills:
        raise StoreError(
            f"{len(spills)} spills for {len(names)} names; pass one name per spill, at least one"
        )
    tables = []
    formats: dict[str, str] = {}
    for spill, name in zip(spills, names, strict=True):
        levels = find_levels(spill, schema)
        whole_schema = {} if levels is not None else {"schema": schema.digest}
        opened = Spill(spill, {"layout": layout, **whole_schema}, since)
        table = read(opened)
        if levels is not None:
            column = table.schema.get_field_index("level")
            stored = pa.array(levels[table["level"].to_numpy()], pa.int32())
            table = table.set_column(column, table.schema.field(column), stored)
        if (written := opened.metadata.get("time", "None")) != "None":
            formats.setdefault(written, name)
        tables.append(table)
    if len(formats) > 1:
        raise SourceError(
            f"times of {formats['number']} are numbers, those of {formats['instant']} are ISO 8601; "
            "they cannot be compared: write all in one format"
        )
    whole = pa.concat_tables(tables)
    if layout == "long":
        values = whole["level"].to_numpy()
    else:
        values = unpack_codes(whole["codes"], schema)
    return SpilledRows(
        whole["sample"].combine_chunks(),
        values,
        whole["time"].to_numpy() if "time" in whole.column_names else None,
        np.repeat(np.arange(len(tables)), [table.num_rows for table in tables]),
        whole["row"].to_numpy(),
        names,
        next(iter(formats), ""),
        whole[WEIGHT].to_numpy().astype(np.float64) if WEIGHT in whole.column_names else None,
        np.column_stack([whole[name].to_numpy() for name in UNITS])
        if UNITS[0] in whole.column_names
        else None,
        _unpack(whole[REPLICATES], np.dtype(np.int64))
        if REPLICATES in whole.column_names
        else None,
    )


def unpack_codes(column: pa.ChunkedArray, schema: Schema) -> IntArray:
    """Codes of wide rows of a spill, shape (n_rows, n_variables)."""
    return _unpack(column, schema.code_dtype)


def _unpack(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> IntArray:
    """Unpack integers that were packed row by row, little-endian, as a two-dimensional array."""
    n_columns, written = column.type.byte_width // dtype.itemsize, dtype.newbyteorder("<")
    parts = [np.empty((0, n_columns), written)]
    for chunk in column.chunks:
        # page buffers are padded to whole words
        stop = (chunk.offset + len(chunk)) * n_columns
        content = np.frombuffer(chunk.buffers()[1], written)[:stop] if len(chunk) else parts[0]
        parts.append(content.reshape(-1, n_columns)[chunk.offset :])
    return np.concatenate(parts).astype(dtype)


def describe_answers(
    rows: SpilledRows, indices: IntArray, schema: Schema, config: SourceOptions
) -> list[str]:
    """Text of rows of a long log, with their times and weights."""
    # each sample and each level is formatted once; the variable of a row without an answer is not stored
    labels = {-1: raw_text(["", "", ""], config.separator)}
    for level in np.unique(rows.values[indices][rows.values[indices] >= 0]).tolist():
        variable = int(np.searchsorted(schema.offsets, level, side="right")) - 1
        label = schema[variable].levels[level - int(schema.offsets[variable])]
        labels[level] = raw_text(["", schema[variable].name, label], config.separator)
    coded = rows.samples.take(pa.array(indices)).dictionary_encode()
    samples = [raw_text([sample], config.separator) for sample in coded.dictionary.to_pylist()]
    pairs = zip(coded.indices.to_pylist(), rows.values[indices].tolist(), strict=True)
    texts = [samples[sample] + labels[level] for sample, level in pairs]
    decimals, more = find_decimals(schema, config), list[list[object]]()
    if rows.times is not None:
        more.append(rows.times[indices].tolist())
    if rows.weights is not None and decimals is not None:
        more.append([_write_weight(each, decimals) for each in rows.weights[indices].tolist()])
    for column in more:
        texts = [
            text + raw_text(["", value], config.separator)
            for text, value in zip(texts, column, strict=True)
        ]
    return texts


def _write_weight(units: float, decimals: int) -> str:
    """Format a weight without trailing zeros."""
    text = f"{Decimal(int(units)).scaleb(-decimals):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def describe_rows(
    rows: SpilledRows, indices: IntArray, schema: Schema, config: SourceOptions
) -> list[str]:
    """Text of wide rows."""
    samples = rows.samples.take(pa.array(indices)).to_pylist()
    texts = []
    for sample, codes in zip(samples, rows.values[indices].tolist(), strict=True):
        labels = [
            variable.levels[code] if code >= 0 else ""
            for variable, code in zip(schema.variables, codes, strict=True)
        ]
        texts.append(raw_text([*labels, sample], config.separator))
    return texts


def describe_winners(
    rows: SpilledRows, lost: IntArray, winners: IntArray
) -> Iterator[tuple[str, int, str | None, bool]]:
    """File, number and time of the row that supersedes each row, and whether the two agree."""
    same = rows.values[lost] == rows.values[winners]
    same = same if same.ndim == 1 else same.all(axis=1)
    if rows.values.ndim == 1 and rows.weights is not None:
        same &= rows.weights[lost] == rows.weights[winners]
        if rows.units is not None:
            same &= (rows.units[lost] == rows.units[winners]).all(axis=1)
    agrees = same.tolist()
    times: list[str | None] = [None] * lost.size
    if rows.times is not None:
        times = [write_time(time, rows.time_format) for time in rows.times[winners].tolist()]
    for (file, number), time, is_same in zip(rows.name_rows(winners), times, agrees, strict=True):
        yield file, number, time, is_same


def write_time(time: float, time_format: str) -> str:
    """Format a time for people: an instant in UTC, or a number as in the file."""
    if time_format != "instant":
        return f"{time:.17g}"
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=time)).isoformat()
    except OverflowError:
        return f"{time:.17g} microseconds after 1970"


def conflict_error(rows: SpilledRows, others: IntArray, drawn: IntArray) -> SchemaError:
    """Make an error about the first conflict in the order of the files."""
    place = np.lexsort((rows.numbers[others], rows.files[others]))[:1]
    ((file, number),) = rows.name_rows(others[place])
    ((own_file, own_number),) = rows.name_rows(drawn[place])
    return SchemaError(
        f"{file} row {number} gives a sample another weight, stratum or unit than {own_file} row {own_number} "
        f"({others.size} such rows in this partition). Correct one, or set schema.on_duplicate to 'last' or 'first'"
    )


def duplicate_error(rows: SpilledRows, lost: IntArray, keys: list[IntArray]) -> SchemaError:
    """Make an error about the first duplicate in the order of the files; it does not reveal the identifier."""
    first_lost = int(lost[np.lexsort((rows.numbers[lost], rows.files[lost]))[0]])
    twins = np.ones(rows.numbers.size, np.bool_)
    for key in keys:
        twins &= key == key[first_lost]
    twins[first_lost] = False
    if rows.values.ndim == 1:
        twins &= rows.values >= 0
    other = int(np.flatnonzero(twins)[0])
    first, second = (
        f"{rows.names[rows.files[p]]} row {rows.numbers[p]}"
        for p in sorted((first_lost, other), key=lambda p: (rows.files[p], rows.numbers[p]))
    )
    what = (
        "answer the same variable for the same sample" if len(keys) > 1 else "are the same sample"
    )
    return SchemaError(
        f"{first} and {second} {what} "
        f"({lost.size} such rows in this partition). Remove one, or set schema.on_duplicate to 'last' or 'first'"
    )
