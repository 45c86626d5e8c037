"""Second pass: some buckets of all spills become samples, and superseded rows go to quarantine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.arrays import BoolArray, IntArray
from pmflib.core.blocks import SPARSE_BELOW, Block, DenseBlock, SparseBlock
from pmflib.core.hashing import HashArray
from pmflib.ingest.dataset.accounts import Account, StepSummary
from pmflib.ingest.dataset.identifiers import find_buckets, hash_identifiers, make_keys
from pmflib.ingest.dataset.quarantine import (
    QUARANTINE,
    QUARANTINE_HASHES,
    ROW_GROUP,
    SUPERSEDED_SCHEMA,
    QuarantineWriter,
)
from pmflib.ingest.dataset.sample_weights import assign_unit_folds, find_decimals
from pmflib.ingest.dataset.spilled_rows import (
    SpilledRows,
    conflict_error,
    describe_answers,
    describe_rows,
    describe_winners,
    duplicate_error,
    read_spilled_rows,
)
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.schema import Schema
from pmflib.store.sample_writer import SampleWriter


def assemble_buckets(
    spills: Sequence[Path],
    names: Sequence[str],
    buckets: tuple[int, int],
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    *,
    n_buckets: int,
    n_folds: int,
    folder: Path,
    since: float = -math.inf,
) -> StepSummary:
    """Make the samples of some buckets from the spills of all files; memory is that of the buckets.

    Each spill is opened once. Samples are in the order of their identifiers' bytes. Of several answers of a sample to a
    variable, or several wide rows of a sample, one is kept: by ``policy.on_duplicate`` the last or the first, by time,
    then file, then row. The others go to quarantine; their raw text is written from what they were encoded to, by
    label. A row whose value is missing supersedes nothing and is not superseded. Where samples of a long log have
    weights, that of a sample is of one of its rows, which is chosen in the same way, as are its stratum and unit; rows
    of the sample that say something else go to quarantine as conflicts, before answers are compared.

    Parameters
    ----------
    spills, names
        Folder of each spill, and the name of the file that it is of, in the order of the files and of their rows.
    buckets
        The first bucket, and the one after the last.
    schema, source_config, policy
        The same as for the spills; a spill that names its levels may have been encoded with a part of the schema.
    n_buckets, n_folds
        Buckets that the files were spilled to, and folds: samples of bucket b belong to fold b % n_folds, or to that of
        their sampling unit.
    folder
        Folder, made if need be; ``samples`` (sparse where less than ``SPARSE_BELOW`` is observed) and
        ``quarantine.parquet`` are written into it.
    since
        Rows with an earlier time are skipped: they are outside the window.

    Returns
    -------
    The account of the rows that the spills encoded, none of which has a cell made missing here, and what was written.
    See `combine_accounts`.

    Raises
    ------
    SchemaError
        If there are duplicates and the policy is to stop.
    SourceError
        If the times of one file are numbers and those of another instants.
    StoreError
        If a spill is incomplete or was made with another schema.
    """
    rows = read_spilled_rows(
        spills,
        names,
        schema,
        source_config.layout,
        since,
        lambda spill: spill.read_buckets(*buckets),
    )
    return _assemble(rows, schema, source_config, policy, n_buckets, n_folds, folder)


def assemble_samples(
    spills: Sequence[Path],
    names: Sequence[str],
    keys: HashArray,
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    *,
    n_buckets: int,
    n_folds: int,
    folder: Path,
    since: float = -math.inf,
) -> StepSummary:
    """Make the samples of some keys, whichever buckets they are in, as `assemble_buckets` would make them.

    Parameters
    ----------
    spills, names, schema, source_config, policy, n_buckets, n_folds, folder, since
        As for `assemble_buckets`.
    keys
        uint64, sorted: see `make_keys`. Samples with other keys are not read.

    Returns
    -------
    As `assemble_buckets`.

    Raises
    ------
    SchemaError, SourceError, StoreError
        As `assemble_buckets`.
    """
    rows = read_spilled_rows(
        spills, names, schema, source_config.layout, since, lambda spill: spill.read_samples(keys)
    )
    return _assemble(rows, schema, source_config, policy, n_buckets, n_folds, folder)


def _assemble(
    rows: SpilledRows,
    schema: Schema,
    source_config: SourceOptions,
    policy: SchemaOptions,
    n_buckets: int,
    n_folds: int,
    folder: Path,
) -> StepSummary:
    """Make samples of rows, and write them."""
    identifiers, rank = _rank_samples(rows.samples)
    block: Block
    others = np.empty(0, np.int64)
    if source_config.layout == "long":
        drawn, others, fitting = _settle_draws(rows, rank, policy)
        kept, lost, winners, keys = _choose_answers(rows, rank, schema, policy, fitting)
        block = _join_answers(rows, rank, kept, drawn, len(identifiers))
    else:
        kept, lost, winners, keys = _choose(np.arange(rank.size), [rank], policy)
        block = DenseBlock(rows.values[kept], None if rows.weights is None else rows.weights[kept])
        drawn = kept

    def describe(indices: IntArray) -> list[str]:
        write = describe_answers if rows.values.ndim == 1 else describe_rows
        return write(rows, indices, schema, source_config)

    if lost.size and policy.on_duplicate == "error":
        raise duplicate_error(rows, lost, keys)
    # "" is the reason of a duplicate, of which the row as a whole is at fault
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
    # a row number means something only where there is one file
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
        folds = (find_buckets(make_keys(hashes, n_buckets)) % np.uint64(n_folds)).astype(np.int64)
        if units is not None:
            folds = assign_unit_folds(units, n_folds)
        replicates = None if rows.replicates is None else rows.replicates[kept]
        counts = np.column_stack(sizes)
        samples.append(block, folds, origins, identifiers, counts, units, replicates)
    return StepSummary(account, written=samples.close())


def _rank_samples(samples: pa.BinaryArray) -> tuple[npt.NDArray[np.object_], IntArray]:
    """Distinct identifiers in the order of their bytes, and each row's index among them."""
    coded = samples.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy().astype(np.int64)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    identifiers = np.empty(order.size, object)
    identifiers[:] = coded.dictionary.take(pa.array(order)).to_pylist()
    return identifiers, rank[coded.indices.to_numpy()]


def _settle_draws(
    rows: SpilledRows, rank: IntArray, policy: SchemaOptions
) -> tuple[IntArray, IntArray, BoolArray]:
    """Settle the weight, the stratum and the unit of each sample of a long log.

    Returns
    -------
    Row of each sample that has its own, the rows that say something else, and whether each row does not.

    Raises
    ------
    SchemaError
        If there are such rows and the policy is to stop.
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
    """Column in which each of some rows differs from the one that says how its sample was drawn."""
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
    Chosen rows, sorted by keys; the others; the chosen one for each of the others; and the keys.
    """
    for key in reversed(keys):
        indices = indices[_stable_order(key[indices])]
    # whether a row has the same keys as the one after it
    same: BoolArray = np.ones(max(indices.size - 1, 0), np.bool_)
    for key in keys:
        ordered = key[indices]
        same &= ordered[1:] == ordered[:-1]
    edge = np.zeros(1, np.bool_)
    lost = np.concatenate([edge, same] if policy.on_duplicate == "first" else [same, edge])
    lost = lost[: indices.size]
    kept = indices[~lost]
    # one is kept of each run of rows with the same keys
    run_of = np.concatenate([edge, ~same]).cumsum()[: indices.size]
    return kept, indices[lost], kept[run_of[lost]], keys


def _stable_order(key: IntArray) -> IntArray:
    """Order of integers at least 0; radix sort, 16 bits at a time."""
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
