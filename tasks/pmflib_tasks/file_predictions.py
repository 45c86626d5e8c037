"""Artefacts with something said of every row of wide files without identifiers: scores, or rows that are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.cluster.workers import find_scheduler
from pmflib.display.progress import report_progress
from pmflib.ingest.sources import find_sources, identify_source
from pmflib.model.score_tables import TableMaker
from pmflib.scoring.file_scoring import score_sources
from pmflib.scoring.outputs import claim_parts, publish_folder
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, open_workers


def publish_files(
    config: PipelineConfig,
    make_scorer: Callable[[], TableMaker],
    inputs: Mapping[str, Reference],
    options: Mapping[str, Any],
    version: int,
    columns: tuple[str, ...],
) -> Reference:
    """Publish what is said of the rows of the pipeline's source, made of some inputs with some options.

    What says it is made when it is needed; the other parameters are those of
    `pmflib_tasks.score_files.score_files`.
    """
    store = open_store(config)
    skipped: dict[str, str] = {}
    found = find_sources(
        config.source_paths,
        config.source.suffixes,
        skip_empty=config.source.on_empty_file == "skip",
        skipped=skipped,
    )
    sources = [identify_source(each, store.address) for each in found]
    files = {
        f"source {index:05}": store.record_source(
            each.name, each.digest, {"bytes": each.size}
        ).reference
        for index, each in enumerate(sources)
    }

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        cluster, scorer = config.cluster, make_scorer()
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
        publish_folder(work, folder, account.samples * scorer.rows_per_sample)
        content = {**account.to_json(), **scorer.facts}
        return content | {"files_skipped": {**(account.files_skipped or {}), **skipped}}

    return build_artefact(
        store,
        "predictions",
        inputs={**files, **inputs},
        options={
            **options,
            "columns": list(columns),
            "source": config.source.reading,
            "names": [each.name for each in sources],
            "skipped": skipped,
            "rule": config.source.on_unreadable_file,
            "policy": config.schema_.model_dump(mode="json", exclude={"file"}),
        },
        version=version,
        write=write,
    ).reference
