"""Levels of two schemas side by side, so that tables of the one can be compared with tables of the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmflib.arrays import FloatArray, IntArray
from pmflib.schema import Schema


@dataclass(frozen=True)
class AlignedLevels:
    """Variables that two schemas share, each with the levels that either of them knows.

    Parameters
    ----------
    names
        Shared variables, in the order of the second schema.
    offsets
        int64 of shape (n_shared + 1,): first aligned level of each variable.
    first, second
        int64 of shapes (n_levels_first,) and (n_levels_second,): aligned level of each level of a schema, -1 where the
        other schema lacks the variable.
    """

    names: tuple[str, ...]
    offsets: IntArray
    first: IntArray
    second: IntArray

    @property
    def n_levels(self) -> int:
        """Number of aligned levels."""
        return int(self.offsets[-1])

    def align(self, values: npt.NDArray[np.number], levels: IntArray) -> FloatArray:
        """Put the rows of a table by level in the aligned order; levels that its schema lacks have zeros.

        Parameters
        ----------
        values
            Shape (n_levels, ...), of one of the schemas.
        levels
            Aligned levels of that schema: ``first`` or ``second``.

        Returns
        -------
        float64 of shape (n_aligned_levels, ...).
        """
        aligned = np.zeros((self.n_levels, *values.shape[1:]))
        shared = np.flatnonzero(levels >= 0)
        aligned[levels[shared]] = values[shared]
        return aligned


def align_levels(first: Schema, second: Schema) -> AlignedLevels:
    """Align the levels of two schemas by the names of variables and the labels of levels."""
    names = tuple(name for name in second.names if name in first)
    offsets = [0]
    places = tuple(np.full(schema.n_levels, -1, np.int64) for schema in (first, second))
    for name in names:
        labels = dict.fromkeys((*second[name].levels, *first[name].levels))
        place_of = {label: offsets[-1] + place for place, label in enumerate(labels)}
        for schema, aligned in zip((first, second), places, strict=True):
            aligned[schema.rows_of(name)] = [place_of[label] for label in schema[name].levels]
        offsets.append(offsets[-1] + len(labels))
    return AlignedLevels(names, np.array(offsets, np.int64), *places)
