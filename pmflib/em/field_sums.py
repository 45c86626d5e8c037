"""Sums of statistics, field by field: what passes over parts of the samples have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

S = TypeVar("S")


def sum_fields(parts: Sequence[S]) -> S:
    """Sum dataclasses of arrays and numbers, at least one, in the order given: equal order, equal bits."""
    sums: dict[str, Any] = {}
    for field in fields(parts[0]):  # type: ignore[arg-type]
        values = [getattr(part, field.name) for part in parts]
        total = np.array(values[0]) if isinstance(values[0], np.ndarray) else values[0]
        for value in values[1:]:
            total += value
        sums[field.name] = total
    return type(parts[0])(**sums)
