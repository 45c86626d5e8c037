"""Class probabilities of a classifier for a stored label log: read from a file, and stored by fold and task.

The stored arrays have a row for each task of a fold, in the order in which folds are labelled, and no names.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.apps.crowd.classifiers import pick_columns, scale_predictions
from pmflib.apps.crowd.stored.label_blocks import join_neighbours, read_task_names, read_tasks
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import SchemaError
from pmflib.base.hashing import HashArray
from pmflib.ingest.dataset.identifiers import as_binary, hash_identifiers, read_identifiers
from pmflib.ingest.dataset.wide import read_texts
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.store.checkpoints import find_out, hand_in
from pmflib.store.file_digests import read_checked
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.sample_blocks import BlockReference

PREDICTIONS = "predictions"
"""Folder of the predictions in the folder of their artefact, with one array per fold."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Class probabilities of tasks by the hashes of their names.

    Parameters
    ----------
    hashes
        uint64 of shape (n_rows,), sorted.
    tasks
        Names.
    shares
        float64 of shape (n_rows, n_classes), rows sum to 1.
    """

    hashes: HashArray
    tasks: pa.Array
    shares: FloatArray

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.hashes.nbytes + int(self.tasks.nbytes) + self.shares.nbytes

    def find(self, names: pa.StringArray) -> FloatArray:
        """Find the class probabilities of tasks, float64 of shape (n_tasks, n_classes), NaN for absent tasks."""
        rows = np.searchsorted(self.hashes, hash_identifiers(as_binary(names)))
        rows = np.minimum(rows, self.hashes.size - 1)
        same = pc.equal(self.tasks.take(pa.array(rows)), names).fill_null(False)
        is_there = same.to_numpy(zero_copy_only=False)
        return np.where(is_there[:, None], self.shares[rows], np.nan)


def read_class_probabilities(
    source: Source, config: SourceOptions, classes: Sequence[str]
) -> Predictions:
    """Read the file of a classifier: one row per task, with the log's column for tasks and one column per class.

    Parameters
    ----------
    source
        The file, Parquet or CSV; other columns are ignored.
    config
        How files of the log are read.
    classes
        Names of the classes of the log.

    Raises
    ------
    SourceError, SchemaError
        If the file cannot be read, lacks a column, has no rows, or has rows that `scale_predictions` rejects.
    """
    assert config.sample is not None
    named = config.model_copy(update={"columns": None})
    columns = pick_columns(read_columns(source, named), config.sample, classes)
    names: list[str | None] = []
    parts = [np.zeros((0, len(classes)))]
    for raw in read_rows(source, named, columns):
        if raw.ragged:
            row, text = raw.ragged[0]
            raise SchemaError(
                f"{source.name}: row {row} has other columns than the header: {text!r}"
            )
        found = read_texts(read_identifiers(raw.batch.column(0)).texts).to_pylist()
        names += [text.strip() if text else None for text in found]
        cells = raw.batch.columns[1:]
        parts.append(np.stack([_read_numbers(source, cell) for cell in cells], axis=1))
    if not names:
        raise SchemaError(f"{source.name}: has no rows; name a file of class probabilities")
    shares = scale_predictions(names, np.concatenate(parts))
    tasks = pa.array(names, pa.string())
    hashes = hash_identifiers(as_binary(tasks.fill_null("")))
    order = np.argsort(hashes, kind="stable")
    return Predictions(hashes[order], tasks.take(pa.array(order)), shares[order])


def _read_numbers(source: Source, column: pa.Array) -> FloatArray:
    """Read the numbers of a column, NaN for missing ones."""
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{source.name}: a class probability is no number ({error})") from error
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def predict_fold(
    part: tuple[Sequence[BlockReference], str], table: Predictions, offsets: IntArray
) -> int:
    """Write the class probabilities of the tasks of a fold, in the order in which they are labelled.

    Parameters
    ----------
    part
        Blocks of the fold, and the file to write.
    table
        Class probabilities.
    offsets
        int64 of shape (n_workers + 1,): levels of the workers in the schema of the log.

    Returns
    -------
    Number of tasks with class probabilities.
    """
    group, out = join_neighbours(part[0]), find_out(part[1])
    _, order = read_tasks(group, offsets)
    found = table.find(read_task_names(group, order))
    np.save(out, found)
    hand_in(out)
    return int((~np.isnan(found[:, 0])).sum())


def name_predictions(folder: str | Path, fold: int) -> str:
    """Return the path of the file of a fold, given a folder or its address."""
    return f"{folder}/part-{fold:05}.npy"


def read_predictions(folder: str, fold: int) -> FloatArray:
    """Read class probabilities written by `predict_fold`, float64 of shape (n_tasks, n_classes)."""
    content = read_checked(find_local_path(name_predictions(folder, fold)))
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
