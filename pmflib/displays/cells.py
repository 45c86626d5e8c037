"""Cells of summaries: numbers and texts in the form in which people read them, and short."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

LONGEST = 48
"""Characters of a text of the data that are shown at most."""


def count(number: int | np.integer[Any]) -> str:
    """Text of a whole number, thousands grouped."""
    return f"{int(number):,}"


def percent(share: float) -> str:
    """Text of a share, three digits at most: never 0 % of something, never 100 % of not everything.

    Examples
    --------
    >>> percent(0.1234), percent(0.00002), percent(0.99999), percent(1.0), percent(math.nan)
    ('12.3 %', '<0.1 %', '>99.9 %', '100 %', 'unknown')
    """
    if math.isnan(share):
        return "unknown"
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{100 * share:.3g} %"


def decimal(number: float, digits: int = 4) -> str:
    """Text of a number, in some significant digits."""
    return "unknown" if math.isnan(number) else f"{number:,.{digits}g}"


def nats(number: float) -> str:
    """Text of a log-likelihood, four decimals: differences between models are in these."""
    return f"{number:.4f}"


def cut(text: str, longest: int = LONGEST) -> str:
    """Text of the data, cut where it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def list_some(texts: Iterable[str], n_all: int, n_shown: int = 6) -> str:
    """First texts of many, and how many more there are.

    Examples
    --------
    >>> list_some(["a", "b", "c"], 3, 2)
    'a, b, … (1 more)'
    """
    shown = [cut(text) for text in islice(texts, n_shown)]
    more = n_all - len(shown)
    return ", ".join(shown) + (f", … ({more:,} more)" if more > 0 else "")


def name_missing(texts: Sequence[str]) -> str:
    """Texts that mean "not given"; the empty text by a word, for it cannot be seen."""
    return list_some((text or "empty" for text in texts), len(texts), 8) or "none"
