"""Order of the levels of a column: intervals, words of ordinal scales, or numbers inside texts."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pmflib.schema.scale_words import NO_ANSWERS, SCALES
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
_PREFIX = re.compile(r"\s*[(\[]?(-?\d{1,3})\s*(?:[.:)=\]]|\s-\s|\s\u2013\s)\s*(\S.*)")
_SCALES_OF_TWO = 2


@dataclass(frozen=True)
class LevelOrder:
    """Levels in order, a value for each where they are ordinal, and the reason for the order.

    Parameters
    ----------
    levels
        Texts in order.
    values
        A number per level, increasing; None where the order means nothing.
    reason
        Why this order.
    """

    levels: tuple[str, ...]
    values: tuple[float, ...] | None
    reason: str


def order_levels(texts: Sequence[str]) -> LevelOrder:
    """Put the levels of a column in order.

    Parameters
    ----------
    texts
        Levels, all distinct, in any order.

    Returns
    -------
    Levels by the lower ends of their intervals, by the numbers that they begin with, by the steps of a known scale,
    or, where none of these fits all of them, in natural order: "item2" before "item10".
    """
    found = _order_prefixes(texts) or _order_intervals(texts) or _order_words(texts)
    if found:
        return found
    return LevelOrder(tuple(sorted(texts, key=natural_key)), None, "names without a known order")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which numbers inside names count as numbers."""
    pieces = []
    for digits, text in re.findall(r"0*([0-9]+)|([^0-9]+)", name):
        # of two numbers without leading zeros, the longer one is the greater one
        pieces.append((0, len(digits), digits) if digits else (1, 0, text))
    return (*pieces, (-1, 0, name))


def normalise_word(text: str) -> str:
    """Text without case, typographic apostrophes, underscores and punctuation around it."""
    text = unicodedata.normalize("NFC", text).casefold().replace("’", "'").replace("´", "'")  # noqa: RUF001
    return " ".join(text.replace("_", " ").replace("ß", "ss").split()).strip(" .!,;:")


def read_interval(text: str) -> tuple[float, float] | None:
    """Lower and upper end of an interval such as "[0-25)", "5-9", "<5", "10+", ">= 80" or a number; None if it is none.

    Ends that are open are infinite; those of a number are equal.
    """
    text = _UNITS.sub("", text.casefold().strip().strip("'\""))
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


def _order_prefixes(texts: Sequence[str]) -> LevelOrder | None:
    matches = [_PREFIX.fullmatch(text) for text in texts]
    if len(texts) < 2 or any(match is None or match[2][0].isdigit() for match in matches):
        return None
    numbers = {text: float(match[1]) for text, match in zip(texts, matches, strict=True) if match}
    if len(set(numbers.values())) < len(texts):
        return None
    levels = tuple(sorted(texts, key=numbers.__getitem__))
    return LevelOrder(levels, tuple(numbers[t] for t in levels), "ordered by the number in front")


def _order_intervals(texts: Sequence[str]) -> LevelOrder | None:
    ends: dict[str, tuple[float, float]] = {}
    rest = []
    for text in texts:
        interval = read_interval(text)
        if interval is None:
            rest.append(text)
        else:
            ends[text] = interval
    if rest in (["more"], ["More"]) and len(ends) > 1:
        ends[rest.pop()] = (max(high for _, high in ends.values()) + 1, math.inf)
    widths = [high - low for low, high in ends.values() if math.isfinite(high - low)]
    if rest or len(ends) < 2 or not any(low < high for low, high in ends.values()):
        return None
    levels = sorted(ends, key=lambda text: (ends[text], natural_key(text)))
    for a, b in pairwise(levels):
        if ends[b][0] < ends[a][1] and not (math.isinf(ends[a][0]) and ends[b][0] == ends[a][1]):
            # intervals that overlap have no order
            return None
    wide = [width for width in widths if width]
    half = (sum(wide) / len(wide) if wide else 1.0) / 2
    values = []
    for text in levels:
        low, high = ends[text]
        if math.isinf(low):
            values.append(high - half)
        else:
            values.append(low + half if math.isinf(high) else (low + high) / 2)
    if any(a >= b for a, b in pairwise(values)):
        values = [float(place) for place in range(1, len(levels) + 1)]
    return LevelOrder(tuple(levels), tuple(values), "intervals in order; values are their middles")


def _order_words(texts: Sequence[str]) -> LevelOrder | None:
    words = {text: normalise_word(text) for text in texts}
    aside = [
        text for text in texts if words[text] in NO_ANSWERS or words[text].startswith("don't know ")
    ]
    asked = [text for text in texts if text not in aside]
    if len(asked) < _SCALES_OF_TWO or len(aside) > 2:
        return None
    for scale in _NORMAL_SCALES:
        steps = {text: scale[words[text]] for text in asked if words[text] in scale}
        if len(steps) < len(asked) or len(set(steps.values())) < len(steps):
            continue
        if {words[text] for text in asked} <= {"no", "up", "down"}:
            continue
        levels = (*sorted(asked, key=steps.__getitem__), *sorted(aside))
        shown = f"a known scale, {levels[0]!r} to {levels[len(asked) - 1]!r}"
        if aside:
            return LevelOrder(levels, None, f"{shown}, and {sorted(aside)} behind it")
        return LevelOrder(levels, tuple(float(i + 1) for i in range(len(levels))), shown)
    return None


_NORMAL_SCALES = [{normalise_word(word): step for word, step in scale.items()} for scale in SCALES]
