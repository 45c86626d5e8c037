"""Erasure of samples from a pipeline: its dataset and counts are rebuilt without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pmflib.base.errors import StoreError
from pmflib.base.texts import list_some
from pmflib.cluster.workers import share_workers
from pmflib.ingest.sources import find_digest, find_sources
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_sources
from pmflib.store.run_records import find_last_run
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.erasure.certificates import Certificate
from pmflib_tasks.erasure.removal import erase_samples
from pmflib_tasks.features import FEATURES
from pmflib_tasks.small_runs import is_small
from pmflib_tasks.stage import load_schema, open_store
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.order import list_steps
from pmflib_tasks.steps import Stages, Walk


def erase(config: PipelineConfig, identifiers: Sequence[str]) -> Certificate:
    """Erase samples from the store of a pipeline.

    Parameters
    ----------
    config
        The pipeline.
    identifiers
        Identifiers of the samples; without any, an interrupted erasure is finished.

    Returns
    -------
    The certificate.

    Raises
    ------
    ConfigError, StoreError
        As for `pmflib_tasks.erasure.removal.erase_samples`; also if a raw file of the last run is missing or
        changed, or the schema has changed, so that the dataset could not be rebuilt.
    """
    store = open_store(config)
    run = find_last_run(store, config.name)
    stages = {} if run is None else run.stages
    dataset = stages.get("dataset")
    has_data = dataset is not None and store.find(dataset.identity) is not None
    walk = Walk(config, list_steps())
    # nothing is built upon the last run, which holds the samples
    walk.base = {}
    if has_data:
        _check_sources(config, store, dataset)
        counts = store.find(stages["counts"].identity) if "counts" in stages else None
        changed = _find_changed_section(walk, stages)
        if counts is not None and counts.options["schema"] != load_schema(config).digest:
            changed = "the schema"
        if changed:
            raise StoreError(
                f"{changed} of {config.name!r} has changed since the last run, which an erasure repeats; restore it, "
                "or run the pipeline, then erase"
            )

    def rebuild() -> Mapping[str, Reference]:
        if not has_data:
            return {}
        with share_workers(config.cluster, alone=is_small(config)):
            if "counts" in stages:
                walk.reach("counts")
            else:
                walk.stages["dataset"] = ingest(config)
        return walk.stages

    return erase_samples(store, identifiers, config.name, rebuild)


def _find_changed_section(walk: Walk, stages: Stages) -> str:
    """Name the section whose step changed the artefacts of an earlier run and would not today, or the other way."""
    for feature in FEATURES:
        for step in () if feature.steps is None else feature.steps.load():
            if step.original and (step.original in stages) != step.applies(walk):
                return f"section {', '.join(feature.section)}"
    return ""


def _check_sources(config: PipelineConfig, store: Store, dataset: Reference | None) -> None:
    """Refuse an erasure if raw files of the last run are missing or changed."""
    skip_empty = config.source.on_empty_file == "skip"
    sources = find_sources(
        tuple(config.source_paths), config.source.suffixes, skip_empty=skip_empty
    )
    there = {source.name: find_digest(source, store.address) for source in sources}
    lost = [
        file.name for file in list_sources(store, dataset) if there.get(file.name) != file.digest
    ]
    if lost:
        raise StoreError(
            f"raw files of the last run are gone or have changed ({list_some(lost)}), and an erasure reads them again; "
            "put them back, or run the pipeline without them, then erase"
        )
