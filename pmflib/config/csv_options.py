"""Options of CSV files: names of encodings, delimiters."""

from __future__ import annotations

import codecs

WHITESPACE = "whitespace"
"""Delimiter that stands for any run of blanks and tabs."""
MAX_DELIMITER = 10
"""Longest delimiter, characters."""


def name_separator(delimiter: str) -> str:
    """Text between the fields of a row that is shown or put in quarantine."""
    return " " if delimiter == WHITESPACE else delimiter


def check_encoding(name: str) -> str:
    """Return the one name of an encoding of texts that has several.

    Raises
    ------
    ValueError
        If Python does not know it, or it encodes something else than texts.
    """
    try:
        known = codecs.lookup(name)
        "".encode(name)
    except (LookupError, ValueError):
        raise ValueError(
            f"{name[:40]!r} is no encoding of texts; give one as 'utf-8', 'latin-1', 'cp1252' or 'utf-16'"
        ) from None
    # a mark at the beginning of a file in UTF-8 is passed over in any case
    return "utf-8" if known.name == "utf-8-sig" else known.name


def check_delimiter(delimiter: str) -> str:
    """Return a delimiter that fields can be cut at.

    Raises
    ------
    ValueError
        If it is empty, too long, or holds a quotation mark or the end of a line.
    """
    if not 1 <= len(delimiter) <= MAX_DELIMITER:
        raise ValueError(
            f"a delimiter has 1 to {MAX_DELIMITER} characters, or is {WHITESPACE!r} for runs of blanks and tabs"
        )
    if set(delimiter) & set('"\r\n'):
        raise ValueError(
            f"{delimiter!r} holds a quotation mark or the end of a line; give what is between two fields"
        )
    return delimiter
