"""Artefacts with something said of every stored sample: scores, or samples that are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.sources import find_sources
from pmflib.model.score_tables import TableMaker
from pmflib.scoring.accounts import ScoreAccount, check_dataset
from pmflib.scoring.outputs import claim_parts, publish_folder
from pmflib.scoring.parts import score_stored
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
    """Publish what is said of every sample of a dataset, made of some inputs with some options.

    What says it is made when it is needed; the other parameters are those of `pmflib_tasks.score.score`.
    """
    store = open_store(config)
    entry = store.find(dataset.identity)
    assert entry is not None
    unknown: dict[str, dict[str, int]] = {}

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        scorer = make_scorer()
        if is_new:
            sources = find_sources(config.source_paths, config.source.suffixes, skip_empty=True)
            known = scorer.model.schema, scorer.options.targets
            unknown.update(check_dataset(store, dataset, sources, config.source, *known))
        layers, show = list_layers(store, dataset), partial(report_progress, "score")
        with open_workers(config, address) as (client, _):
            n_samples, measures = score_stored(client, layers, scorer, claim_parts(work), show)
        publish_folder(work, folder, n_samples * scorer.rows_per_sample)
        rows = DatasetAccount.from_json(entry.summary)
        account = ScoreAccount.of_dataset(rows, n_samples, unknown, measures, len(layers))
        return {**account.to_json(), **scorer.facts}

    return build_artefact(
        store,
        "predictions",
        inputs={"dataset": dataset, **inputs},
        options={**options, "new": is_new},
        version=version,
        write=write,
    ).reference
