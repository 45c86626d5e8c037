"""What is compared: which levels of the schema are the cells of which test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import IntArray
from pmflib.schema import Schema


@dataclass(frozen=True, eq=False)
class Family:
    """A family of tests: how counts of levels become cells.

    Parameters
    ----------
    guard
        Guard that the tests belong to.
    names
        What each test is about, for a person.
    cells
        int64 of shape (n_levels,): cell that a level is counted in, -1 for none.
    offsets
        int64 of shape (n_tests + 1,): cells of each test.
    unanswered
        int64 of shape (n_tests,): cells for the rows that answer nothing; None where these are not counted.
    clustered
        Whether a sample may count several times in one test.
    """

    guard: str
    names: tuple[str, ...]
    cells: IntArray
    offsets: IntArray
    unanswered: IntArray | None = None
    clustered: bool = False

    def gather(self, level_counts: IntArray, n_rows: IntArray | None = None) -> IntArray:
        """Cells of counts.

        Parameters
        ----------
        level_counts
            int64 of shape (n_groups, n_levels).
        n_rows
            int64 of shape (n_groups,): rows counted; needed where unanswered rows are.

        Returns
        -------
        int64 of shape (n_groups, n_cells).
        """
        gathered = np.zeros((len(level_counts), int(self.offsets[-1])), np.int64)
        used = np.flatnonzero(self.cells >= 0)
        np.add.at(gathered.T, self.cells[used], level_counts[:, used].T)
        if self.unanswered is not None and n_rows is not None:
            answered = np.add.reduceat(gathered, self.offsets[:-1], axis=1)
            gathered[:, self.unanswered] = np.maximum(n_rows[:, None] - answered, 0)
        return gathered


def list_families(schema: Schema, layout: str) -> list[Family]:
    """Everything that level counts are compared in.

    Parameters
    ----------
    schema
        Variables and levels.
    layout
        "wide": a row that does not answer a variable is a cell of it. "long": rows are answers, and which variables
        they answer is compared as well.
    """
    owners = np.repeat(np.arange(schema.n_variables), schema.cardinalities)
    levels = np.arange(schema.n_levels)
    if layout == "wide":
        offsets = schema.offsets + np.arange(schema.n_variables + 1)
        variables = Family(
            "variable_drift", schema.names, levels + owners, offsets, offsets[1:] - 1
        )
    else:
        variables = Family("variable_drift", schema.names, levels, schema.offsets)
    families = [variables]
    if (scales := _join_scales(schema, owners)) is not None:
        families.append(scales)
    if layout == "long" and schema.n_variables > 1:
        whole = np.array([0, schema.n_variables])
        families.append(Family("answer_drift", ("answers",), owners, whole, clustered=True))
    return families


def _join_scales(schema: Schema, owners: IntArray) -> Family | None:
    """Variables with the same levels are one scale; a variable alone is none."""
    members: dict[tuple[str, ...], list[int]] = {}
    for place, variable in enumerate(schema.variables):
        members.setdefault(variable.levels, []).append(place)
    scales = [each for each in members.items() if len(each[1]) > 1 and len(each[0]) > 1]
    if not scales:
        return None
    names, cells, offsets = [], np.full(schema.n_levels, -1), [0]
    for labels, variables in scales:
        inside = np.isin(owners, variables)
        cells[inside] = (
            offsets[-1] + np.arange(schema.n_levels)[inside] - schema.offsets[owners[inside]]
        )
        offsets.append(offsets[-1] + len(labels))
        names.append(f"scale {labels[0]} to {labels[-1]} of {len(variables)} variables")
    return Family("scale_drift", tuple(names), cells, np.array(offsets), clustered=True)
