"""Finding out where the fields of a CSV file end, whether it has a header, how decimals are written."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pmflib.core.errors import SourceError
from pmflib.ingest.csv.byte_stream import UNIT_SEPARATOR, choose_separator, separate_fields
from pmflib.ingest.csv.rows import DECIMAL_COMMA
from pmflib.ingest.options import WHITESPACE, SourceOptions
from pmflib.schema.variable import read_number

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
SAMPLED_BYTES = 8000
"""Characters that clevercsv looks at: its time grows faster than they do."""


@dataclass(frozen=True)
class SplitRows:
    """Rows of the beginning of a file, split at a delimiter.

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


def split_rows(text: str, delimiter: str) -> SplitRows:
    """Split the beginning of a file at a delimiter; blank lines are no rows."""
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
        # a field without end: the rows before it are what can be compared
        pass
    sizes = Counter(map(len, rows))
    width, times = max(sizes.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    return SplitRows(delimiter, rows, width, times / max(len(rows), 1))


def find_delimiter(name: str, text: str) -> tuple[SplitRows, str]:
    """Find the delimiter of a file.

    A delimiter works if it splits nearly all rows into the same number of fields. The comma is chosen where it works
    and no other does; where several work, or none, clevercsv is asked, and its answer used if rows agree with it.

    Parameters
    ----------
    name
        Name of the file, for errors.
    text
        Whole lines of its beginning.

    Returns
    -------
    The rows as they are split, and a note for the reviewer, empty where the comma is chosen without doubt.

    Raises
    ------
    SourceError
        If it is not clear: the error names the delimiters that may be meant.
    """
    splits = {delimiter: split_rows(text, delimiter) for delimiter in (*SEPARATORS, ", ")}
    plain, spaced = splits[PLAIN], splits.pop(", ")
    if spaced.works and (not plain.works or spaced.width == plain.width):
        splits[PLAIN] = spaced
    working = [each for each in splits.values() if each.works]
    if not working:
        blanks = [split_rows(text, delimiter) for delimiter in BLANKS]
        # columns that are aligned are as many fields of nothing between single blanks
        working = sorted((each for each in blanks if each.works), key=lambda each: each.width)[:1]
        splits |= {each.delimiter: each for each in blanks}
    if len(working) == 1:
        found = working[0]
        return found, "" if found.delimiter == PLAIN else _describe(found)
    if not any(each.width > 1 for each in splits.values()):
        # one column: there is nothing to split
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
    """Delimiter that clevercsv finds; None where it finds none, or cannot read the text."""
    from clevercsv.detect import Detector
    from clevercsv.exceptions import Error

    part = text[:SAMPLED_BYTES]
    try:
        dialect = Detector().detect(part[: part.rfind("\n") + 1] or part)
    except Error:
        return None
    return None if dialect is None else dialect.delimiter


MANY_VALUES = 20
"""Distinct numbers from which a column is a measurement, and any number within its range may be one of it."""
REPEATED = 4
"""Rows per distinct text from which a text that occurs in the first row alone is more likely a name."""
UNCLEAR_SHARE = 1 / 3
"""Share of the columns that contradict the others from which it is asked whether there is a header."""

_COMMA = re.compile(DECIMAL_COMMA)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")


def find_header(split: SplitRows, config: SourceOptions) -> tuple[bool | None, list[str]]:
    """Whether the first row holds names: each column says so, or the contrary, or nothing.

    A first field that is a value of its own column says that the row is data; one that is no number above a column of
    numbers, or no value of a column of few texts, that it is a header.

    Parameters
    ----------
    split
        The rows.
    config
        Texts that mean "not given", and the sign before decimals.

    Returns
    -------
    Whether there is a header, None where columns contradict each other; and the fields that speak for data.
    """
    if not split.rows:
        return True, []
    first = [field.strip() for field in split.rows[0]]
    columns = _read_columns(split, config, split.rows[1:])
    absent = {text.strip() for text in config.missing} | {"?", "-"}
    alike: list[str] = []
    weak: list[str] = []
    names = 0
    for field, column in zip(first, columns, strict=False):
        if not column or field in absent:
            continue
        numbers = [_read(text, config) for text in column]
        own = _read(field, config)
        known = [number for number in numbers if number is not None]
        if len(known) == len(numbers):
            if own is None:
                names += 1
            elif own in known or (
                len(set(known)) > MANY_VALUES and min(known) <= own <= max(known)
            ):
                alike.append(field)
            else:
                weak.append(field)
        elif field in column:
            alike.append(field)
        elif len(column) >= REPEATED * len(set(column)):
            names += 1
    if not alike and not names and weak:
        return None, weak
    less = min(len(alike), names)
    if less and less >= UNCLEAR_SHARE * (len(alike) + names):
        return None, alike
    return len(alike) <= names, alike


def find_decimal(split: SplitRows, config: SourceOptions) -> tuple[Literal[".", ","], str]:
    """Sign before the decimals, and a note for the reviewer, empty where there is nothing to say."""
    commas: list[str] = []
    points: list[str] = []
    for column in _read_columns(split, config, split.rows):
        written = [text for text in column if _COMMA.match(text)]
        texts = [_point(text) for text in column]
        # the first row may be a header
        if sum(read_number(text) is None for text in texts) <= 1:
            commas += written
            points += [text for text in column if "." in text and read_number(text) is not None]
    if not commas:
        return ".", ""
    if points:
        return ".", (
            f"some numbers have a decimal comma ({commas[0]!r}) and some a point ({points[0]!r}): those with a comma "
            "are texts; correct the files, or set source.decimal (pmf infer: --decimal)"
        )
    if all(_THOUSANDS.fullmatch(text) for text in commas):
        return ".", (
            f"{commas[0]!r} may be thousands, or a number with three decimals, and is a text as it stands: set "
            "source.decimal = ',' (pmf infer: --decimal), or take the commas out of the files"
        )
    return ",", f"decimal comma: {commas[0]!r} is read as {_point(commas[0])!r}"


def _read_columns(
    split: SplitRows, config: SourceOptions, rows: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Values that are given, by column, of the rows that have all fields."""
    missing = {text.strip() for text in config.missing}
    whole = [row for row in rows if len(row) == split.width]
    columns = zip(*whole, strict=True)
    return [
        [text for field in column if (text := field.strip()) not in missing] for column in columns
    ]


def _read(text: str, config: SourceOptions) -> float | None:
    return read_number(_point(text) if config.decimal == "," else text)


def _point(text: str) -> str:
    """A number with a decimal comma as one with a point."""
    return _COMMA.sub(r"\1.\2", text)
