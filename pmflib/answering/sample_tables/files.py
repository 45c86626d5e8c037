"""Tables of the rows of wide files of any size: rows stream from files to parts, which are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pmflib.answering.sample_tables.accounts import (
    PartAccount,
    ScoreAccount,
    check_files,
    combine_parts,
)
from pmflib.answering.sample_tables.parts import (
    ScoringJob,
    find_example,
    list_absent,
    list_chunks,
    name_file_parts,
    score_chunk,
)
from pmflib.base.errors import PmfError
from pmflib.base.machine import count_processors
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.ingest.chunks import FileChunk, group_results
from pmflib.ingest.dataset.wide import list_ignored
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.sources import Source, attempt, digest_source, keep_readable, take_marks
from pmflib.model.table_makers import TableMaker
from pmflib.store.checkpoints import gather_in
from pmflib.store.objects.local_files import name_for_workers


def score_sources(
    client: Client,
    sources: Sequence[Source],
    config: SourceOptions,
    policy: SchemaOptions,
    scorer: TableMaker,
    folder: Path,
    *,
    columns: Sequence[str] = (),
    threads: int = 0,
    on_piece: Callable[[int, int], None] = lambda *_: None,
) -> ScoreAccount:
    """Score the rows of wide files without identifiers into a folder of Parquet files.

    Parameters
    ----------
    client
        Dask client for the chunks of the files, or None to work in this process; the bytes are the same.
    sources
        The files, with the digests of their bytes.
    config, policy
        Options of reading, and the policy for rows that do not fit.
    scorer
        Scorer of rows.
    folder
        Existing folder, visible to all workers; parts finished by an earlier call are kept. The names of parts are in
        the order of the files and their rows; rejected rows are in a folder beside them.
    columns
        Columns of the files, other than variables, to pass through.
    threads
        Threads of this process without a client; 0 is one per processor.
    on_piece
        Called with the number of finished chunks and their total.

    Returns
    -------
    The account of the rows; skipped files have no part.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read and must not be skipped, a file changes during the call, a row does not fit and the
        policy is to stop, most rows of a file do not fit, or no value of a column is a level. The message names all
        such files.
    """
    marks = {source.name: take_marks(source) for source in sources}
    targets, absent = scorer.options.targets, dict[str, list[str]]()

    def split(source: Source) -> list[FileChunk]:
        list_ignored(source, scorer.schema, config, targets)
        for name in list_absent(source, targets, config, scorer.schema):
            absent.setdefault(name, []).append(source.name)
        # chunks do not hash their file again
        return list_chunks(replace(source, digest=""), config)

    rule, skipped = config.on_unreadable_file, dict[str, str]()
    listed = [attempt(source, build=split) for source in sources]
    found = keep_readable(sources, listed, rule, skipped)
    indices = {source.name: index for index, source in enumerate(sources)}
    chunks = [(indices[source.name], chunk) for source, own in found for chunk in own]
    threads = 1 if client is not None else threads or count_processors()
    job = ScoringJob(scorer, config, policy, tuple(columns), name_for_workers(folder), threads)
    on_piece(0, len(chunks))
    tried: list[list[PartAccount] | PmfError] = map_items(
        client,
        partial(attempt, build=score_chunk),
        chunks,
        job,
        on_result=lambda done: on_piece(done, len(chunks)),
    )
    results = group_results([own for _, own in found], tried)
    scored = [
        (source, [part for parts in of_chunks for part in parts])
        for source, of_chunks in keep_readable([each for each, _ in found], results, rule, skipped)
    ]
    gather_in(folder)
    for index, source in enumerate(sources):
        if source.name in skipped:
            for path in folder.rglob(f"{name_file_parts(index)}-*.parquet"):
                path.unlink()
    for source, _ in scored:
        if not marks[source.name] or take_marks(source) != marks[source.name]:
            source.check(digest_source(source))
    nothing = PartAccount.zero(len(targets))
    check_files(
        [(source, sum(parts, nothing)) for source, parts in scored],
        *(scorer.schema, targets),
        lambda source: find_example(folder, name_file_parts(indices[source.name])),
    )
    parts = [part for _, of_file in scored for part in of_file]
    return combine_parts(parts, targets, skipped, absent)
