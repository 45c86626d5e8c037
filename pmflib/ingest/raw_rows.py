"""A batch of raw rows, and the places of columns in a header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pmflib.arrays import IntArray
from pmflib.errors import SourceError
from pmflib.ingest.sources import Source
from pmflib.near_names import list_near


@dataclass(frozen=True)
class RawRows:
    """Rows of a file before anything is encoded.

    Parameters
    ----------
    batch
        The wanted columns, in the order given: binary from CSV, as typed from Parquet.
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
    """Place of each wanted column in a header.

    Raises
    ------
    SourceError
        If a wanted column is absent, or the header has it more than once.
    """
    times = Counter(header)
    places = {name: place for place, name in enumerate(header)}
    for name in columns:
        if name not in places:
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
    return [places[name] for name in columns]
