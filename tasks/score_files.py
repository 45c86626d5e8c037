"""Stage: predictions for the rows of wide files without identifiers, which stream from the files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.ingest.fingerprints import find_digest
from pmflib.ingest.sources import find_sources
from pmflib.model.file_scoring import VERSION, score_sources
from pmflib.model.score_outputs import claim_parts, publish_folder
from pmflib.model.score_tables import Wanted
from pmflib.running.clients import find_scheduler
from pmflib.store.artefacts import Reference
from tasks.score import load_scorer
from tasks.stage import build_artefact, open_store, open_workers, stage
from tasks.stage_progress import report


@stage(name="score-files")
def score_files(
    config: PipelineConfig,
    model: Reference,
    reference_scores: Reference,
    wanted: Wanted,
    run: int = 0,
    columns: tuple[str, ...] = (),
) -> Reference:
    """Score the rows of the pipeline's source, and predict some variables of each.

    Threads of this process share the work; where a Dask scheduler is configured, or processes are, it goes to these.

    Parameters
    ----------
    config
        The pipeline, its layout wide, its samples without identifiers.
    model, reference_scores, wanted, run
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
    scorer = load_scorer(store, model, reference_scores, wanted, run)
    rules = config.source.on_empty_file == "skip"
    skipped: dict[str, str] = {}
    more: dict[str, Any] = {"skip_empty": rules, "skipped": skipped}
    found = find_sources(config.source_paths, config.source.suffixes, **more)
    sources = [replace(each, digest=find_digest(each, store.address)) for each in found]
    inputs = {
        f"source {place:05}": store.record_source(
            each.name, each.digest, {"bytes": each.size}
        ).reference
        for place, each in enumerate(sources)
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
                on_piece=partial(report, "score"),
            )
        publish_folder(work, folder, account["samples"])
        account["files_skipped"] |= skipped
        return account

    return build_artefact(
        store,
        "predictions",
        inputs={**inputs, "model": model, "reference": reference_scores},
        options={
            **wanted.to_json(),
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
