"""Known margins: the distribution of a variable, or of two jointly, in the population."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray, name_type
from pmflib.base.errors import PmfError, SchemaError, SourceError
from pmflib.base.texts import abridge_names, suggest
from pmflib.schema.schema import Schema
from pmflib.schema.variable import Variable, as_text

ROUNDING = 5e-3
"""Largest relative difference of a sum from 1 or 100, and of totals from each other: that of tables that are published
with two digits, or in thousands.
"""
DOUBTFUL = 0.1
"""Largest relative difference from 1 or 100 of a sum that is more likely mistaken shares or per cent than a total."""

MarginTables: TypeAlias = (
    "Mapping[Any, Any] | str | Path | Sequence[Mapping[Any, Any] | str | Path]"
)
"""Tables by variable or pair of variables, or files of them: see `read_margins`."""


@dataclass(frozen=True, eq=False)
class Margin:
    """Known distribution of one variable, or of two jointly.

    Parameters
    ----------
    positions
        Positions of the variables in a schema.
    names
        Their names.
    levels
        Levels of each.
    shares
        float64 with an axis for each variable; sums to 1.
    total
        Size of the population; None if the margin was given in shares or per cent.
    """

    positions: tuple[int, ...]
    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    shares: FloatArray
    total: float | None

    def name_cell(self, cell: int) -> str:
        """Name a cell of the table, given its index in row-major order."""
        codes = np.unravel_index(cell, self.shares.shape)
        parts = zip(self.names, self.levels, codes, strict=True)
        return ", ".join(f"{name}={levels[code]}" for name, levels, code in parts)


def read_margins(
    margins: MarginTables, schema: Schema | None = None
) -> tuple[Schema, tuple[Margin, ...]]:
    """Read known margins.

    Parameters
    ----------
    margins
        Mapping from the name of a variable to a number for each of its levels, and from a pair of names to a number for
        each pair of levels; a pandas Series is such a table. Or a CSV file, with a column for each of one or two
        variables and a last one of numbers; or a list of these. Numbers are shares that sum to 1, per cent, or totals.
    schema
        Variables. If None, those of the margins, with the levels that these name.

    Returns
    -------
    The schema, and the margins in the order given.

    Raises
    ------
    SchemaError
        If a variable or level is not in the schema, a level lacks a number, or a margin occurs twice.
    PmfError
        If a number is negative or missing, or sums are neither shares nor per cent nor totals of one population.
    SourceError
        If a file cannot be read.
    """
    tables = _list_tables(margins)
    if schema is None:
        schema = _name_levels(tables)
    found = tuple(_read_margin(names, table, schema) for names, table in tables)
    held = [frozenset(each.positions) for each in found]
    for place, each in enumerate(found):
        if held[place] in held[:place]:
            raise SchemaError(f"margins has {' x '.join(each.names)} twice; pass one of them")
    known = [each for each in found if each.total is not None]
    for each in known[1:]:
        assert each.total is not None
        assert known[0].total is not None
        if abs(each.total / known[0].total - 1) > ROUNDING:
            raise PmfError(
                f"margins of {' x '.join(known[0].names)} sum to {known[0].total:,.10g}, and of "
                f"{' x '.join(each.names)} to {each.total:,.10g}; pass totals of one population, or shares"
            )
    return schema, found


Table: TypeAlias = list[tuple[tuple[object, ...], object]]
"""Levels and number of each row of a table."""


def _list_tables(margins: object) -> list[tuple[tuple[str, ...], Table]]:
    """List the tables with the names of their variables."""
    if isinstance(margins, str | Path):
        margins = [margins]
    found: list[tuple[tuple[str, ...], Table]] = []
    if isinstance(margins, Mapping):
        for key, table in margins.items():
            names = tuple(key) if isinstance(key, tuple) else (key,)
            if not hasattr(table, "items"):
                raise PmfError(
                    f"margins[{key!r}] is {name_type(table)}; pass a number by level, as {{'yes': 0.4, 'no': 0.6}}"
                )
            rows = [(k if isinstance(k, tuple) else (k,), number) for k, number in table.items()]
            found.append((names, rows))
    elif isinstance(margins, Iterable):
        for each in margins:
            is_table = isinstance(each, Mapping)
            found += _list_tables(each) if is_table else [_read_file(Path(each))]
    if not found:
        raise PmfError(
            f"margins is {margins!r}; pass a table by variable, as {{'sex': {{'f': 0.51, 'm': 0.49}}}}, or files"
        )
    for names, rows in found:
        if len(names) not in (1, 2) or len({*names}) < len(names):
            raise PmfError(f"margins has a table of {names}; pass one variable, or two")
        for levels, _ in rows:
            if len(levels) != len(names):
                raise PmfError(
                    f"margins of {' x '.join(names)} has a row {levels}; pass a level for each variable"
                )
    return found


def _read_file(path: Path) -> tuple[tuple[str, ...], Table]:
    """Read a CSV file of one margin."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise SourceError(
            f"margins file {path} cannot be read ({error}); pass a CSV file with a header"
        ) from error
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise SourceError(
                f"margins file {path}, row {number}, has {len(row)} cells, and the header {len(header)}"
            )
    return tuple(header[:-1]), [(tuple(row[:-1]), row[-1]) for row in rows]


def _name_levels(tables: Sequence[tuple[tuple[str, ...], Table]]) -> Schema:
    """Schema of the variables of some tables, with the levels that these name."""
    levels: dict[str, dict[str, None]] = {}
    for names, rows in tables:
        for axis, name in enumerate(names):
            mine = levels.setdefault(name, {})
            mine |= dict.fromkeys(as_text(row[axis]) for row, _ in rows)
    return Schema(tuple(Variable(name, tuple(mine)) for name, mine in levels.items()))


def _read_margin(names: tuple[str, ...], table: Table, schema: Schema) -> Margin:
    positions = tuple(schema.position(name) for name in names)
    variables = [schema[position] for position in positions]
    title = " x ".join(names)
    numbers = np.full([each.cardinality for each in variables], np.nan)
    for levels, number in table:
        codes = []
        for variable, level in zip(variables, levels, strict=True):
            code = variable.encode_value(level)
            if code < 0:
                raise SchemaError(
                    f"margins of {title} name level {level!r}, and {variable.name!r} has "
                    f"{abridge_names(variable.levels, 12)}{suggest(level, variable.levels)}"
                )
            codes.append(code)
        if not math.isnan(numbers[tuple(codes)]):
            raise SchemaError(f"margins of {title} have level {levels} twice; give it once")
        numbers[tuple(codes)] = _read_number(number, title, levels)
    if len(names) == 2:
        # empty cells are often left out of published tables
        numbers = np.nan_to_num(numbers)
    if len(lacking := np.flatnonzero(np.isnan(numbers))):
        absent = [variables[0].levels[code] for code in lacking]
        raise SchemaError(
            f"margins of {title} lack {abridge_names(absent)}; give every level a number, 0 if nobody has it"
        )
    known = names, tuple(each.levels for each in variables)
    return Margin(positions, *known, *_scale(numbers, title))


def _read_number(number: object, title: str, levels: tuple[object, ...]) -> float:
    try:
        found = float(number)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise PmfError(
            f"margins of {title} give {', '.join(map(str, levels))} {number!r}; pass a finite number of at least 0"
        )
    return found


def _scale(numbers: FloatArray, title: str) -> tuple[FloatArray, float | None]:
    """Scale the numbers of a margin to shares; also return their total unless they are shares or per cent."""
    total = float(numbers.sum())
    for whole in (1.0, 100.0):
        gap = abs(total / whole - 1)
        if gap <= ROUNDING:
            return numbers / total, None
        if gap <= DOUBTFUL or not total or (total < 1 and whole == 1):
            raise PmfError(
                f"margins of {title} sum to {total:.6g}; shares sum to 1, per cent to 100, and totals to more"
            )
    return numbers / total, total
