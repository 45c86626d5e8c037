"""Stage: predictions for the rows of wide files without identifiers, which stream from the files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.display.progress import report_progress
from pmflib.ingest.sources import find_digest, find_sources
from pmflib.model.score_tables import ScoreOptions
from pmflib.running.workers import find_scheduler
from pmflib.scoring.file_scoring import VERSION, score_sources
from pmflib.scoring.score_outputs import claim_parts, publish_folder
from pmflib.store.artefacts import Reference
from pmflib_tasks.score import load_scorer
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage


@stage(name="score-files")
def score_files(
    config: PipelineConfig,
    model: Reference,
    reference_scores: Reference,
    requested: ScoreOptions,
    run: int = 0,
    columns: tuple[str, ...] = (),
) -> Reference:
    """Score the rows of the pipeline's source, and predict some variables of each.

    Threads of this process share the work; where a Dask scheduler is configured, or processes are, it goes to these.

    Parameters
    ----------
    config
        The pipeline, its layout wide, its samples without identifiers.
    model, reference_scores, requested, run
        As for `score`.
    columns
        Columns of the files, no variables, that are passed through.

    Returns
    -------
    Reference to a folder of Parquet files in the order of the files and their rows; rows that do not fit are in a
    folder ``_quarantine`` beside them.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read, or a row does not fit and the policy is to stop.
    """
    store = open_store(config)
    scorer = load_scorer(store, model, reference_scores, requested, run)
    skipped: dict[str, str] = {}
    found = find_sources(
        config.source_paths,
        config.source.suffixes,
        skip_empty=config.source.on_empty_file == "skip",
        skipped=skipped,
    )
    sources = [replace(each, digest=find_digest(each, store.address)) for each in found]
    inputs = {
        f"source {index:05}": store.record_source(
            each.name, each.digest, {"bytes": each.size}
        ).reference
        for index, each in enumerate(sources)
    }

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        cluster = config.cluster
        shared = bool(find_scheduler(cluster)) or cluster.processes
        with open_workers(config, "") if shared else nullcontext((None, 0)) as (client, _):
            account = score_sources(
                client,
                sources,
                config.source,
                config.schema_,
                scorer,
                claim_parts(work),
                columns=columns,
                threads=cluster.workers,
                on_piece=partial(report_progress, "score"),
            )
        publish_folder(work, folder, account.samples)
        content = account.to_json()
        return content | {"files_skipped": {**(account.files_skipped or {}), **skipped}}

    return build_artefact(
        store,
        "predictions",
        inputs={**inputs, "model": model, "reference": reference_scores},
        options={
            **requested.to_json(),
            "run": run,
            "columns": list(columns),
            "source": config.source.reading,
            "names": [each.name for each in sources],
            "skipped": skipped,
            "rule": config.source.on_unreadable_file,
            "policy": config.schema_.model_dump(mode="json", exclude={"file"}),
        },
        version=VERSION,
        write=write,
    ).reference
