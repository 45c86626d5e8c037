"""Names of workers and labels in label logs, and the schemas made of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.apps.crowd.class_names import (
    MOST_CLASSES,
    make_class_variable,
    refuse_abstention,
    sort_names,
    unify_classes,
)
from pmflib.base.errors import SchemaError
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import JsonRecord
from pmflib.ingest.column_values import MAX_VARIABLES
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_rows
from pmflib.ingest.sources import Source, identify_source
from pmflib.schema import Schema
from pmflib.schema.variable import as_text
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.file_digests import read_checked

VERSION = 2
"""Version of the artefact; increase it when its content changes."""
NAMES_FILE = "census.json"
"""File of names in an artefact of kind "census"; both names are part of the store format."""


@dataclass(frozen=True)
class LogNames(JsonRecord):
    """Names in a label log.

    Parameters
    ----------
    workers, labels
        Distinct names in natural order ("2" before "10").
    times
        How often each label occurs; empty if it is unknown.
    """

    workers: tuple[str, ...]
    labels: tuple[str, ...]
    times: tuple[int, ...] = ()

    @staticmethod
    def merge(parts: Iterable[LogNames]) -> LogNames:
        """Names in any of several logs."""
        workers: set[str] = set()
        labels = Counter[str]()
        for part in parts:
            workers.update(part.workers)
            labels.update(part.count_labels())
        return LogNames.of_counts(workers, labels)

    @staticmethod
    def of_counts(workers: Iterable[str], labels: Mapping[str, int]) -> LogNames:
        """Names of workers, and of labels with their counts."""
        names = sort_names(labels)
        return LogNames(sort_names(workers), names, tuple(labels[name] for name in names))

    def count_labels(self) -> dict[str, int]:
        """How often each label occurs, once where it is unknown."""
        return dict(zip(self.labels, self.times or [1] * len(self.labels), strict=True))

    def save(self, path: Path) -> None:
        """Write the names as JSON."""
        path.write_text(json.dumps(self.to_json(), ensure_ascii=False), "utf-8")

    @staticmethod
    def load(path: Path) -> LogNames:
        """Read names written by `save`."""
        return LogNames.from_json(parse_json(read_checked(path)))


def find_log_names(
    source: Source, config: SourceOptions, erased: ErasedSamples | None = None
) -> LogNames:
    """List the workers and labels of one file.

    Parameters
    ----------
    source
        The file.
    config
        Options of layout "long": ``variable`` is the column of workers, ``value`` that of labels.
    erased
        Workers to leave out; None if there are none.

    Raises
    ------
    SourceError
        If the file cannot be read, or lacks a column.
    SchemaError
        If a column has too many distinct values for workers or labels.
    """
    assert config.variable is not None
    assert config.value is not None
    workers: set[str] = set()
    labels = Counter[str]()
    columns = list(dict.fromkeys([config.variable, config.value]))
    for raw in read_rows(source, config, columns):
        workers.update(_distinct(raw.batch.column(config.variable)))
        labels.update(_distinct(raw.batch.column(config.value)))
        for column, n_found, most in (
            (config.variable, len(workers), MAX_VARIABLES),
            (config.value, len(labels), MOST_CLASSES),
        ):
            if n_found > most:
                raise SchemaError(
                    f"{source.name}: column {column!r} has more than {most} distinct values; check which columns hold "
                    "the worker and the label"
                )
    if erased is not None:
        names = sorted(workers)
        workers -= {names[row] for row in np.flatnonzero(erased.find_texts(names)).tolist()}
    for text in config.missing:
        labels.pop(text.strip(), None)
    return LogNames.of_counts(workers - {""}, labels)


def build_log_names(source: Source, config: SourceOptions, root: str) -> Entry:
    """Build the artefact of the names in one file; the file is not read again if the store has it.

    Parameters
    ----------
    source, config
        As for `find_log_names`.
    root
        Folder of the store.
    """
    store = Store(root)
    source = identify_source(source, root)
    raw = store.record_source(source.name, source.digest, {"bytes": source.size}).reference
    erased = ErasedSamples.of_store(store, "workers")

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        names = find_log_names(source, config, erased)
        names.save(folder / NAMES_FILE)
        return {"workers": len(names.workers), "labels": len(names.labels)}

    return store.build(
        "census",
        inputs={"source": raw},
        options={
            "name": source.name,
            "source": {**config.reading, "missing": list(config.missing)},
            **({} if erased is None else {"erasures": erased.digest}),
        },
        version=VERSION,
        write=write,
    )


def load_log_names(store: Store, parts: Iterable[Reference]) -> LogNames:
    """Read and join the names in several files."""
    return LogNames.merge(LogNames.load(store.locate(names) / NAMES_FILE) for names in parts)


@dataclass(frozen=True)
class FileNames:
    """Names in each file of a label log, which is encoded with its own workers and labels only.

    Parameters
    ----------
    by_digest
        Artefacts of the names, by the digest of the file.
    """

    by_digest: Mapping[str, Reference]

    def find(
        self, store: Store, digest: str, schema: Schema, config: SourceOptions
    ) -> tuple[Schema, Mapping[str, Reference]] | None:
        """Return the schema of a file, and the artefact of its names; None for a file without any."""
        reference = self.by_digest.get(digest)
        if reference is None:
            return None
        names = LogNames.load(store.locate(reference) / NAMES_FILE)
        return narrow_schema(schema, names, config), {"census": reference}


def make_label_schema(
    names: LogNames, config: SourceOptions, classes: Sequence[str] | None = None
) -> Schema:
    """Make the schema of a label log: a variable per worker, whose levels are the classes.

    Parameters
    ----------
    names
        Names in all files.
    config
        Options with the missing codes.
    classes
        Classes; None for all labels found.

    Raises
    ------
    SchemaError
        If there is no worker or no label, labels may be abstentions, or a weight column is set.

    Warns
    -----
    SchemaWarning
        If labels that differ only in case, blanks or Unicode composition are merged, or there are hundreds of classes.
    """
    if config.weight is not None:
        raise SchemaError(
            f"source.weight is {config.weight!r}, but tasks of a label log have no weights; remove it"
        )
    if classes is None:
        refuse_abstention(names.labels)
    levels = tuple(classes or unify_classes(names.labels, names.count_labels()))
    if not names.workers or not levels:
        raise SchemaError(
            f"{len(names.workers)} workers and {len(levels)} labels were found; check the names of the columns"
        )
    return Schema(
        tuple(make_class_variable(name, levels, config.missing) for name in names.workers)
    )


def check_label_schema(schema: Schema) -> Schema:
    """Check that a schema is that of a label log, and return it.

    Raises
    ------
    SchemaError
        If not all workers have the same labels.
    """
    if any(variable.levels != schema[0].levels for variable in schema):
        raise SchemaError("the workers have different labels; let `pmf crowd` write the schema")
    return schema


def narrow_schema(schema: Schema, names: LogNames, config: SourceOptions) -> Schema:
    """Make the schema of one file of a label log, with only its own workers and labels.

    Encoded files therefore do not change when other files add workers.

    Parameters
    ----------
    schema
        Schema of all files, from `make_label_schema`.
    names
        Names in this file.
    config
        As for `make_label_schema`.

    Returns
    -------
    Part of the schema; all of it if the file has no workers or no labels.
    """
    levels = schema[0].levels
    codes = {schema[0].encode_value(label) for label in names.labels}
    labels = sort_names({levels[code] for code in codes if code >= 0})
    workers = tuple(name for name in names.workers if name in schema)
    if not workers or not labels:
        return schema
    return make_label_schema(LogNames(workers, labels), config, labels)


def _distinct(column: pa.Array) -> Counter[str]:
    """Counts of the distinct texts of a column, except undecodable ones."""
    texts = Counter[str]()
    counted = pc.value_counts(column)
    for value, count in zip(
        counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True
    ):
        if value is None:
            continue
        try:
            text = value.decode("utf-8") if isinstance(value, bytes) else as_text(value)
        except UnicodeDecodeError:
            continue
        texts[text.strip()] += count
    return texts
