"""Scoring of files of any size: wide rows stream from files to parts; finished parts are not computed again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmflib.apps.scoring.outputs import (
    RECORD,
    claim_output,
    clear_output,
    mark_files,
    publish_parts,
    read_output_record,
    write_record,
)
from pmflib.apps.scoring.score_tables import TableScorer
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.machine import count_processors
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.model import JointPMF
from pmflib.model.row_scores import ReferenceScores
from pmflib.model.table_makers import ScoreOptions, TableMaker
from pmflib.store.table_files import hold_output, name_parts

if TYPE_CHECKING:
    from pmflib.apps.scoring.accounts import PartAccount, ScoreAccount
    from pmflib.apps.scoring.parts import NamedChunk
    from pmflib.ingest.options import SchemaOptions, SourceOptions
    from pmflib.ingest.sources import Source

VERSION = 2
"""Version of the parts; increase it when the same files and model give other bytes."""
SORTED = "_sorted"
"""Folder of the temporary store in which rows are sorted into samples."""


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
    from pmflib.apps.scoring.accounts import PartAccount, check_file, combine_parts
    from pmflib.apps.scoring.parts import (
        ScoringJob,
        find_example,
        list_absent,
        list_chunks,
        name_file_parts,
        score_chunk,
    )
    from pmflib.ingest.dataset.wide import list_ignored
    from pmflib.ingest.sources import attempt, digest_source, keep_readable, take_marks
    from pmflib.store.checkpoints import gather_in
    from pmflib.store.objects.local_files import name_for_workers

    marks = {source.name: take_marks(source) for source in sources}
    targets, absent = scorer.options.targets, dict[str, list[str]]()

    def split(item: tuple[int, Source]) -> list[NamedChunk]:
        index, source = item
        list_ignored(source, scorer.model.schema, config, targets)
        for name in list_absent(source, targets, config, scorer.model.schema):
            absent.setdefault(name, []).append(source.name)
        # chunks do not hash their file again
        return list_chunks(replace(source, digest=""), index, config)

    rule, skipped = config.on_unreadable_file, dict[str, str]()
    listed = [attempt(item, build=split) for item in enumerate(sources)]
    found = keep_readable(sources, listed, rule, skipped)
    chunks = [chunk for _, own in found for chunk in own]
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
    by_name: dict[str, list[PartAccount] | PmfError] = {}
    for chunk, result in zip(chunks, tried, strict=True):
        before = by_name.get(chunk.source.name, [])
        whole = before if isinstance(before, PmfError) else result
        if isinstance(before, list) and isinstance(result, list):
            whole = [*before, *result]
        by_name[chunk.source.name] = whole
    scored = keep_readable(
        [source for source, _ in found],
        [by_name[source.name] for source, _ in found],
        rule,
        skipped,
    )
    gather_in(folder)
    for index, source in enumerate(sources):
        if source.name in skipped:
            for path in folder.rglob(f"{name_file_parts(index)}-*.parquet"):
                path.unlink()
    for source, _ in scored:
        if not marks[source.name] or take_marks(source) != marks[source.name]:
            source.check(digest_source(source))
    indices = {source.name: index for index, source in enumerate(sources)}

    def check(item: tuple[Source, list[PartAccount]]) -> None:
        source, parts = item
        whole = sum(parts, PartAccount.zero(len(targets)))
        example = find_example(folder, name_file_parts(indices[source.name]))
        check_file(
            *(source.name, whole.account, whole.observed, whole.unknown),
            *(scorer.model.schema, targets, example),
        )

    keep_readable(
        [each for each, _ in scored], [attempt(each, build=check) for each in scored], "stop", {}
    )
    parts = [part for _, of_file in scored for part in of_file]
    return combine_parts(parts, targets, skipped, absent)


def score_file(
    model: JointPMF,
    data: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    reference: ReferenceScores | None = None,
    targets: Sequence[str] = (),
    probabilities: bool = False,
    keep: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    on_piece: Callable[[int, int], None] = lambda *_: None,
    **reading: Any,
) -> dict[str, Any]:
    """Score files of any size with a model, by default wide files whose rows are samples.

    Repeating an interrupted call resumes it, with the same bytes. Repeating a finished call returns at once if the
    sizes and times of its files are unchanged.

    Parameters
    ----------
    model
        The model, with the schema of the files.
    data
        File, folder, glob or fsspec URL of CSV, Parquet, SPSS, Stata or SAS files, or several of these.
    output
        Without a suffix, a folder of Parquet files, each written atomically; with .parquet, .csv, .sav, .zsav or .dta,
        one file, which is joined from such a folder beside it. Rejected rows are in ``_quarantine`` of the folder, or
        in a Parquet file that ends with ``.quarantine.parquet``.
    reference
        Reference of the percentiles, from `ReferenceScores.load`; by default the scores of samples drawn from the
        model.
    targets, probabilities
        Variables to predict from the others, and whether to write the probability of each of their levels.
    keep
        Variables and other columns of the files to pass through.
    facts
        Metadata of the files, by name.
    on_piece
        As for `score_sources`.
    reading
        Options of section ``source`` of a configuration: ``sample`` if rows have identifiers; ``layout="long"`` with
        ``sample``, ``variable`` and ``value`` for a row per answer; ``encoding``, ``delimiter``, ... Options that are
        not given are detected from the first file. Rows with identifiers are first sorted into samples, in the output's
        folder.

    Returns
    -------
    The account of rows, from `ScoreAccount.to_json`; the paths ``output`` and ``quarantine``; ``notes`` on detected
    options of reading that are not the default.

    Raises
    ------
    PmfError
        If the extra "pipeline", which reads files, is not installed.
    ConfigError
        If the output exists and holds something else, or is among the files.
    SourceError, SchemaError
        As for `score_sources`; nothing is published then.
    """
    try:
        from pmflib.ingest.csv.sniffing import sniff_source
        from pmflib.ingest.options import SchemaOptions, make_source
        from pmflib.ingest.source_paths import check_output
        from pmflib.ingest.sources import digest_source, find_sources
        from pmflib.surveys.statistics_files.described_columns import describe_columns
    except ModuleNotFoundError as error:
        raise PmfError(
            f"files are read by packages of the extra 'pipeline', and {error.name} is not installed: pip install "
            "'pmflib[pipeline]'; JointPMF.score scores tables without it"
        ) from error
    output = Path(output)
    paths = [str(data)] if isinstance(data, str | Path) else [str(each) for each in data]
    given = {"path": paths, "layout": "wide", **reading}
    config = make_source(given)
    check_output(paths, output, config.suffixes)
    sources = [
        replace(source, digest=digest_source(source))
        for source in find_sources(tuple(paths), config.suffixes)
    ]
    config, notes = sniff_source(sources, config, set(reading))
    names, columns = split_columns(model, keep)
    if reference is None:
        reference = ReferenceScores.draw(model)
    options = ScoreOptions(tuple(targets), probabilities, names)
    scorer = TableScorer(model, reference, options, facts)
    if columns and config.sample is not None:
        # a sample may have several rows, so that it has no value of other columns
        model.schema.position(columns[0])
    identity = _identify(scorer, reference, sources, config, columns)
    folder = name_parts(output)
    as_file = folder != output
    record = output.with_name(f".{output.name}.json") if as_file else folder / RECORD
    known = read_output_record(record)
    if known.get("identity") == identity and known.get("files") == mark_files(output):
        return dict(known["account"])
    with hold_output(output):
        claim_output(folder, identity, as_file=as_file)
        policy = SchemaOptions()
        try:
            if config.layout == "long" or config.sample is not None:
                scored = score_sorted(sources, config, policy, scorer, folder, on_piece)
            else:
                scored = score_sources(
                    *(None, sources, config, policy, scorer, folder),
                    columns=columns,
                    on_piece=on_piece,
                )
        except SchemaError:
            # the files are refused, so that finished parts are invalid
            clear_output(folder)
            raise
        described = describe_columns(model.schema, paths, config)
        published = publish_parts(folder, output, scored.samples, described)
        account = {"output": str(output), **scored.to_json(), **published}
        if notes:
            account["notes"] = notes
        files = mark_files(output)
        write_record(record, {"identity": identity, "account": account, "files": files})
        if as_file:
            shutil.rmtree(folder)
    return account


def score_sorted(
    sources: Sequence[Source],
    config: SourceOptions,
    policy: SchemaOptions,
    scorer: TableScorer,
    folder: Path,
    on_part: Callable[[int, int], None] = lambda *_: None,
) -> ScoreAccount:
    """Score logs after sorting their rows into samples, in a temporary store.

    Parameters
    ----------
    sources
        The files.
    config, policy
        Options of reading, with a long layout or identifiers, and the policy for rows that do not fit.
    scorer
        Scorer of samples.
    folder
        Existing folder for the parts; parts finished by an earlier call are kept.
    on_part
        Called with the number of finished parts and their total.

    Returns
    -------
    The account, as for `score_sources`, except that ``samples`` counts samples, not rows.
    """
    from pmflib.apps.scoring.accounts import ScoreAccount, check_dataset
    from pmflib.apps.scoring.parts import QUARANTINE_FOLDER, score_stored, soften_policy
    from pmflib.ingest.dataset.accounts import DatasetAccount
    from pmflib.ingest.dataset.building import build_dataset
    from pmflib.ingest.dataset.quarantine import export_quarantine
    from pmflib.ingest.options import DatasetOptions
    from pmflib.store.artefacts import Store
    from pmflib.store.dataset import list_layers

    store = Store(folder / SORTED)
    schema, targets = scorer.model.schema, scorer.options.targets
    options = DatasetOptions(config, soften_policy(policy), tuple(config.path))
    entry = build_dataset(None, store, options, schema)
    unknown = check_dataset(store, entry.reference, sources, config, schema, targets)
    layers = list_layers(store, entry.reference)
    n_samples, measures = score_stored(None, layers, scorer, folder, on_part)
    account = DatasetAccount.from_json(entry.summary)
    if account.rows_quarantined:
        rejected = folder / QUARANTINE_FOLDER / "part-00000.parquet"
        export_quarantine(store, entry.reference, rejected)
    shutil.rmtree(store.root)
    return ScoreAccount.of_dataset(account, n_samples, unknown, measures, len(layers))


def split_columns(model: JointPMF, keep: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the names of columns to pass through into variables and others."""
    names = tuple(name for name in keep if name in model.schema)
    return names, tuple(name for name in keep if name not in names)


def _identify(
    scorer: TableScorer,
    reference: ReferenceScores,
    sources: Sequence[Source],
    config: SourceOptions,
    columns: Sequence[str],
) -> str:
    """Hash all inputs of the parts with SHA-256."""
    content = {
        "version": VERSION,
        "metadata": scorer.metadata,
        "reference": hashlib.sha256(reference.surprises.tobytes()).hexdigest(),
        "sources": [[source.name, source.digest] for source in sources],
        "reading": config.reading,
        "wanted": scorer.options.to_json(),
        "columns": list(columns),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
