"""Artefacts with results for every stored sample or row of wide files: scores, filled cells, or recommendations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.answering.sample_tables.accounts import ScoreAccount, check_dataset
from pmflib.answering.sample_tables.files import score_sources
from pmflib.answering.sample_tables.outputs import claim_parts, publish_folder
from pmflib.answering.sample_tables.parts import score_stored
from pmflib.base.display.progress import report_progress
from pmflib.cluster.workers import find_scheduler
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.sources import attempt, find_sources, identify_source, keep_readable
from pmflib.model.table_makers import TableMaker
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_layers
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, open_workers


def publish_samples(
    config: PipelineConfig,
    dataset: Reference,
    make_scorer: Callable[[], TableMaker],
    inputs: Mapping[str, Reference],
    options: Mapping[str, Any],
    version: int,
    address: str,
    is_new: bool,
) -> Reference:
    """Publish a table with results for every sample of a dataset.

    ``make_scorer`` is called only if the artefact does not exist; the other parameters are those of
    `pmflib_tasks.scoring.score.score`.
    """
    store = open_store(config)
    entry = store.find(dataset.identity)
    assert entry is not None
    unknown: dict[str, Mapping[str, int]] = {}

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        scorer = make_scorer()
        if is_new:
            sources = find_sources(config.source_paths, config.source.suffixes, skip_empty=True)
            known = scorer.schema, scorer.options.targets
            unknown.update(check_dataset(store, dataset, sources, config.source, *known))
        layers, show = list_layers(store, dataset), partial(report_progress, "score")
        with open_workers(config, address) as (client, _):
            n_samples, measures = score_stored(client, layers, scorer, claim_parts(work), show)
        publish_folder(work, folder, n_samples)
        rows = DatasetAccount.from_json(entry.summary)
        targets = list(measures)
        account = ScoreAccount(n_samples, rows, unknown, targets, measures, len(layers))
        return {**account.to_json(), **scorer.facts}

    return build_artefact(
        store,
        "predictions",
        inputs={"dataset": dataset, **inputs},
        options={**options, "new": is_new},
        version=version,
        write=write,
    ).reference


def publish_files(
    config: PipelineConfig,
    make_scorer: Callable[[], TableMaker],
    inputs: Mapping[str, Reference],
    options: Mapping[str, Any],
    version: int,
    columns: tuple[str, ...],
) -> Reference:
    """Publish a table with results for every row of the pipeline's source.

    ``make_scorer`` is called only if the artefact does not exist; the other parameters are those of
    `pmflib_tasks.scoring.score.score_files`.
    """
    store = open_store(config)
    skipped: dict[str, str] = {}
    found = find_sources(
        config.source_paths,
        config.source.suffixes,
        skip_empty=config.source.on_empty_file == "skip",
        skipped=skipped,
    )
    identified = [attempt(each, store.address, build=identify_source) for each in found]
    rule = config.source.on_unreadable_file
    sources = [source for _, source in keep_readable(found, identified, rule, skipped)]
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
        publish_folder(work, folder, account.samples)
        content = {**account.to_json(), **scorer.facts}
        return content | {"files_skipped": {**account.rows.files_skipped, **skipped}}

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
            "rule": rule,
            "policy": config.schema_.model_dump(mode="json", exclude={"file"}),
        },
        version=version,
        write=write,
    ).reference
