"""Facts for the examination of a pipeline, gathered at the same time; none of them can hold up the others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from flows.prefect_facts import find_server_facts
from pmflib.config import PipelineConfig
from pmflib.health.cluster_facts import ClusterFacts, find_cluster_facts
from pmflib.health.deadlines import call_together
from pmflib.health.pipeline_checks import HistoryFacts
from pmflib.health.process_facts import ProcessFacts, find_process_facts
from pmflib.health.server_checks import ServerFacts
from pmflib.health.store_probe import FolderFacts, StoreFacts, look_at_folder, look_at_store
from pmflib.health.worker_view import Places, SourceFacts, look_at_sources
from pmflib.ingest.source_urls import mask_secrets
from pmflib.kernels.kernel_facts import KernelFacts, find_kernel_facts
from pmflib.objects.addresses import is_bucket
from pmflib.schema import Schema
from pmflib.store.run_records import list_records
from tasks.stage import load_schema, open_store

SECONDS = 180.0
"""Longest time for all facts together. What asks others has limits of its own, which add up to less."""

Failure: TypeAlias = BaseException
"""What stands in place of a fact that could not be found: the error, or that there was no answer in time."""


@dataclass(frozen=True)
class HealthFacts:
    """What is known of a pipeline and of all that works on it.

    Parameters
    ----------
    client, kernels, scratch
        This process, its kernels, its folder for temporary files.
    schema, history, store, sources
        What the configuration names.
    server
        The Prefect server; None where none is configured.
    cluster
        Scheduler and workers; None where none are named, and a run works here.
    """

    client: ProcessFacts | Failure
    kernels: KernelFacts | Failure
    scratch: FolderFacts | Failure
    schema: Schema | Failure
    history: HistoryFacts
    store: StoreFacts | Failure
    sources: SourceFacts
    server: ServerFacts | None
    cluster: ClusterFacts | None


def gather_facts(
    config: PipelineConfig, config_file: Path, address: str, seconds: float = SECONDS
) -> HealthFacts:
    """Gather what is known of a pipeline.

    Parameters
    ----------
    config, config_file
        The pipeline, and its ``pipeline.toml``.
    address
        Scheduler to ask; empty for none.
    seconds
        Longest time that it may take.
    """
    path, source = config.resolve(config.store.path), config.source
    skip_empty = source.on_empty_file == "skip"
    paths, suffixes = config.source_paths, source.suffixes
    jobs: dict[str, Callable[[], Any]] = {
        "client": find_process_facts,
        "kernels": find_kernel_facts,
        "scratch": partial(look_at_folder, tempfile.gettempdir()),
        "schema": partial(load_schema, config),
        "history": partial(find_history, config),
        "store": partial(look_at_store, path),
        "sources": partial(look_at_sources, paths, suffixes, skip_empty=skip_empty),
        "server": partial(find_server_facts, config_file),
    }
    if address:
        places = Places(path, "", paths, suffixes, skip_empty)
        jobs["cluster"] = partial(find_cluster_facts, address, places)
    found = call_together(jobs, seconds)
    return HealthFacts(**_replace_failures(found, address))


def _replace_failures(found: Mapping[str, Any], address: str) -> dict[str, Any]:
    """Put facts that say what went wrong in the place of errors, where there are such facts."""
    facts = {"cluster": None, **found}
    makers: dict[str, Callable[[str], Any]] = {
        "history": lambda said: HistoryFacts(error=said),
        "sources": lambda said: SourceFacts(0, 0, "", said),
        "server": lambda said: ServerFacts("the server", said),
        "cluster": lambda said: ClusterFacts(address, said),
    }
    for name, make in makers.items():
        if isinstance(facts[name], BaseException):
            facts[name] = make(mask_secrets(str(facts[name]) or type(facts[name]).__name__))
    return facts


def find_history(config: PipelineConfig) -> HistoryFacts:
    """What the store says of the runs of a pipeline; a store that is not there is not made."""
    path = config.resolve(config.store.path)
    if not is_bucket(path) and not Path(path, "manifest").is_dir():
        return HistoryFacts()
    store = open_store(config)
    records = [each for each in list_records(store, config.name) if each.action == "run"]
    if not records:
        return HistoryFacts()
    last, rank = records[-1], None
    if last.live is not None and (entry := store.find(last.live.identity)) is not None:
        rank = entry.summary.get("rank")
    rows: Mapping[str, Any] = last.facts.get("rows") or {}
    return HistoryFacts(
        number=last.number,
        outcome=last.outcome,
        reason=last.reason,
        ended=last.ended,
        is_current=last.config == config.digest,
        live_rank=rank,
        rows_in=int(rows.get("rows_in", 0)),
        rows_quarantined=int(rows.get("rows_quarantined", 0)),
    )
