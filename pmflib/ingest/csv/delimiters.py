"""Detect the delimiter of CSV files, and split their beginnings at it."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.base.errors import SourceError
from pmflib.ingest.csv.byte_stream import UNIT_SEPARATOR, choose_separator, separate_fields
from pmflib.ingest.options import WHITESPACE

PLAIN = ","
"""Preferred delimiter."""
SEPARATORS = (PLAIN, "\t", ";", "|", "::")
"""Delimiters that rarely occur in texts."""
BLANKS = (" ", WHITESPACE)
"""Delimiters that often occur in texts, which are tried last."""
WORKING_SHARE = 0.9
"""Least share of rows with the same number of fields for a delimiter to be accepted."""
LEAST_SHARE = 0.5
"""The same for a delimiter found by clevercsv if none is accepted."""
SAMPLED_BYTES = 8000
"""Number of characters for clevercsv, whose time is superlinear."""
LEAST_CUT = 2
"""Least number of short rows that are evidence of empty fields cut at the ends of rows."""


@dataclass(frozen=True)
class SplitRows:
    """Rows from the beginning of a file, split at a delimiter.

    Parameters
    ----------
    delimiter
        As in ``source.delimiter``.
    rows
        Fields of each row.
    width
        Most frequent number of fields.
    share
        Share of the rows with this number.
    """

    delimiter: str
    rows: list[list[str]]
    width: int
    share: float

    @property
    def works(self) -> bool:
        """Whether nearly all rows, including the first, have the same number of fields, at least two."""
        return (
            self.width > 1
            and self.share >= WORKING_SHARE
            and (len(self.rows[0]) == self.width or len(self.rows) == 1)
        )


def split_rows(text: str, delimiter: str) -> SplitRows:
    """Split the beginning of a file at a delimiter, skipping blank lines."""
    lines = separate_fields(text.encode("utf-8", "surrogateescape"), delimiter)
    separator = choose_separator(delimiter)
    shown = " " if delimiter == WHITESPACE else delimiter
    file = io.StringIO(lines.decode("utf-8", "surrogateescape"), newline="")
    rows: list[list[str]] = []
    try:
        for row in csv.reader(file, delimiter=separator):
            if row:
                rows.append(
                    [field.replace(UNIT_SEPARATOR, shown) for field in row]
                    if separator == UNIT_SEPARATOR
                    else row
                )
    except csv.Error:
        # an unclosed field: use the rows before it
        pass
    sizes = Counter(map(len, rows))
    width, times = max(sizes.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    if len(sizes) > 1 and are_cut(rows):
        width, times = len(rows[0]), len(rows)
    return SplitRows(delimiter, rows, width, times / max(len(rows), 1))


def are_cut(rows: Sequence[Sequence[str]]) -> bool:
    """Whether no row is longer than the header, and shorter ones have several fields, the last of them not empty."""
    width = len(rows[0])
    return width > LEAST_CUT and all(
        len(row) == width or (1 < len(row) < width and row[-1].strip()) for row in rows
    )


def find_delimiter(name: str, text: str) -> tuple[SplitRows, str]:
    """Detect the delimiter of a file.

    A delimiter is accepted if it splits nearly all rows into the same number of fields. If several or none are
    accepted, clevercsv decides, provided that the rows agree with its result.

    Parameters
    ----------
    name
        Name of the file, for errors.
    text
        Complete lines from its beginning.

    Returns
    -------
    The split rows, and a note for review, "" for an unambiguous comma.

    Raises
    ------
    SourceError
        If the result is ambiguous, with the candidates.
    """
    splits = {delimiter: split_rows(text, delimiter) for delimiter in (*SEPARATORS, ", ")}
    plain, spaced = splits[PLAIN], splits.pop(", ")
    if spaced.works and (not plain.works or spaced.width == plain.width):
        splits[PLAIN] = spaced
    working = [each for each in splits.values() if each.works]
    if not working:
        blanks = [split_rows(text, delimiter) for delimiter in BLANKS]
        # aligned columns have empty fields between single blanks
        working = sorted((each for each in blanks if each.works), key=lambda each: each.width)[:1]
        splits |= {each.delimiter: each for each in blanks}
    if len(working) == 1:
        found = working[0]
        return found, "" if found.delimiter == PLAIN else _describe(found)
    if not any(each.width > 1 for each in splits.values()):
        # a single column
        return plain, ""
    answer = _ask_library(text)
    likely = [each for each in working or splits.values() if each.delimiter.strip(" ") == answer]
    if answer == " ":
        likely = [each for each in working or splits.values() if each.delimiter in BLANKS]
    found = max(likely, key=lambda each: each.share, default=plain)
    if not likely or found.width < 2 or found.share < LEAST_SHARE:
        raise SourceError(_question(name, [each for each in splits.values() if each.width > 1]))
    if len(found.rows[0]) != found.width:
        raise SourceError(
            f"{name}: its first row has {len(found.rows[0])} fields when cut at {found.delimiter!r}, and most others "
            f"have {found.width}; remove what is above the table, or, if it has no header, name its columns in "
            "source.columns (pmf infer: --columns, with --delimiter)"
        )
    others = [repr(each.delimiter) for each in working if each is not found]
    more = f"; {' and '.join(others)} would cut all rows alike as well" if others else ""
    return found, _describe(found) + more


def _describe(found: SplitRows) -> str:
    note = f"delimiter {found.delimiter!r}: cuts {100 * found.share:.3g} % of the first {len(found.rows)} rows into "
    return note + f"{found.width} fields"


def _question(name: str, candidates: list[SplitRows]) -> str:
    candidates.sort(key=lambda each: -each.share)
    listed = ", ".join(
        f"{each.delimiter!r} ({100 * each.share:.0f} % of the first {len(each.rows)} rows have {each.width} fields)"
        for each in candidates
    )
    return (
        f"{name}: it is not clear where its rows are cut: at {listed}? Say which: set source.delimiter "
        "(pmf infer: --delimiter)"
    )


def _ask_library(text: str) -> str | None:
    """Delimiter found by clevercsv; None if it finds none."""
    from clevercsv.detect import Detector
    from clevercsv.exceptions import Error

    part = text[:SAMPLED_BYTES]
    try:
        dialect = Detector().detect(part[: part.rfind("\n") + 1] or part)
    except Error:
        return None
    return None if dialect is None else dialect.delimiter
