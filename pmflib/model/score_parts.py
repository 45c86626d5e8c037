"""Files of predictions, part by part: read, encode, score, write. What is finished is not done again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.config import SchemaConfig, SourceConfig
from pmflib.errors import SourceError
from pmflib.ingest.accounts import Account
from pmflib.ingest.kept_columns import read_texts
from pmflib.ingest.pieces import Piece, choose_groups
from pmflib.ingest.quarantine import QuarantineWriter
from pmflib.ingest.raw_rows import RawRows
from pmflib.ingest.readers import count_group_rows, is_parquet, read_rows
from pmflib.ingest.row_screening import Screen, Verdicts
from pmflib.ingest.sources import Source
from pmflib.ingest.wide import WideEncoder
from pmflib.model.part_accounts import PartAccount
from pmflib.model.score_tables import TableScorer
from pmflib.model.target_measures import TargetSums
from pmflib.store.handed_files import find_out, hand_in, was_handed_in
from pmflib.table_files import ACCOUNT, write_options

PART_ROWS = 1 << 20
"""Rows after which a part ends: what is lost, at most, where a run is interrupted; a fixed number, so that parts do not
depend on the machine."""
AHEAD = 2
"""Batches per thread that are read before they are needed."""
QUARANTINE_FOLDER = "_quarantine"
"""Folder of rows that do not fit, beside the parts; readers of folders of Parquet files pass over it by its name."""


@dataclass(frozen=True)
class NamedPiece(Piece):
    """A file, or some row groups of a Parquet file, and the beginning of the names of its parts.

    Parameters
    ----------
    source, place, groups, bytes, first_row, n_rows
        As for `Piece`.
    name
        Pieces in the order of their names are in the order of the rows.
    """

    name: str = ""


@dataclass(frozen=True)
class ScoringJob:
    """What all pieces share; it is sent to the workers.

    Parameters
    ----------
    scorer
        The model, and what is wanted of it.
    config, policy
        How files are read, laid out wide, and what happens to rows that do not fit.
    columns
        Columns of the files, no variables, that are passed through.
    folder
        Folder for the parts, as `name_for_workers` names it.
    threads
        Threads that encode and score; with one, nothing runs besides the caller.
    """

    scorer: TableScorer
    config: SourceConfig
    policy: SchemaConfig
    columns: tuple[str, ...]
    folder: str
    threads: int = 1


def list_pieces(source: Source, place: int, config: SourceConfig) -> list[NamedPiece]:
    """Cut a file into pieces: row groups of a Parquet file that have ``PART_ROWS`` rows together; another file whole.

    Parameters
    ----------
    source
        The file.
    place
        Its place among the files.
    config
        How it is read.

    Raises
    ------
    SourceError
        If a Parquet file cannot be read.
    """
    begin = f"{name_parts(place)}-"
    if not is_parquet(source, config):
        return [NamedPiece(source, name=f"{begin}00000")]
    runs = choose_groups(count_group_rows(source), PART_ROWS)
    pieces = [
        NamedPiece(source, place, groups, name=f"{begin}{groups.start:05}")
        for place, groups in enumerate(runs)
    ]
    return pieces or [NamedPiece(source, groups=range(0), name=f"{begin}00000")]


def name_parts(place: int) -> str:
    """Beginning of the names of the parts of a file, by its place among the files."""
    return f"part-{place:05}"


def score_piece(piece: NamedPiece, job: ScoringJob) -> list[PartAccount]:
    """Score the rows of a piece into its parts.

    Parameters
    ----------
    piece
        What is read.
    job
        How.

    Returns
    -------
    Accounts of its parts, in order: those that an earlier call finished, and those that are written now.

    Raises
    ------
    SourceError, SchemaError
        If the file cannot be read, or a row does not fit and the policy is to stop.
    StoreError
        If a part is damaged.
    """
    done: list[PartAccount] = []
    while was_handed_in(path := _name_part(piece, job, len(done))):
        done.append(PartAccount.read(path))
    if done and done[-1].is_last:
        return done
    n_skipped = sum(part.account.rows_in for part in done)
    batches = _look_ahead(_score_batches(piece, job, n_skipped))
    ended = False
    while not ended:
        part, ended = _write_part(piece, job, len(done), batches)
        done.append(part)
    return done


def _name_part(piece: NamedPiece, job: ScoringJob, number: int) -> Path:
    return find_out(f"{job.folder}/{piece.name}-{number:05}.parquet")


@dataclass(frozen=True)
class _Batch:
    """Predictions for a batch of rows, and what became of the others."""

    table: pa.Table
    account: Account
    sums: list[TargetSums]
    rejected: list[tuple[str, int, str, str | None, str]]


class _Rejected:
    """Rows that a screen rejects, until they are written in their order."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, str, str | None, str]] = []

    def add(self, *row: Any) -> None:
        """Keep a row, as `QuarantineWriter.add` does."""
        self.rows.append(row)


def _score_batches(piece: NamedPiece, job: ScoringJob, n_skipped: int) -> Iterator[_Batch]:
    """Batches of a piece after some rows, in order; several are worked on at a time."""
    encoder = WideEncoder(job.scorer.model.schema, job.policy)
    raws = _skip_rows(_read_piece(piece, job), piece, n_skipped)
    if job.threads == 1:
        for raw in raws:
            yield _score_batch(raw, piece, job, encoder)
        return
    waiting: deque[Future[_Batch]] = deque()
    with ThreadPoolExecutor(job.threads, "score") as pool:
        try:
            for raw in raws:
                waiting.append(pool.submit(_score_batch, raw, piece, job, encoder))
                if len(waiting) >= AHEAD * job.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _read_piece(piece: NamedPiece, job: ScoringJob) -> Iterator[RawRows]:
    names = job.scorer.model.schema.names
    columns = list(dict.fromkeys([*names, *job.columns]))
    return read_rows(piece.source, job.config, columns, piece=piece, coded=names)


def _skip_rows(raws: Iterator[RawRows], piece: NamedPiece, n_skipped: int) -> Iterator[RawRows]:
    """Rows after those of finished parts; parts end where batches do."""
    for raw in raws:
        if n_skipped <= 0:
            yield raw
        else:
            n_skipped -= raw.batch.num_rows + len(raw.ragged)
    if n_skipped:
        raise SourceError(
            f"{piece.source.name}: has other rows than when its first parts were written; score it to another place"
        )


def _score_batch(raw: RawRows, piece: NamedPiece, job: ScoringJob, encoder: WideEncoder) -> _Batch:
    rejected: Any = _Rejected()
    screen = Screen(piece.source, job.config, job.policy, rejected)
    kept, codes = encoder.encode(raw, Verdicts(raw.batch.num_rows), screen)
    origins = list_origins(piece.source, raw, kept, job.columns)
    table, sums = job.scorer.score(codes, origins)
    return _Batch(table, screen.account, sums, rejected.rows)


def list_origins(
    source: Source, raw: RawRows, kept: IntArray, columns: Sequence[str]
) -> dict[str, pa.Array]:
    """Columns that say where rows come from: file, row, and columns that are passed through.

    Parameters
    ----------
    source
        The file.
    raw
        A batch of it.
    kept
        int64: places in the batch of the rows that are scored.
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
    """Every batch, and whether it is the last; there is at least one."""
    before = next(batches, None)
    for batch in batches:
        assert before is not None
        yield before, False
        before = batch
    if before is not None:
        yield before, True


def _write_part(
    piece: NamedPiece, job: ScoringJob, number: int, batches: Iterator[tuple[_Batch, bool]]
) -> tuple[PartAccount, bool]:
    """Write the next part, and its rows that do not fit; it has its name once it is whole."""
    path = _name_part(piece, job, number)
    n_targets = len(job.scorer.wanted.targets)
    part = PartAccount(sums=[TargetSums()] * n_targets)
    draft, quarantine = path.with_name(f".{path.name}.draft"), path.parent / QUARANTINE_FOLDER
    rejected = quarantine / path.name
    empty = _make_empty(piece, job)
    try:
        with pq.ParquetWriter(draft, empty.schema, **write_options(empty.schema)) as writer:
            kept: list[tuple[str, int, str, str | None, str]] = []
            for batch, part.is_last in batches:
                part.add(batch.account, batch.sums)
                kept += batch.rejected
                if batch.table.num_rows:
                    writer.write_table(batch.table)
                if part.is_last or part.account.rows_in >= PART_ROWS:
                    break
            else:
                # a file without rows
                part.is_last = True
            writer.add_key_value_metadata({ACCOUNT: part.to_bytes()})
        if kept:
            quarantine.mkdir(exist_ok=True)
            hidden = rejected.with_name(f".{rejected.name}.draft")
            with QuarantineWriter(hidden) as writer_of_rejected:
                for row in kept:
                    writer_of_rejected.add(*row)
            hidden.replace(rejected)
            hand_in(rejected)
        # the part last: where it is, its quarantine is
        draft.replace(path)
        hand_in(path)
    finally:
        draft.unlink(missing_ok=True)
    return part, part.is_last


def _make_empty(piece: NamedPiece, job: ScoringJob) -> pa.Table:
    """A table without rows that has the columns of the parts."""
    schema = job.scorer.model.schema
    texts = pa.array([], pa.string())
    names = list(dict.fromkeys([*schema.names, *job.columns]))
    batch = pa.RecordBatch.from_arrays([texts] * len(names), names=names)
    raw = RawRows(batch, np.empty(0, np.int64))
    return _score_batch(raw, piece, job, WideEncoder(schema, job.policy)).table
