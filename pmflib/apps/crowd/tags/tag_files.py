"""Read a log of tags from files, and write the result into a folder, without a store."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from pmflib.apps.crowd.tags.tag_log import TagLog, read_tags
from pmflib.apps.crowd.tags.tags import TagAggregation
from pmflib.base.errors import SourceError
from pmflib.ingest.dataset.wide import read_texts
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_rows
from pmflib.ingest.sources import Source
from pmflib.store.table_files import hold_output, write_file

TAGS = "tags.parquet"
"""Table of the tasks with their tags."""
WORKERS = "workers.parquet"
"""Table of the workers, in the same folder."""
REJECTED = "quarantine.parquet"
"""Table of the quarantined rows, with reasons; may be empty."""
MODEL = "model"
"""Joint PMF of the tags, for `pmflib.JointPMF.load`."""


def read_tag_files(
    sources: Sequence[Source],
    config: SourceOptions,
    tags: Sequence[str] | None,
    split: str | None = None,
) -> TagLog:
    """Read a log of tags from files, in memory.

    Parameters
    ----------
    sources
        The files.
    config
        How files are read, including the columns of the task, the worker and the tag.
    tags
        All possible tags; None uses all tags in the files.
    split
        Sign between several tags in a cell, if there may be several.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read.
    """
    columns = [config.sample, config.variable, config.value]
    parts: list[list[pa.Array]] = [[], [], []]
    for source in sources:
        for raw in read_rows(source, config, [name for name in columns if name is not None]):
            if raw.ragged:
                row, text = raw.ragged[0]
                raise SourceError(
                    f"{source.name}: row {row} has other columns than the header: {text!r}; correct it"
                )
            for part, column in zip(parts, raw.batch.columns, strict=True):
                part.append(read_texts(column).cast(pa.string()))
    names = ("task", "worker", "label")
    table = pa.table(
        {name: pa.chunked_array(part, pa.string()) for name, part in zip(names, parts, strict=True)}
    )
    return read_tags(table, tags=tags, split=split)


def write_tags(found: TagAggregation, folder: Path) -> None:
    """Write tags, workers, quarantined rows and the joint PMF to a folder, replacing earlier results.

    Raises
    ------
    ConfigError
        If another process is writing to the folder.
    """
    with hold_output(folder):
        rejected = found.log.quarantine
        for name, table in ((TAGS, found.labels), (WORKERS, found.workers), (REJECTED, rejected)):
            write_file(folder / name, table.schema, [table])
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        found.model.save(folder / MODEL)
