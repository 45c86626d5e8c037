"""Which runs are so small that workers would cost more than they save."""

from __future__ import annotations

from pmflib.core.errors import SourceError
from pmflib.ingest.sources import PACKED, Source, find_sources, recall_digest
from pmflib.store.dataset import list_file_steps
from pmflib.store.run_records import find_last_run, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import open_store

SMALL_BYTES = 8 << 20
"""Bytes of the raw files of a small run, at most: half a second of reading, of which workers need as much to start."""
PACKED_BYTES = 8
"""Bytes that a byte of a packed file counts for."""
SMALL_ROWS = 500_000
"""Rows of the dataset that a small run builds upon, at most."""
SMALL_LABELS = 2_000_000
"""Labels of the log that a small night adds to, at most: all its passes take as long as two workers need to start."""


def is_small(config: PipelineConfig) -> bool:
    """Whether all stages of a run can work in this thread: no workers are asked for, and the data are small.

    The choice of a rank fits many models, which workers share: a run that makes it is not small.
    """
    if _has_work_for_workers(config) or config.model.rank == "auto":
        return False
    sizes = [size for _, size in _list_sizes(config)]
    return sum(sizes) <= SMALL_BYTES and _count_stored_rows(config) <= SMALL_ROWS


def is_small_night(config: PipelineConfig) -> bool:
    """Whether a run of a label log can: `is_small`, but for files that the last run has read, which it does not open.

    A label costs a small part of what a row of a rating log does.
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
    """Whether workers are asked for, or files lie elsewhere."""
    cluster, paths = config.cluster, config.source_paths
    return bool(cluster.workers or cluster.processes) or any("://" in path for path in paths)


def _list_sizes(config: PipelineConfig) -> list[tuple[Source, int]]:
    """Raw files, and the bytes that each counts for."""
    try:
        sources = find_sources(tuple(config.source_paths), config.source.suffixes)
    except SourceError:
        # the stage that reads them says what is wrong
        return []
    return [(s, s.size * (PACKED_BYTES if s.name.lower().endswith(PACKED) else 1)) for s in sources]


def _count_stored_rows(config: PipelineConfig) -> int:
    """Rows of the largest dataset of the last runs, of the pipeline and of its label log."""
    store = open_store(config)
    runs = [find_last_run(store, name) for name in (config.name, name_labelling(config.name))]
    entries = [store.find(run.stages["dataset"].identity) for run in runs if run is not None]
    return max((e.summary.get("rows_encoded", 0) for e in entries if e is not None), default=0)
