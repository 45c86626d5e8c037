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
from pmflib_tasks.margins.rake import rake
from pmflib_tasks.margins.section import MarginsConfig
from pmflib_tasks.small_runs import is_small
from pmflib_tasks.stage import load_schema, open_store
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest


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
    if has_data:
        _check_sources(config, store, dataset)
        counts = store.find(stages["counts"].identity) if "counts" in stages else None
        changed = ("encoded" in stages) != config.section(
            MarginsConfig
        ).are_known and "section margins"
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
            made = {"dataset": ingest(config)}
            if "counts" in stages:
                if "encoded" in stages:
                    made["encoded"] = made["dataset"]
                    made["dataset"] = rake(config, made["encoded"])
                made["counts"] = count(config, made["dataset"])
        return made

    return erase_samples(store, identifiers, config.name, rebuild)


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
