"""Rejected rows of a dataset: each step keeps its own, and a reader joins them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.errors import StoreError
from pmflib.ingest.identifiers import read_sample_hashes
from pmflib.ingest.quarantine import (
    QUARANTINE,
    QUARANTINE_HASHES,
    QUARANTINE_SCHEMA,
    ROW_GROUP,
)
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import Layer, list_file_steps, list_layers
from pmflib.store.file_digests import check_file, read_checked
from pmflib.store.mirrors import find_place
from pmflib.table_files import write_file


def export_quarantine(store: Store, dataset: Reference, out: Path) -> int:
    """Write all rejected rows of a dataset into one file, CSV or Parquet by its suffix: file by file, then duplicates.

    Parameters
    ----------
    store, dataset
        The dataset.
    out
        The file; one that exists is replaced.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is neither .csv nor .parquet.
    StoreError
        If a part of the dataset is not in the store, or damaged.
    """
    return write_file(out, QUARANTINE_SCHEMA, read_quarantine(store, dataset))


def read_quarantine(store: Store, dataset: Reference) -> Iterator[pa.RecordBatch]:
    """Rejected rows of a dataset, in batches of ``QUARANTINE_SCHEMA``: see `export_quarantine`."""
    steps = list_file_steps(store, dataset)
    for step in steps:
        yield from read_part(store.locate(step.step) / QUARANTINE, None)
    # partitions of files were listed with their files
    done = {step.step.identity for step in steps}
    for layer in list_layers(store, dataset):
        if layer.partition.identity not in done:
            yield from read_part(store.locate(layer.partition) / QUARANTINE, layer)


def read_part(path: Path, layer: Layer | None) -> Iterator[pa.RecordBatch]:
    """Read the quarantine of one step, but rows of the samples that are superseded in the layer that it made.

    Raises
    ------
    StoreError
        If it is damaged.
    """
    start = 0
    try:
        check_file(path)
        file = pq.ParquetFile(path)
        kept = None
        if layer is not None and layer.superseded.size and file.metadata.num_rows:
            hashes = np.load(
                io.BytesIO(read_checked(path.with_name(QUARANTINE_HASHES))), allow_pickle=False
            )
            gone = read_sample_hashes(find_place(layer.path))[layer.superseded]
            kept = ~np.isin(hashes, gone)
        for batch in file.iter_batches(ROW_GROUP, use_threads=False):
            stop = start + batch.num_rows
            yield batch if kept is None else batch.filter(pa.array(kept[start:stop]))
            start = stop
    except StoreError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"quarantine of {path.parent.name!r} cannot be read ({error}); run the pipeline again"
        ) from error
