"""Chunks of raw files: what one task reads, and a batch of raw rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pmflib.core.arrays import IntArray
from pmflib.core.errors import SourceError
from pmflib.core.texts import list_near
from pmflib.ingest.sources import Source

FILE_CHUNK_BYTES = 256 << 20
"""Bytes of plain CSV in a chunk, about: some ten seconds of encoding. Fixed, so that what is written does not depend on
the number of workers."""
FILE_CHUNK_ROWS = 1 << 22
"""Rows after which a chunk of a Parquet file ends, at the end of a row group."""


@dataclass(frozen=True)
class FileChunk:
    """A file, or a part of it that begins and ends with whole rows: what is read from its first row to its last.

    Parameters
    ----------
    source
        The file.
    index
        Index among the chunks of the file, from 0.
    groups
        Row groups of a Parquet file; None for all.
    bytes
        First byte of a part of a CSV file, and the one after its last; None for the whole of a file. The header is in
        no such part.
    first_row
        Number of its first row in the file, from 1.
    n_rows
        Rows that the part must have; None where that was not counted beforehand.
    """

    source: Source
    index: int = 0
    groups: range | None = None
    bytes: tuple[int, int] | None = None
    first_row: int = 1
    n_rows: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.groups is None and self.bytes is None

    @property
    def options(self) -> dict[str, object]:
        """Options of what is made of it, plain JSON types: none for a whole file."""
        if self.groups is not None:
            return {"groups": [self.groups.start, self.groups.stop]}
        return {} if self.bytes is None else {"bytes": list(self.bytes), "row": self.first_row}


def choose_ranges(size: int) -> list[tuple[int, int]]:
    """Choose the byte ranges that a plain CSV file is split into.

    Each has ``FILE_CHUNK_BYTES``, the last half to one and a half.

    Rows that go over the end of a range belong to the chunk in which they begin.

    Parameters
    ----------
    size
        Bytes of the file.

    Returns
    -------
    First byte of each range and the one after its last; one range for a file of less than one and a half chunks.
    """
    n_ranges = max(1, (size + FILE_CHUNK_BYTES // 2) // FILE_CHUNK_BYTES)
    starts = [FILE_CHUNK_BYTES * index for index in range(n_ranges)]
    return list(zip(starts, [*starts[1:], size], strict=True))


def choose_groups(rows: Sequence[int], most_rows: int) -> list[range]:
    """Choose the runs of row groups that a Parquet file is split into.

    Parameters
    ----------
    rows
        Number of rows of each row group.
    most_rows
        Rows after which a run ends.

    Returns
    -------
    Runs of groups, in order; all but the last have at least ``most_rows`` rows, and none for a file without groups.
    """
    runs, first, n_collected = [], 0, 0
    for group, n_rows in enumerate(rows):
        n_collected += n_rows
        if n_collected >= most_rows or group == len(rows) - 1:
            runs.append(range(first, group + 1))
            first, n_collected = group + 1, 0
    return runs


@dataclass(frozen=True)
class RawRows:
    """Rows of a file before anything is encoded.

    Parameters
    ----------
    batch
        The requested columns, in the order given: binary from CSV, as typed from Parquet.
    rows
        int64 of shape (n_rows,): number of each row in the file; 1 is the first row of data, and blank lines are no
        rows.
    ragged
        Number and text of the rows in between that have too few or too many fields, or text after a closing quotation
        mark; their bytes that are not UTF-8 are escaped with a backslash.
    """

    batch: pa.RecordBatch
    rows: IntArray
    ragged: tuple[tuple[int, str], ...] = ()


def find_columns(source: Source, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Index of each requested column in a header.

    Raises
    ------
    SourceError
        If a requested column is absent, or the header has it more than once.
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
                "rename all but one, or, if the first row is data, name the columns in source.columns "
                "(pmf infer: --columns or --no-header)"
            )
    return [indices[name] for name in columns]
