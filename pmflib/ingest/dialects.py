"""Finding out where the fields of a CSV file are cut, from its first rows."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass

from pmflib.config.csv_options import WHITESPACE
from pmflib.errors import SourceError
from pmflib.ingest.utf8_stream import CUT, cut_character, cut_lines

PLAIN = ","
"""Delimiter that is preferred where it works."""
SEPARATORS = (PLAIN, "\t", ";", "|", "::")
"""Delimiters that texts seldom hold."""
BLANKS = (" ", WHITESPACE)
"""Delimiters that texts often hold: looked at where none of the others works."""
WORKING_SHARE = 0.9
"""Share of the rows that must have the same number of fields for a delimiter to work."""
LEAST_SHARE = 0.5
"""The same of a delimiter that clevercsv finds although none works."""
JUDGED_BYTES = 8000
"""Characters that clevercsv looks at: its time grows faster than they do."""


@dataclass(frozen=True)
class Cutting:
    """Rows of the beginning of a file, cut at a delimiter.

    Parameters
    ----------
    delimiter
        As in ``source.delimiter``.
    rows
        Fields of each row.
    width
        Most frequent number of fields.
    share
        Share of the rows that have it.
    """

    delimiter: str
    rows: list[list[str]]
    width: int
    share: float

    @property
    def works(self) -> bool:
        """Whether nearly all rows, and the first one, have the same number of fields, more than one."""
        return (
            self.width > 1
            and self.share >= WORKING_SHARE
            and (len(self.rows[0]) == self.width or len(self.rows) == 1)
        )


def cut_text(text: str, delimiter: str) -> Cutting:
    """Cut the beginning of a file at a delimiter; blank lines are no rows."""
    lines = cut_lines(text.encode("utf-8", "surrogateescape"), delimiter)
    cut = cut_character(delimiter)
    shown = " " if delimiter == WHITESPACE else delimiter
    file = io.StringIO(lines.decode("utf-8", "surrogateescape"), newline="")
    rows: list[list[str]] = []
    try:
        for row in csv.reader(file, delimiter=cut):
            if row:
                rows.append([field.replace(CUT, shown) for field in row] if cut == CUT else row)
    except csv.Error:
        # a field without end: the rows before it are what can be judged
        pass
    sizes = Counter(map(len, rows))
    width, times = max(sizes.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    return Cutting(delimiter, rows, width, times / max(len(rows), 1))


def find_delimiter(name: str, text: str) -> tuple[Cutting, str]:
    """Find the delimiter of a file.

    A delimiter works if it cuts nearly all rows into the same number of fields. The comma is taken where it works and
    no other does; where several work, or none, clevercsv is asked, and its answer taken if rows agree with it.

    Parameters
    ----------
    name
        Name of the file, for errors.
    text
        Whole lines of its beginning.

    Returns
    -------
    The rows as they are cut, and a note for the reviewer, empty where the comma is taken without doubt.

    Raises
    ------
    SourceError
        If it is not clear: the error names the delimiters that may be meant.
    """
    cuttings = {delimiter: cut_text(text, delimiter) for delimiter in (*SEPARATORS, ", ")}
    plain, spaced = cuttings[PLAIN], cuttings.pop(", ")
    if spaced.works and (not plain.works or spaced.width == plain.width):
        cuttings[PLAIN] = spaced
    working = [each for each in cuttings.values() if each.works]
    if not working:
        blanks = [cut_text(text, delimiter) for delimiter in BLANKS]
        # columns that are aligned are as many fields of nothing between single blanks
        working = sorted((each for each in blanks if each.works), key=lambda each: each.width)[:1]
        cuttings |= {each.delimiter: each for each in blanks}
    if len(working) == 1:
        found = working[0]
        return found, "" if found.delimiter == PLAIN else _describe(found)
    if not any(each.width > 1 for each in cuttings.values()):
        # one column: there is nothing to cut
        return plain, ""
    answer = _ask_library(text)
    likely = [each for each in working or cuttings.values() if each.delimiter.strip(" ") == answer]
    if answer == " ":
        likely = [each for each in working or cuttings.values() if each.delimiter in BLANKS]
    found = max(likely, key=lambda each: each.share, default=plain)
    if not likely or found.width < 2 or found.share < LEAST_SHARE:
        raise SourceError(_question(name, [each for each in cuttings.values() if each.width > 1]))
    if len(found.rows[0]) != found.width:
        raise SourceError(
            f"{name}: its first row has {len(found.rows[0])} fields when cut at {found.delimiter!r}, and most others "
            f"have {found.width}; remove what is above the table, or, if it has no header, name its columns in "
            "source.columns (pmf infer: --columns, with --delimiter)"
        )
    others = [repr(each.delimiter) for each in working if each is not found]
    more = f"; {' and '.join(others)} would cut all rows alike as well" if others else ""
    return found, _describe(found) + more


def _describe(found: Cutting) -> str:
    note = f"delimiter {found.delimiter!r}: cuts {100 * found.share:.3g} % of the first {len(found.rows)} rows into "
    return note + f"{found.width} fields"


def _question(name: str, candidates: list[Cutting]) -> str:
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
    """Delimiter that clevercsv finds; None where it finds none, or cannot read the text."""
    from clevercsv.detect import Detector
    from clevercsv.exceptions import Error

    part = text[:JUDGED_BYTES]
    try:
        dialect = Detector().detect(part[: part.rfind("\n") + 1] or part)
    except Error:
        return None
    return None if dialect is None else dialect.delimiter
