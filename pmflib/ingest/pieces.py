"""Pieces of large files: what one task reads. Where a file is cut depends on the file alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pmflib.ingest.sources import Source

PIECE_BYTES = 256 << 20
"""Bytes of plain CSV in a piece, about: some ten seconds of encoding. Fixed, so that what is written does not depend on
the number of workers."""
PIECE_ROWS = 1 << 22
"""Rows after which a piece of a Parquet file ends, at the end of a row group."""


@dataclass(frozen=True)
class Piece:
    """A file, or a part of it that begins and ends with whole rows: what is read from its first row to its last.

    Parameters
    ----------
    source
        The file.
    place
        Place among the pieces of the file, from 0.
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
    place: int = 0
    groups: range | None = None
    bytes: tuple[int, int] | None = None
    first_row: int = 1
    n_rows: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.groups is None and self.bytes is None

    @property
    def options(self) -> dict[str, Any]:
        """Options of what is made of it, plain JSON types: none for a whole file."""
        if self.groups is not None:
            return {"groups": [self.groups.start, self.groups.stop]}
        return {} if self.bytes is None else {"bytes": list(self.bytes), "row": self.first_row}


def choose_ranges(size: int) -> list[tuple[int, int]]:
    """Choose the byte ranges that a plain CSV file is cut to: ``PIECE_BYTES`` each, the last half to one and a half.

    Rows that go over the end of a range belong to the piece in which they begin.

    Parameters
    ----------
    size
        Bytes of the file.

    Returns
    -------
    First byte of each range and the one after its last; one range for a file of less than one and a half pieces.
    """
    n_ranges = max(1, (size + PIECE_BYTES // 2) // PIECE_BYTES)
    starts = [PIECE_BYTES * place for place in range(n_ranges)]
    return list(zip(starts, [*starts[1:], size], strict=True))


def choose_groups(rows: Sequence[int], most_rows: int) -> list[range]:
    """Choose the runs of row groups that a Parquet file is cut to.

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
    runs, first, taken = [], 0, 0
    for group, n_rows in enumerate(rows):
        taken += n_rows
        if taken >= most_rows or group == len(rows) - 1:
            runs.append(range(first, group + 1))
            first, taken = group + 1, 0
    return runs
