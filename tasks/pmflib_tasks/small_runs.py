"""Which runs are so small that workers would cost more than they save."""

from __future__ import annotations

from pmflib.config import PipelineConfig
from pmflib.core.errors import SourceError
from pmflib.ingest.sources import PACKED, find_sources
from pmflib.store.run_records import find_last_run, name_labelling
from pmflib_tasks.stage import open_store

SMALL_BYTES = 8 << 20
"""Bytes of the raw files of a small run, at most: half a second of reading, of which workers need as much to start."""
PACKED_BYTES = 8
"""Bytes that a byte of a packed file counts for."""
SMALL_ROWS = 500_000
"""Rows of the dataset that a small run builds upon, at most."""


def is_small(config: PipelineConfig) -> bool:
    """Whether all stages of a run can work in this thread: no workers are asked for, and the data are small.

    The choice of a rank fits many models, which workers share: a run that makes it is not small.
    """
    cluster = config.cluster
    if cluster.workers or cluster.processes or config.model.rank == "auto":
        return False
    paths = config.source_paths
    if any("://" in path for path in paths):
        return False
    try:
        sources = find_sources(tuple(paths), config.source.suffixes)
    except SourceError:
        # the stage that reads them says what is wrong
        return False
    n_bytes = sum(
        s.size * (PACKED_BYTES if s.name.lower().endswith(PACKED) else 1) for s in sources
    )
    return n_bytes <= SMALL_BYTES and _count_stored_rows(config) <= SMALL_ROWS


def _count_stored_rows(config: PipelineConfig) -> int:
    """Rows of the largest dataset of the last runs, of the pipeline and of its label log."""
    store = open_store(config)
    runs = [find_last_run(store, name) for name in (config.name, name_labelling(config.name))]
    entries = [store.find(run.stages["dataset"].identity) for run in runs if run is not None]
    return max((e.summary.get("rows_encoded", 0) for e in entries if e is not None), default=0)
