"""Panel data: the variables of each wave among the columns of a wide table, and wide tables from long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.arrays import IntArray
from pmflib.base.constraints import Interval, OneOf, check
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.texts import abridge_names
from pmflib.schema import Schema
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import Variable

WaveNames: TypeAlias = Sequence[Sequence[str | None]]
"""Columns of each wave, in the same order in all waves; None where a variable was not asked."""


@dataclass(frozen=True, eq=False)
class Waves:
    """Variables of a schema by wave.

    Parameters
    ----------
    names
        Columns of each wave, as many in each: column j of every wave is the same question.
    positions
        int64 of shape (n_waves, n_questions): positions of these columns in the schema, -1 where not asked.
    """

    names: tuple[tuple[str | None, ...], ...]
    positions: IntArray

    @classmethod
    def find(cls, schema: Schema, waves: int | WaveNames) -> Waves:
        """Find the variables of each wave.

        Parameters
        ----------
        schema
            Variables of a wide table.
        waves
            Names of the columns of each wave; or the number of waves, whose variables then follow each other in the
            schema, all of the first wave first.

        Raises
        ------
        SchemaError
            If a variable is unknown, in two waves or in none, or a question has other levels in another wave.
        PmfError
            If waves have different numbers of variables, or there is no wave.
        """
        names = list_names(schema.names, waves)
        positions = np.array(
            [[-1 if name is None else schema.position(name) for name in own] for own in names]
        )
        used = np.bincount(positions[positions >= 0], minlength=schema.n_variables)
        for wrong, what in ((used > 1, "more than one place"), (used == 0, "no wave")):
            if wrong.any():
                listed = abridge_names([schema.names[at] for at in np.flatnonzero(wrong)])
                raise SchemaError(
                    f"waves has {listed} in {what}; name each variable of the schema once, and leave columns that are "
                    "not of a wave out of it"
                )
        for column in positions.T:
            first, *others = (schema[int(at)] for at in column[column >= 0])
            for other in others:
                if other.levels != first.levels or other.edges != first.edges:
                    raise SchemaError(
                        f"variables {first.name!r} and {other.name!r} are one question in two waves and have levels "
                        f"{abridge_names(first.levels)} and {abridge_names(other.levels)}; give both the same ones"
                    )
        return cls(names, positions)

    @property
    def n_waves(self) -> int:
        """Return the number of waves."""
        return len(self.positions)

    @property
    def first_positions(self) -> IntArray:
        """Return the position of each question in the first wave that has it: int64 of shape (n_questions,)."""
        return np.array([column[column >= 0][0] for column in self.positions.T])

    def find_places(self, schema: Schema) -> tuple[IntArray, IntArray]:
        """Return the wave and the question of every variable of a schema: int64 of shape (n_variables,) each."""
        places = np.zeros((2, schema.n_variables), np.int64)
        asked = np.nonzero(self.positions >= 0)
        places[:, self.positions[asked]] = asked
        return places[0], places[1]


def list_names(
    columns: Sequence[str], waves: int | WaveNames
) -> tuple[tuple[str | None, ...], ...]:
    """List the columns of each wave, given names or the number of waves: see `Waves.find`."""
    if isinstance(waves, int | np.integer):
        check(Interval(whole=True), waves=waves)
        if waves < 1 or len(columns) % waves:
            raise PmfError(
                f"waves is {waves} and there are {len(columns)} variables; pass a number of waves that divides it, or "
                "the names of the columns of each wave"
            )
        size = len(columns) // int(waves)
        return tuple(tuple(columns[at : at + size]) for at in range(0, len(columns), size))
    names = tuple(tuple(own) for own in waves if not isinstance(own, str))
    sizes = {len(own) for own in names}
    if len(names) < len(waves) or len(sizes) != 1 or 0 in sizes:
        raise PmfError(
            f"waves is {abridge_names([*map(str, waves)])}; pass a list of column names for each wave, equally "
            "many, None for a question that was not asked"
        )
    if empty := [j for j, asked in enumerate(zip(*names, strict=True)) if not any(asked)]:
        raise PmfError(f"question {empty[0]} of waves has no column in any wave; leave it out")
    return names


def infer_schema(table: object, waves: int | WaveNames) -> Schema:
    """Infer the schema of a wide table, with the same levels of a question in all waves.

    Parameters
    ----------
    table
        As for `pmflib.Schema.infer`.
    waves
        As for `Waves.find`; columns in no wave are left out.

    Raises
    ------
    SchemaError, PmfError
        If a column is absent, or a question has no values that make it a variable.
    """
    if isinstance(table, np.ndarray):
        return _infer_codes(table, waves)
    wide = as_arrow(table)
    names = list_names(wide.column_names, waves)
    questions = [next(filter(None, asked)) for asked in zip(*names, strict=True)]
    parts = []
    for own in names:
        columns = {}
        for question, name in zip(questions, own, strict=True):
            if name is not None:
                check(OneOf(wide.column_names), SchemaError, **{"column of waves": name})
            columns[question] = pa.nulls(len(wide)) if name is None else wide[name]
        parts.append(pa.table(columns))
    found = Schema.infer(pa.concat_tables(parts, promote_options="permissive"))
    if left := [name for name in questions if name not in found]:
        raise SchemaError(
            f"column {left[0]!r} cannot be a variable in any wave; leave it out, or pass a schema that has it"
        )
    variables: list[Variable] = []
    for own in names:
        for question, name in zip(questions, own, strict=True):
            if name is not None:
                variables.append(replace(found[question], name=name))
    return Schema(tuple(variables))


def _infer_codes(codes: np.ndarray[Any, Any], waves: int | WaveNames) -> Schema:
    """Infer the schema of an array of codes, whose columns are v0, v1, ..."""
    if codes.ndim != 2 or not codes.size or not np.issubdtype(codes.dtype, np.integer):
        raise SchemaError(
            f"samples is an array of {codes.dtype} of shape {codes.shape}; pass codes, integers of shape (n_rows, "
            "n_variables), -1 missing, or a table with named columns"
        )
    columns = [f"v{position}" for position in range(codes.shape[1])]
    sizes = np.ones(len(columns), np.int64)
    for asked in zip(*list_names(columns, waves), strict=True):
        own = [columns.index(name) for name in asked if name]
        sizes[own] = max(int(codes[:, own].max()) + 1, 1)
    return Schema.from_cardinalities(sizes)


def spread_waves(
    table: object, person: str, wave: str, variables: Sequence[str] | None = None
) -> tuple[pa.Table, list[list[str]]]:
    """Turn a long table, with one row per person and wave, into a wide one with a row per person.

    Parameters
    ----------
    table
        Arrow table, pandas or polars DataFrame, or mapping of columns, in any order of rows.
    person, wave
        Columns of the person and of the wave. Waves are numbers, texts or times, and come in sorted order; of a
        categorical column, in the order of its categories.
    variables
        Other columns to spread; all by default.

    Returns
    -------
    The wide table: the column of the person, then a column ``variable_wave`` for each variable and wave, all of the
    first wave first, null where a person has no row for the wave. And the names of the columns of each wave, as
    `pmflib.families.fit_transitions` takes them.

    Raises
    ------
    SchemaError
        If a column is absent, a row has no person or no wave, a person has two rows for a wave, or two columns of the
        wide table would have one name.

    Examples
    --------
    >>> rows = {"id": [1, 1, 2], "year": [2020, 2021, 2021], "smokes": ["yes", "no", "no"]}
    >>> wide, waves = spread_waves(rows, "id", "year")
    >>> wide.to_pylist()
    [{'id': 1, 'smokes_2020': 'yes', 'smokes_2021': 'no'}, {'id': 2, 'smokes_2020': None, 'smokes_2021': 'no'}]
    >>> waves
    [['smokes_2020'], ['smokes_2021']]
    """
    long = as_arrow(table)
    if variables is None:
        variables = [name for name in long.column_names if name not in (person, wave)]
    for name in (person, wave, *variables):
        check(OneOf(long.column_names), SchemaError, column=name)
    codes, values = [], []
    for name in (person, wave):
        key = long[name]
        if pa.types.is_dictionary(key.type):
            key = key.cast(key.type.value_type)
        if (absent := np.flatnonzero(pc.is_null(key, nan_is_null=True).to_numpy())).size:
            raise SchemaError(f"row {absent[0]} has no {name!r}; leave out rows without it")
        values.append(pc.unique(key))
        codes.append(pc.index_in(key, values[-1]).to_numpy().astype(np.int64))
    places = values[1]
    if pa.types.is_dictionary(long[wave].type):
        categories = long[wave].unify_dictionaries().combine_chunks().dictionary
        places = pc.index_in(places, categories)
    order = pc.array_sort_indices(places).to_numpy()
    rows = np.full((len(values[0]), len(order)), -1, np.int64)
    rows[tuple(codes)] = np.arange(len(long))
    if (again := np.flatnonzero(rows[tuple(codes)] != np.arange(len(long)))).size:
        who, when = long[person][int(again[0])], long[wave][int(again[0])]
        raise SchemaError(
            f"row {again[0]}: {person} {who} has another row for {wave} {when}; keep one row per person and wave"
        )
    columns, waves = {person: values[0]}, []
    for at in order.tolist():
        taken = pa.array(rows[:, at], mask=rows[:, at] < 0)
        waves.append([f"{name}_{values[1][at].as_py()}" for name in variables])
        for new, old in zip(waves[-1], variables, strict=True):
            if new in columns:
                raise SchemaError(
                    f"column {old!r} of wave {values[1][at]} would be {new!r}, which is another column; rename one"
                )
            columns[new] = long[old].take(taken)
    return pa.table(columns), waves
