"""Small runs: those for which starting workers would take longer than it saves."""

from __future__ import annotations

from pathlib import Path

from pmflib.base.errors import SourceError
from pmflib.base.machine import count_processors
from pmflib.base.texts import mask_secrets
from pmflib.cluster.memory import format_bytes
from pmflib.cluster.workers import find_scheduler
from pmflib.ingest.sources import PACKED, Source, find_sources, recall_digest
from pmflib.store.dataset import list_file_steps
from pmflib.store.objects.addresses import is_bucket
from pmflib.store.run_records import find_last_run, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import open_store

SMALL_BYTES = 8 << 20
"""Maximum size of the raw files of a small run, bytes: reading them takes as long as starting workers."""
SEARCH_BYTES, SEARCH_ROWS = 1 << 20, 50_000
"""Maximum size and number of rows of a small run that chooses a rank: workers can share its many fits."""
PACKED_BYTES = 8
"""Assumed ratio of the unpacked to the packed size of a file."""
SMALL_ROWS = 500_000
"""Maximum number of rows of the dataset that a small run extends."""
SMALL_LABELS = 2_000_000
"""Maximum number of labels of the log that a small run extends: all passes take as long as starting two workers."""


def is_small(config: PipelineConfig) -> bool:
    """Whether all stages of a run can work in this thread: no workers are configured, and the data are small."""
    if _has_work_for_workers(config):
        return False
    n_bytes, n_rows = _limit(config)
    sizes = [size for _, size in _list_sizes(config)]
    return sum(sizes) <= n_bytes and _count_stored_rows(config) <= n_rows


def _limit(config: PipelineConfig) -> tuple[int, int]:
    """Return the largest size of files in bytes, and the largest number of stored rows, of a small run."""
    if config.model.rank == "auto":
        return SEARCH_BYTES, SEARCH_ROWS
    return SMALL_BYTES, SMALL_ROWS


def is_small_night(config: PipelineConfig) -> bool:
    """Whether a run of a label log can work in this thread: `is_small`, without files of the last run.

    A label takes much less time than a row of a rating log.
    """
    if _has_work_for_workers(config):
        return False
    store = open_store(config)
    last = find_last_run(store, name_labelling(config.name))
    sizes = _list_sizes(config)
    dataset = None if last is None else last.stages["dataset"]
    entry = None if dataset is None else store.find(dataset.identity)
    if dataset is None or entry is None:
        return sum(size for _, size in sizes) <= SMALL_BYTES
    read = {step.source.digest for step in list_file_steps(store, dataset)}
    new = [size for source, size in sizes if recall_digest(source, store.address) not in read]
    return sum(new) <= SMALL_BYTES and entry.summary.get("rows_encoded", 0) <= SMALL_LABELS


def _has_work_for_workers(config: PipelineConfig) -> bool:
    """Whether workers are configured, or files are remote."""
    cluster, paths = config.cluster, config.source_paths
    configured = bool(cluster.always or cluster.workers or cluster.processes)
    return configured or any("://" in path for path in paths)


def describe_place(config: PipelineConfig, *, alone: bool) -> str:
    """Describe where the stages of a run work.

    Parameters
    ----------
    config
        The pipeline.
    alone
        Whether the run is small: `is_small`.

    Returns
    -------
    Text that follows "in ": the workers, or this thread with the limits of a small run.
    """
    cluster = config.cluster
    if address := find_scheduler(cluster):
        return f"the workers of the Dask scheduler at {mask_secrets(address)}"
    if alone:
        n_bytes, n_rows = _limit(config)
        return (
            f"one thread: at most {format_bytes(n_bytes)} of files and {n_rows:,} stored rows "
            "([cluster] always = true uses Dask workers)"
        )
    n_workers = cluster.workers or count_processors()
    kind = "processes" if cluster.processes else "threads of this process"
    return f"{n_workers} Dask workers, {kind}"


def _list_sizes(config: PipelineConfig) -> list[tuple[Source, int]]:
    """List raw files with their estimated sizes in bytes."""
    try:
        sources = find_sources(tuple(config.source_paths), config.source.suffixes)
    except SourceError:
        # the stage that reads them raises this error
        return []
    return [(s, s.size * (PACKED_BYTES if s.name.lower().endswith(PACKED) else 1)) for s in sources]


def _count_stored_rows(config: PipelineConfig) -> int:
    """Count the rows of the largest dataset of the last runs, of the pipeline and of its label log."""
    root = config.resolve(config.store.path)
    if not is_bucket(root) and not Path(root).is_dir():
        return 0
    store = open_store(config)
    runs = [find_last_run(store, name) for name in (config.name, name_labelling(config.name))]
    entries = [store.find(run.stages["dataset"].identity) for run in runs if run is not None]
    return max((e.summary.get("rows_encoded", 0) for e in entries if e is not None), default=0)
