"""Parts of predictions: files with their account in the metadata; finished parts are not computed again."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.answering.sample_tables.accounts import PartAccount, count_texts, describe_row
from pmflib.base.arrays import IntArray
from pmflib.base.errors import SourceError
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.ingest.chunks import FileChunk, RawRows, is_parquet
from pmflib.ingest.dataset.quarantine import QuarantineWriter, RejectedRow
from pmflib.ingest.dataset.row_screening import RowDecisions, Screen
from pmflib.ingest.dataset.wide import WideEncoder, read_texts
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.readers import count_group_rows, read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.ingest.splitting import split_groups
from pmflib.model.measures import TargetSums
from pmflib.model.table_makers import TableMaker
from pmflib.schema import Schema
from pmflib.store.checkpoints import find_out, gather_in, hand_in, has_arrived
from pmflib.store.dataset import Layer
from pmflib.store.objects.local_files import name_for_workers
from pmflib.store.sample_blocks import read_blocks, read_origins
from pmflib.store.table_files import ACCOUNT, draft_file, write_options

PART_ROWS = 1 << 20
"""Number of rows after which a part ends, which bounds the work lost by an interruption; it is fixed, so that parts do
not depend on the machine."""
AHEAD = 2
"""Number of batches per thread that are read ahead."""
QUARANTINE_FOLDER = "_quarantine"
"""Folder of rejected rows beside the parts; readers of Parquet folders skip it because of its name."""


@dataclass(frozen=True)
class ScoringJob:
    """Settings shared by all chunks, sent to the workers.

    Parameters
    ----------
    scorer
        Scorer of rows.
    config, policy
        Options of reading, with a wide layout, and the policy for rows that do not fit.
    columns
        Columns of the files, other than variables, to pass through.
    folder
        Folder for the parts, from `name_for_workers`.
    threads
        Threads that encode and score; with one, the caller does.
    """

    scorer: TableMaker
    config: SourceOptions
    policy: SchemaOptions
    columns: tuple[str, ...]
    folder: str
    threads: int = 1


def list_chunks(source: Source, config: SourceOptions) -> list[FileChunk]:
    """Split a file into chunks: row groups of a Parquet file with about ``PART_ROWS`` rows; other files are one chunk.

    Raises
    ------
    SourceError
        If a Parquet file cannot be read.
    """
    if not is_parquet(source, config):
        return [FileChunk(source)]
    return split_groups(source, count_group_rows(source), PART_ROWS)


def list_samples(samples: Sequence[str] | None, rows: IntArray | None) -> dict[str, pa.Array]:
    """Return the columns ``sample`` and ``row`` of stored samples; "" and -1 become null."""
    columns: dict[str, pa.Array] = {}
    if samples is not None:
        columns["sample"] = pa.array([name or None for name in samples], pa.string())
    if rows is not None:
        columns["row"] = pa.array(rows, pa.int64(), mask=rows < 0)
    return columns


def name_file_parts(index: int) -> str:
    """Prefix of the names of the parts of a file, by its index among the files."""
    return f"part-{index:05}"


def score_chunk(item: tuple[int, FileChunk], job: ScoringJob) -> list[PartAccount]:
    """Score the rows of a chunk into its parts; the order of their names is the order of the rows.

    Parameters
    ----------
    item
        Index of the file among the files, and the chunk.
    job
        Settings.

    Returns
    -------
    Accounts of its parts, in order, those finished by an earlier call included.

    Raises
    ------
    SourceError, SchemaError
        If the file cannot be read, or a row does not fit and the policy is to stop.
    StoreError
        If a part is damaged.
    """
    index, chunk = item
    first = chunk.groups.start if chunk.groups else 0
    name, done = f"{job.folder}/{name_file_parts(index)}-{first:05}", list[PartAccount]()

    def name_part() -> Path:
        return find_out(f"{name}-{len(done):05}.parquet")

    while has_arrived(path := name_part()):
        done.append(PartAccount.read(path))
    if done and done[-1].is_last:
        return done
    n_skipped = sum(part.account.rows_in for part in done)
    batches = _look_ahead(_score_batches(chunk, job, n_skipped))
    ended = False
    while not ended:
        part, ended = _write_part(name_part(), chunk, job, batches)
        done.append(part)
    return done


def find_example(folder: Path, begin: str) -> str:
    """Describe the problem of the first rejected row of a file; empty if there is none.

    Parameters
    ----------
    folder
        Folder of the parts.
    begin
        Prefix of the names of the parts of the file.
    """
    for path in sorted((folder / QUARANTINE_FOLDER).glob(f"{begin}-*.parquet")):
        for row in pq.read_table(path, columns=["row", "reason", "column"]).slice(0, 1).to_pylist():
            return describe_row(**row)
    return ""


@dataclass(frozen=True)
class _Batch:
    """Predictions for a batch of rows, with its account and its rejected rows."""

    table: pa.Table
    account: PartAccount
    rejected: list[RejectedRow]


def _score_batches(chunk: FileChunk, job: ScoringJob, n_skipped: int) -> Iterator[_Batch]:
    """Score the batches of a chunk after the skipped rows, in order, several at a time."""
    schema = job.scorer.schema
    encoder = WideEncoder(schema, soften_policy(job.policy), job.scorer.options.targets)
    absent = list_absent(chunk.source, job.scorer.options.targets, job.config, schema)
    names = list(dict.fromkeys([*schema.columns, *job.columns]))
    columns = [name for name in names if name not in absent]
    coded = [name for name in schema.coded_columns if name not in absent]
    raws = read_rows(chunk.source, job.config, columns, chunk=chunk, coded=coded)
    if absent:
        raws = (add_columns(raw, names) for raw in raws)
    raws = _skip_rows(raws, chunk, n_skipped)
    if job.threads == 1:
        for raw in raws:
            yield _score_batch(raw, chunk, job, encoder)
        return
    waiting: deque[Future[_Batch]] = deque()
    with ThreadPoolExecutor(job.threads, "score") as pool:
        try:
            for raw in raws:
                waiting.append(pool.submit(_score_batch, raw, chunk, job, encoder))
                if len(waiting) >= AHEAD * job.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _skip_rows(raws: Iterator[RawRows], chunk: FileChunk, n_skipped: int) -> Iterator[RawRows]:
    """Skip the rows of finished parts, which end where batches end."""
    for raw in raws:
        if n_skipped <= 0:
            yield raw
        else:
            n_skipped -= raw.batch.num_rows + len(raw.ragged)
    if n_skipped:
        raise SourceError(
            f"{chunk.source.name}: has other rows than when its first parts were written; score it to another folder"
        )


def _score_batch(raw: RawRows, chunk: FileChunk, job: ScoringJob, encoder: WideEncoder) -> _Batch:
    rejected: list[RejectedRow] = []
    screen = Screen(chunk.source, job.config, job.policy, rejected.append)
    unknown: dict[str, dict[str, int]] = {}

    def count_unknown(name: str, values: pa.Array) -> None:
        unknown[name] = count_texts(read_texts(values))

    decisions = RowDecisions(raw.batch.num_rows)
    kept, codes = encoder.encode(raw, decisions, screen, count_unknown)
    names, n_observed = job.scorer.schema.names, (codes >= 0).sum(axis=0).tolist()
    observed = +Counter(dict(zip(names, n_observed, strict=True)))
    origins = list_origins(chunk.source, raw, kept, job.columns)
    table, sums = job.scorer.score(codes, origins)
    # leave out variables without such cells
    account = replace(screen.account, cells_made_missing=+screen.account.cells_made_missing)
    part = PartAccount(account, tuple(sums), observed=observed, unknown=unknown)
    return _Batch(table, part, rejected)


def list_origins(
    source: Source, raw: RawRows, kept: IntArray, columns: Sequence[str]
) -> dict[str, pa.Array]:
    """Build the columns that identify rows: file, row, and columns to pass through.

    Parameters
    ----------
    source
        The file.
    raw
        A batch of it.
    kept
        int64: positions of the scored rows in the batch.
    columns
        Names of columns of the batch.
    """
    file = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(kept.size, np.int32)), pa.array([source.name], pa.string())
    )
    origins = {"file": file, "row": pa.array(raw.rows[kept])}
    for name in columns:
        origins[name] = read_texts(raw.batch.column(name)).take(pa.array(kept))
    return origins


def _look_ahead(batches: Iterator[_Batch]) -> Iterator[tuple[_Batch, bool]]:
    """Yield each batch, of at least one, with whether it is the last."""
    before = next(batches, None)
    for batch in batches:
        assert before is not None
        yield before, False
        before = batch
    if before is not None:
        yield before, True


def _write_part(
    path: Path, chunk: FileChunk, job: ScoringJob, batches: Iterator[tuple[_Batch, bool]]
) -> tuple[PartAccount, bool]:
    """Write the next part and its rejected rows, atomically."""
    part = PartAccount.zero(len(job.scorer.options.targets))
    rejected, kept = path.parent / QUARANTINE_FOLDER / path.name, list[RejectedRow]()
    columns = _make_empty(chunk, job).schema
    with draft_file(path) as draft:
        with pq.ParquetWriter(draft, columns, **write_options(columns)) as writer:
            for batch, is_last in batches:
                part += replace(batch.account, is_last=is_last)
                kept += batch.rejected
                if batch.table.num_rows:
                    writer.write_table(batch.table)
                if part.is_last or part.account.rows_in >= PART_ROWS:
                    break
            else:
                # a file without rows
                part = replace(part, is_last=True)
            writer.add_key_value_metadata({ACCOUNT: part.to_bytes()})
        if kept:
            # before the part, so that its quarantine exists if it does
            rejected.parent.mkdir(exist_ok=True)
            with draft_file(rejected) as hidden, QuarantineWriter(hidden) as quarantine:
                quarantine.add_all(kept)
            hand_in(rejected)
    hand_in(path)
    return part, part.is_last


def _make_empty(chunk: FileChunk, job: ScoringJob) -> pa.Table:
    """Make an empty table with the columns of the parts."""
    schema = job.scorer.schema
    texts = pa.array([], pa.string())
    names = list(dict.fromkeys([*schema.columns, *job.columns]))
    batch = pa.RecordBatch.from_arrays([texts] * len(names), names=names)
    raw = RawRows(batch, np.empty(0, np.int64))
    encoder = WideEncoder(schema, soften_policy(job.policy), job.scorer.options.targets)
    return _score_batch(raw, chunk, job, encoder).table


def soften_policy(policy: SchemaOptions) -> SchemaOptions:
    """Adapt a policy to scoring: cells with unknown levels count as missing instead of sending the row to quarantine.

    A fit can do without a row, but a user wants scores for all. The policy to stop is kept.
    """
    rule = policy.on_unknown_level
    return policy.model_copy(
        update={"on_unknown_level": "missing" if rule == "quarantine" else rule}
    )


def list_absent(
    source: Source, targets: Sequence[str], config: SourceOptions, schema: Schema
) -> list[str]:
    """List the columns of targets that a file lacks.

    Raises
    ------
    SourceError
        If the file cannot be read.
    """
    header = read_columns(source, config) if targets else ()
    columns = dict.fromkeys(schema[name].column for name in targets)
    return [name for name in columns if name not in header]


def add_columns(raw: RawRows, names: Sequence[str]) -> RawRows:
    """Select columns by name, in order; absent columns are null.

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


def score_stored(
    client: Client,
    layers: Sequence[Layer],
    scorer: TableMaker,
    folder: Path,
    on_partition: Callable[[int, int], None] | None = None,
) -> tuple[int, dict[str, dict[str, float]]]:
    """Score every stored sample.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    layers
        Partitions of a dataset.
    scorer
        Scorer of samples.
    folder
        Existing folder, visible to all workers, for a Parquet file per partition, in order, with the columns sample and
        row, and those of `TableScorer.score`. Files finished by an earlier call are kept.
    on_partition
        Called with the number of finished partitions and their total, after each partition.

    Returns
    -------
    Number of samples, and the measures of `TargetSums.measure` for each target.

    Raises
    ------
    StoreError
        If a partition is missing or damaged.
    """
    name = name_for_workers(folder)
    items = [(layer, f"{name}/part-{index:05}.parquet") for index, layer in enumerate(layers)]
    scored = map_items(
        client,
        _score_partition,
        items,
        scorer,
        on_result=None if on_partition is None else lambda done: on_partition(done, len(items)),
    )
    gather_in(folder)
    measures = {
        target: TargetSums.merge([sums[index] for _, sums in scored]).measure()
        for index, target in enumerate(scorer.options.targets)
    }
    return sum(n_samples for n_samples, _ in scored), measures


def _score_partition(item: tuple[Layer, str], scorer: TableMaker) -> tuple[int, list[TargetSums]]:
    """Score a partition into a Parquet file, block by block; return its number of samples, and sums per target."""
    layer, out = item[0], find_out(item[1])
    if has_arrived(out):
        known = json.loads(pq.read_metadata(out).metadata[ACCOUNT])
        return layer.n_rows, [TargetSums(**each) for each in known["sums"]]
    rows, samples = read_origins(layer.folder)
    names = np.array(samples, object)
    schema = scorer.schema
    empty = np.empty((0, schema.n_variables), schema.code_dtype)
    columns = scorer.score(empty, list_samples([], rows[:0]))[0].schema
    parts = [[TargetSums()] * len(scorer.options.targets)]
    with (
        draft_file(out) as draft,
        pq.ParquetWriter(draft, columns, **write_options(columns)) as writer,
    ):
        for reference, block in zip(layer.blocks, read_blocks(layer.blocks), strict=True):
            codes, here = block.to_codes(schema.offsets), reference.rows
            table, sums = scorer.score(codes, list_samples(names[here].tolist(), rows[here]))
            writer.write_table(table)
            parts.append(sums)
        merged = [TargetSums.merge(each) for each in zip(*parts, strict=True)]
        account = {"rows_in": layer.n_rows, "sums": [asdict(each) for each in merged]}
        writer.add_key_value_metadata({ACCOUNT: json.dumps(account, sort_keys=True)})
    hand_in(out)
    return layer.n_rows, merged
