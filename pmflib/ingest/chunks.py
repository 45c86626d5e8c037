"""Chunks of raw files, one per task, and batches of raw rows."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from pmflib.base.arrays import IntArray
from pmflib.base.errors import PmfError, SourceError
from pmflib.base.texts import list_near
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import Source

T = TypeVar("T")

FILE_CHUNK_BYTES = 256 << 20
"""Approximate size of a chunk of plain CSV, bytes: about ten seconds of encoding. It is fixed, so that results do not
depend on the number of workers."""
FILE_CHUNK_ROWS = 1 << 22
"""Number of rows after which a chunk of a Parquet file ends with its row group."""


@dataclass(frozen=True)
class FileChunk:
    """A file, or a part of it that consists of whole rows.

    Parameters
    ----------
    source
        The file.
    index
        Index of the chunk in the file, from 0.
    groups
        Row groups of a Parquet file; None for all.
    bytes
        Byte range of a part of a CSV file, without the header; None for the whole file.
    first_row
        Number of its first row in the file, from 1.
    n_rows
        Expected number of rows; None if unknown.
    """

    source: Source
    index: int = 0
    groups: range | None = None
    bytes: tuple[int, int] | None = None
    first_row: int = 1
    n_rows: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the chunk is the whole file."""
        return self.groups is None and self.bytes is None

    @property
    def options(self) -> dict[str, object]:
        """Options of artefacts made from the chunk, plain JSON types; empty for a whole file."""
        if self.groups is not None:
            return {"groups": [self.groups.start, self.groups.stop]}
        return {} if self.bytes is None else {"bytes": list(self.bytes), "row": self.first_row}


def choose_ranges(size: int) -> list[tuple[int, int]]:
    """Choose the byte ranges into which a plain CSV file is split.

    Each range has ``FILE_CHUNK_BYTES``, the last one 0.5 to 1.5 times as many. A row that crosses the end of a range
    belongs to the chunk in which it begins.

    Parameters
    ----------
    size
        Size of the file, bytes.

    Returns
    -------
    Ranges [start, stop); a file of less than 1.5 chunks has one.
    """
    n_ranges = max(1, (size + FILE_CHUNK_BYTES // 2) // FILE_CHUNK_BYTES)
    starts = [FILE_CHUNK_BYTES * index for index in range(n_ranges)]
    return list(zip(starts, [*starts[1:], size], strict=True))


def choose_groups(rows: Sequence[int], most_rows: int) -> list[range]:
    """Choose the runs of row groups into which a Parquet file is split.

    Parameters
    ----------
    rows
        Number of rows of each row group.
    most_rows
        Rows after which a run ends.

    Returns
    -------
    Runs of groups in order, of at least ``most_rows`` rows except the last; empty for a file without groups.
    """
    runs, first, n_collected = [], 0, 0
    for group, n_rows in enumerate(rows):
        n_collected += n_rows
        if n_collected >= most_rows or group == len(rows) - 1:
            runs.append(range(first, group + 1))
            first, n_collected = group + 1, 0
    return runs


def group_results(
    files: Iterable[Sequence[object]], results: Iterable[T | PmfError]
) -> list[list[T] | PmfError]:
    """Group the results of chunks by file; a file of which chunks cannot be used gives the error of the first one.

    Parameters
    ----------
    files
        Chunks of each file.
    results
        Result of `pmflib.ingest.sources.attempt` for each chunk of all files, in order.
    """
    rest, grouped = iter(results), list[list[T] | PmfError]()
    for chunks in files:
        mine = [next(rest) for _ in chunks]
        errors = [each for each in mine if isinstance(each, PmfError)]
        good = [each for each in mine if not isinstance(each, PmfError)]
        grouped.append(errors[0] if errors else good)
    return grouped


@dataclass(frozen=True)
class RawRows:
    """Batch of rows of a file, before encoding.

    Parameters
    ----------
    batch
        The requested columns in order: binary from CSV, with their own types from Parquet.
    rows
        Number of each row in the file, int64 of shape (n_rows,), from 1 for the first row of data; blank lines do not
        count.
    ragged
        Number and text of rows with too few or too many fields, or with text after a closing quotation mark;
        undecodable bytes are escaped with a backslash.
    """

    batch: pa.RecordBatch
    rows: IntArray
    ragged: tuple[tuple[int, str], ...] = ()


FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".sav": "sav",
    ".zsav": "sav",
    ".dta": "dta",
    ".sas7bdat": "sas7bdat",
    ".por": "por",
    ".xpt": "xpt",
}
"""Formats by suffix; files of other names are CSV."""


def find_format(source: Source, config: SourceOptions) -> str:
    """Format in which a file is read, by the configuration or by its name."""
    if config.format != "auto":
        return config.format
    return FORMATS.get(posixpath.splitext(source.name.lower())[1], "csv")


def is_text(source: Source, config: SourceOptions) -> bool:
    """Whether a file is read as CSV, so that names, encoding and delimiter of its columns are in question."""
    return find_format(source, config) == "csv"


def is_parquet(source: Source, config: SourceOptions) -> bool:
    """Whether a file is read as Parquet."""
    return find_format(source, config) == "parquet"


def find_columns(source: Source, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Index of each requested column in a header.

    Raises
    ------
    SourceError
        If a requested column is missing or occurs more than once.
    """
    times = Counter(header)
    indices = {name: index for index, name in enumerate(header)}
    for name in columns:
        if name not in indices:
            close = list_near(name, header)
            hint = f"; did you mean {close}?" if close else "."
            shown = list(header[:12]) + (["..."] if len(header) > 12 else [])
            raise SourceError(
                f"{source.name}: no column {name!r}; its {len(header)} columns are {shown}{hint} "
                "If the first row is data, name the columns in source.columns (pmf infer: --columns or "
                "--no-header); if they are one column, set source.delimiter"
            )
        if times[name] > 1:
            raise SourceError(
                f"{source.name}: column {name!r} occurs {times[name]} times in the header; "
                "rename all but one, or set source.repeated_columns = 'number'; if a second row goes on with the "
                "names, set source.header_rows (pmf infer: --header-rows 2); if the first row is data, name the "
                "columns in source.columns (--columns or --no-header)"
            )
    return [indices[name] for name in columns]
