"""Scoring of files of any size: wide rows stream from files to parts; finished parts are not computed again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmflib.answering.sample_tables.outputs import (
    RECORD,
    claim_output,
    clear_output,
    mark_files,
    publish_parts,
    read_output_record,
    write_record,
)
from pmflib.apps.scoring.score_tables import TableScorer
from pmflib.base.arrays import check_model_type
from pmflib.base.errors import PmfError, SchemaError
from pmflib.model import JointPMF
from pmflib.model.row_scores import ReferenceScores
from pmflib.model.table_makers import ScoreOptions
from pmflib.store.table_files import describe_columns, hold_output, name_parts

if TYPE_CHECKING:
    from pmflib.answering.sample_tables.accounts import ScoreAccount
    from pmflib.ingest.options import SchemaOptions, SourceOptions
    from pmflib.ingest.sources import Source

VERSION = 2
"""Version of the parts; increase it when the same files and model give other bytes."""
SORTED = "_sorted"
"""Folder of the temporary store in which rows are sorted into samples."""


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
        from pmflib.answering.sample_tables.files import score_sources
        from pmflib.ingest.csv.sniffing import sniff_source
        from pmflib.ingest.options import SchemaOptions, make_source
        from pmflib.ingest.source_paths import check_output
        from pmflib.ingest.sources import digest_source, find_sources
    except ModuleNotFoundError as error:
        raise PmfError(
            f"files are read by packages of the extra 'pipeline', and {error.name} is not installed: pip install "
            "'pmflib[pipeline]'; JointPMF.score scores tables without it"
        ) from error
    check_model_type("model", model, JointPMF)
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
        described = describe_columns(output, model.schema, paths, config)
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
    from pmflib.answering.sample_tables.accounts import ScoreAccount, check_dataset
    from pmflib.answering.sample_tables.parts import QUARANTINE_FOLDER, score_stored, soften_policy
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
    return ScoreAccount(n_samples, account, unknown, list(measures), measures, len(layers))


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
