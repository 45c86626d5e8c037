"""Workers and labels of a file: the schema of a label log, in memory that does not grow with the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pmflib.config import SourceConfig
from pmflib.errors import SchemaError
from pmflib.ingest.fingerprints import find_digest
from pmflib.ingest.readers import read_rows
from pmflib.ingest.schema_draft import MAX_VARIABLES
from pmflib.ingest.sources import Source
from pmflib.json_files import parse_json
from pmflib.schema import Schema, Variable
from pmflib.schema.level_order import natural_key
from pmflib.schema.variable import as_text
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.file_digests import read_checked

VERSION = 1
"""Version of the artefact: raised when its content changes."""
CENSUS = "census.json"
"""File of a census in the folder of its artefact."""
MAX_CLASSES = 1000
"""Most distinct labels: with more it is not the label column."""


@dataclass(frozen=True)
class Census:
    """Names in a file.

    Parameters
    ----------
    workers, labels
        Distinct texts, in natural order ("2" before "10").
    """

    workers: tuple[str, ...]
    labels: tuple[str, ...]

    @staticmethod
    def merge(parts: Iterable[Census]) -> Census:
        """Names in any of the files."""
        workers: set[str] = set()
        labels: set[str] = set()
        for part in parts:
            workers.update(part.workers)
            labels.update(part.labels)
        return Census(_sort(workers), _sort(labels))

    def save(self, path: Path) -> None:
        """Write the names as JSON."""
        path.write_text(json.dumps(asdict(self), ensure_ascii=False), "utf-8")

    @staticmethod
    def load(path: Path) -> Census:
        """Read what `save` wrote."""
        content = parse_json(read_checked(path))
        return Census(tuple(content["workers"]), tuple(content["labels"]))


def take_census(source: Source, config: SourceConfig) -> Census:
    """List the workers and labels of one file.

    Parameters
    ----------
    source
        The file.
    config
        Laid out long: ``variable`` is the worker's column, ``value`` the label's.

    Raises
    ------
    SourceError
        If the file cannot be read, or lacks a column.
    SchemaError
        If a column has too many distinct values to be what it should be.
    """
    assert config.variable is not None
    assert config.value is not None
    workers: set[str] = set()
    labels: set[str] = set()
    columns = list(dict.fromkeys([config.variable, config.value]))
    for raw in read_rows(source, config, columns):
        workers.update(_distinct(raw.batch.column(config.variable)))
        labels.update(_distinct(raw.batch.column(config.value)))
        for column, found, most in (
            (config.variable, workers, MAX_VARIABLES),
            (config.value, labels, MAX_CLASSES),
        ):
            if len(found) > most:
                raise SchemaError(
                    f"{source.name}: column {column!r} has more than {most} distinct values; check which columns hold "
                    "the worker and the label"
                )
    missing = {text.strip() for text in config.missing}
    return Census(_sort(workers - {""}), _sort(labels - missing))


def build_census(source: Source, config: SourceConfig, root: str) -> Entry:
    """Build the census of one file as an artefact; a file whose census is in the store is not read again.

    Parameters
    ----------
    source, config
        As for `take_census`.
    root
        Folder of the store.
    """
    store = Store(root)
    source = replace(source, digest=find_digest(source, root))
    raw = store.record_source(source.name, source.digest, {"bytes": source.size}).reference

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        census = take_census(source, config)
        census.save(folder / CENSUS)
        return {"workers": len(census.workers), "labels": len(census.labels)}

    return store.build(
        "census",
        inputs={"source": raw},
        options={
            "name": source.name,
            "source": {**config.reading, "missing": list(config.missing)},
        },
        version=VERSION,
        write=write,
    )


def load_census(store: Store, censuses: Iterable[Reference]) -> Census:
    """Read the censuses of several files, and join them."""
    return Census.merge(Census.load(store.locate(census) / CENSUS) for census in censuses)


def make_label_schema(
    census: Census, config: SourceConfig, classes: Sequence[str] | None = None
) -> Schema:
    """Schema of a label log: a variable for each worker, whose levels are the classes.

    Parameters
    ----------
    census
        Censuses of all files.
    config
        Names the texts that mean "not given".
    classes
        Labels that there are; None takes all that were given.

    Raises
    ------
    SchemaError
        If there is no worker or no label.
    """
    levels = tuple(classes) if classes is not None else census.labels
    if not census.workers or not levels:
        raise SchemaError(
            f"{len(census.workers)} workers and {len(levels)} labels were found; check the names of the columns"
        )
    return Schema(tuple(Variable(name, levels, missing=config.missing) for name in census.workers))


def check_label_schema(schema: Schema) -> Schema:
    """Check that a schema is one of a label log, and return it.

    Raises
    ------
    SchemaError
        If the workers' labels are not the same for all.
    """
    if any(variable.levels != schema[0].levels for variable in schema):
        raise SchemaError("the workers have different labels; let `pmf crowd` write the schema")
    return schema


def narrow_schema(schema: Schema, census: Census, config: SourceConfig) -> Schema:
    """Schema of one file of a label log: its own workers and labels, in their own order, whoever else there is.

    What is encoded with it stays as it is when workers come in with other files.

    Parameters
    ----------
    schema
        From `make_label_schema`, of all files.
    census
        Census of this file.
    config
        As for `make_label_schema`.

    Returns
    -------
    A part of the schema, or all of it where the file has no worker or none of the labels.
    """
    levels = schema[0].levels
    codes = {schema[0].encode_value(label) for label in census.labels}
    labels = _sort({levels[code] for code in codes if code >= 0})
    workers = tuple(name for name in census.workers if name in schema)
    if not workers or not labels:
        return schema
    return make_label_schema(Census(workers, labels), config)


def _distinct(column: pa.Array) -> set[str]:
    """Texts of a column; what is not UTF-8 is for the quarantine."""
    texts = set()
    for value in pc.unique(column).to_pylist():
        if value is None:
            continue
        try:
            text = value.decode("utf-8") if isinstance(value, bytes) else as_text(value)
        except UnicodeDecodeError:
            continue
        texts.add(text.strip())
    return texts


def _sort(texts: set[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=lambda text: (natural_key(text), text)))
