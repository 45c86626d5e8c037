"""What the first rows of a CSV file say: whether it has a header, how its decimals are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pmflib.config import SourceConfig
from pmflib.ingest.csv_values import DECIMAL_COMMA
from pmflib.ingest.dialects import Cutting
from pmflib.schema.variable import read_number

MANY_VALUES = 20
"""Distinct numbers from which a column is a measurement, and any number within its range may be one of it."""
REPEATED = 4
"""Rows per distinct text from which a text that occurs in the first row alone is more likely a name."""
UNCLEAR_SHARE = 1 / 3
"""Share of the columns that contradict the others from which it is asked whether there is a header."""

_COMMA = re.compile(DECIMAL_COMMA)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")


def find_header(cutting: Cutting, config: SourceConfig) -> tuple[bool | None, list[str]]:
    """Whether the first row holds names: each column says so, or the contrary, or nothing.

    A first field that is a value of its own column says that the row is data; one that is no number above a column of
    numbers, or no value of a column of few texts, that it is a header.

    Parameters
    ----------
    cutting
        The rows.
    config
        Texts that mean "not given", and the sign before decimals.

    Returns
    -------
    Whether there is a header, None where columns contradict each other; and the fields that speak for data.
    """
    if not cutting.rows:
        return True, []
    first = [field.strip() for field in cutting.rows[0]]
    columns = _read_columns(cutting, config, cutting.rows[1:])
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


def find_decimal(cutting: Cutting, config: SourceConfig) -> tuple[Literal[".", ","], str]:
    """Sign before the decimals, and a note for the reviewer, empty where there is nothing to say."""
    commas: list[str] = []
    points: list[str] = []
    for column in _read_columns(cutting, config, cutting.rows):
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
    cutting: Cutting, config: SourceConfig, rows: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Values that are given, by column, of the rows that have all fields."""
    missing = {text.strip() for text in config.missing}
    whole = [row for row in rows if len(row) == cutting.width]
    columns = zip(*whole, strict=True)
    return [
        [text for field in column if (text := field.strip()) not in missing] for column in columns
    ]


def _read(text: str, config: SourceConfig) -> float | None:
    return read_number(_point(text) if config.decimal == "," else text)


def _point(text: str) -> str:
    """A number with a decimal comma as one with a point."""
    return _COMMA.sub(r"\1.\2", text)
