"""Intervals of numbers in texts."""

from __future__ import annotations

import math
import re

from pmflib.schema.variable import read_number

_NUMBER = r"[$€£]?\s*(-?\d[\d,]*(?:\.\d+)?)\s*(k|m|%)?"
_RANGE = re.compile(
    rf"[\[(]?\s*{_NUMBER}\s*(?:-|\u2013|\u2014|_|\.\.|,|;|to|bis|à|a|tot|and|until)\s*{_NUMBER}\s*[\])]?"
)
_BELOW = re.compile(
    rf"(?:<=?|≤|under|below|less than|up to|at most|unter|bis|moins de|menos de|meno di|minder dan)\s*{_NUMBER}"
)
_ABOVE = re.compile(
    rf"(?:>=?|≥|over|above|more than|at least|from|über|ab|plus de|más de|oltre|più di|meer dan)\s*{_NUMBER}"
)
_ABOVE_AFTER = re.compile(
    rf"{_NUMBER}\s*(?:\+|-?\s*(?:or|and)?\s*(?:more|over|above|older|up|plus)|und mehr|et plus|o más|e più|of meer)"
)
_UNITS = re.compile(
    r"\s*\b(?:years?(?: old)?|yrs?|y|jahre?|ans?|años|anni|jaar|days?|months?|hours?|kg|cm|usd|eur)\b\.?"
)
_FEET = re.compile(
    r"(\d{1,2})\s*(?:'|\u2019|ft\b\.?|feet\b|foot\b)\s*(?:(\d{1,2})\s*(?:\"|''|\u201d|in\b\.?|inch(?:es)?\b)?(?!\d))?"
)
"""Heights in feet and inches: 5'4", 5 ft. 4 in."""


def read_interval(text: str) -> tuple[float, float] | None:
    """Parse an interval such as "[0-25)", "5-9", "<5", "10+" or ">= 80", or a number; None for other texts.

    Open ends are infinite; the ends of a number are equal. Feet are read in inches: 5'4" is 64.
    """
    text = text.casefold().strip()
    # quotes around a text are no feet
    text = text.strip("'\"") if text[:1] in ("'", '"') else _FEET.sub(_count_inches, text)
    text = _UNITS.sub("", text).strip()
    if (number := read_number(text)) is not None:
        return number, number
    if match := _RANGE.fullmatch(text):
        low, high = _scale(*match.groups()[:2]), _scale(*match.groups()[2:])
        if match[2] is None and match[4] in ("k", "m") and low < high:
            low = _scale(match[1], match[4])
        return (low, high) if low <= high else None
    if match := _BELOW.fullmatch(text):
        return -math.inf, _scale(*match.groups())
    match = _ABOVE.fullmatch(text) or _ABOVE_AFTER.fullmatch(text)
    return (_scale(*match.groups()), math.inf) if match else None


def _scale(number: str, unit: str | None) -> float:
    factor = {"k": 1e3, "m": 1e6}.get(unit or "", 1.0)
    return float(number.replace(",", "")) * factor


def _count_inches(match: re.Match[str]) -> str:
    return f"{12 * int(match[1]) + int(match[2] or 0)} "
