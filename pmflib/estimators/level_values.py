"""The values that a user's table has for the levels of a variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.arrays import FloatArray, IntArray
from pmflib.schema import Variable
from pmflib.schema.variable import is_absent, read_number

MOST_KEPT = 64
"""Values of a bin that are kept, spread over its numbers by their rank."""


@dataclass(frozen=True)
class LevelValues:
    """Values of the levels of one variable, as the table has them.

    Parameters
    ----------
    by_level
        For each level its values: of a bin several of its numbers, rising; else one.
    means
        Mean of each level, for numbers that are numbers in the table too; None otherwise.
    """

    by_level: tuple[tuple[Any, ...], ...]
    means: tuple[float, ...] | None = None

    @classmethod
    def find(
        cls, variable: Variable, column: pa.ChunkedArray, mixed: Sequence[Any] | None = None
    ) -> LevelValues:
        """Find the values of a variable's levels in a column.

        Parameters
        ----------
        variable
            The variable of the column.
        column
            The column that it was drafted from.
        mixed
            The column's values as they were given, where Arrow has their texts only.
        """
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if mixed is not None:
            seen = Counter(value for value in mixed if not is_absent(value))
        else:
            counted = column.value_counts()
            pairs = zip(*(counted.field(i).to_pylist() for i in (0, 1)), strict=True)
            seen = Counter({value: n for value, n in pairs if not is_absent(value)})
        found: list[list[Any]] = [[] for _ in variable.levels]
        # the most frequent first; of equals, the first seen
        for value, _ in seen.most_common():
            code = variable.encode_value(value)
            if code >= 0:
                found[code].append(value)
        by_level = []
        for code, values in enumerate(found):
            if not values:
                by_level.append((_make_value(variable, code, is_number=is_number),))
            elif variable.edges is not None:
                by_level.append(_pick(sorted(values), seen))
            else:
                by_level.append((values[0],))
        means = variable.values if is_number else None
        return cls(tuple(by_level), means)

    @property
    def typical(self) -> list[Any]:
        """One value per level: of a bin, the middle one."""
        return [values[len(values) // 2] for values in self.by_level]

    def draw(self, codes: IntArray, rng: np.random.Generator) -> list[Any]:
        """Draw a value of the level of each code."""
        uniforms: FloatArray = rng.random(codes.size)
        drawn = []
        for code, uniform in zip(codes.tolist(), uniforms.tolist(), strict=True):
            values = self.by_level[code]
            drawn.append(values[int(uniform * len(values))])
        return drawn


def _make_value(variable: Variable, code: int, *, is_number: bool) -> Any:
    """Value of a level that the column does not have: of numbers its number, else its text."""
    if not is_number:
        return variable.levels[code]
    if variable.values is not None:
        return variable.values[code]
    return read_number(variable.levels[code])


def _pick(rising: Sequence[Any], seen: Counter[Any]) -> tuple[Any, ...]:
    """Some of the numbers of a bin, as often as they were seen."""
    counts = np.array([seen[value] for value in rising])
    ends = np.cumsum(counts)
    n_kept = int(min(MOST_KEPT, ends[-1]))
    ranks = (np.arange(n_kept) + 0.5) / n_kept * ends[-1]
    return tuple(rising[place] for place in np.searchsorted(ends, ranks, side="left"))
