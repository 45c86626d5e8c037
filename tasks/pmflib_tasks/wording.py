"""Counts, shares and sentences for people."""

from __future__ import annotations


def as_count(number: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun.

    Examples
    --------
    >>> as_count(1, "file"), as_count(2500, "file")
    ('1 file', '2,500 files')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def as_percent(share: float, least_digits: int = 0) -> str:
    """Format a share; only exact shares are shown as 0 % or 100 %.

    Examples
    --------
    >>> as_percent(0.446), as_percent(0.0004), as_percent(0.9999), as_percent(1)
    ('45 %', '0.04 %', '99.99 %', '100 %')
    """
    for digits in range(least_digits, 6):
        text = f"{100 * share:.{digits}f}"
        if float(text) not in (0.0, 100.0) or share in (0.0, 1.0):
            return f"{text} %"
    return f"{100 * share:.2g} %"


def as_sentence(text: str) -> str:
    """Turn the first line of a text into a sentence, with a capital and a full stop.

    Examples
    --------
    >>> as_sentence("promoted: better today")
    'Promoted: better today.'
    """
    line = first_line(text).strip()
    return f"{line[:1].upper()}{line[1:]}{'' if line[-1:] in '.!?' else '.'}"


def first_line(text: str) -> str:
    """Return the first line of a text."""
    return text.split("\n")[0]
