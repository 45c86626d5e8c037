"""A variable: its levels, the encoding of raw values, and its display."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.display.summary import (
    MOST_ROWS,
    Summarised,
    Summary,
    SummaryTable,
    cut,
    format_count,
    join_some,
    name_missing,
)
from pmflib.base.errors import SchemaError
from pmflib.base.texts import abridge_names, fold_text

MISSING = -1
"""Code of a missing value."""
UNKNOWN = -2
"""Code of a value that is not a level of the variable; never stored."""
UNDECODABLE = -3
"""Code of bytes that are not valid UTF-8; never stored."""

MAX_LEVELS = 32767
"""Maximum number of levels, because codes are at most int16."""

NEAR = 1 << 12
"""Range of integers that are encoded by a lookup table."""

Role = Literal["nominal", "ordinal", "continuous"]
"""Role of a variable: names, ordered names with a number each, or bins of numbers."""

DEFAULT_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Texts that mean "not given" by default."""


@dataclass(frozen=True)
class Part:
    """One of the answers in cells that hold several: "a;c" is a yes to "a" and to "c", and a no to the others.

    Parameters
    ----------
    column
        Column of the cells.
    sign
        Sign between the answers of a cell.
    answers
        All known answers; a cell with another one is an unknown level.
    answer
        The answer that the variable is about.
    """

    column: str
    sign: str
    answers: tuple[str, ...]
    answer: str


def split_answers(text: str, sign: str, missing: Collection[str]) -> set[str]:
    """Split a cell into its answers; empty if nothing is given."""
    pieces = {piece.strip() for piece in text.split(sign)}
    return pieces.difference(("",), missing)


@dataclass(frozen=True)
class Variable(Summarised):
    """A categorical variable.

    Parameters
    ----------
    name
        Column of a wide table, or value in the variable column of a long log.
    levels
        Labels in order; the code of a label is its index. At least one, all distinct.
    values
        A number per level of an ordinal variable, used for expected values. None otherwise.
    edges
        Interior bin edges of a continuous variable, ``len(levels) - 1`` increasing numbers; level i contains
        ``edges[i-1] <= x < edges[i]``. None otherwise.
    missing
        Texts that mean "not given".
    other
        Level for texts that are none of the levels; None if such texts do not fit the variable. Not for continuous
        variables.
    folded
        Whether a text that differs from a level only in case or Unicode composition counts as that level.
    part
        The answer, among several in a cell, that the variable is about: its levels are no and yes, in this order. A
        cell without answers is missing. None for a column of its own.
    absent
        Level of a cell in which nothing is given, and in a long log of a variable without a row of the sample; None if
        it is missing.

    Raises
    ------
    SchemaError
        If levels are empty, repeated or too many, or values, edges or other do not fit them.
    """

    name: str
    levels: tuple[str, ...]
    values: tuple[float, ...] | None = None
    edges: tuple[float, ...] | None = None
    missing: tuple[str, ...] = DEFAULT_MISSING
    other: str | None = None
    folded: bool = False
    part: Part | None = None
    absent: str | None = None

    def __post_init__(self) -> None:
        levels: Any = self.levels
        if isinstance(levels, str) or not all(isinstance(each, str) for each in levels):
            raise SchemaError(
                f"variable {self.name!r} has levels {self.levels!r}; pass a list of texts, as ('no', 'yes')"
            )
        n = len(self.levels)
        if not 1 <= n <= MAX_LEVELS:
            raise SchemaError(
                f"variable {self.name!r} has {n} levels, outside [1, {MAX_LEVELS}]; "
                "merge levels, give bin edges, or leave the variable out"
            )
        if self.values is not None and len(self.values) != n:
            raise SchemaError(
                f"variable {self.name!r} has {len(self.values)} values for {n} levels; pass one value per level"
            )
        if self.values is not None and not all(map(math.isfinite, self.values)):
            raise SchemaError(
                f"variable {self.name!r} has a value that is not finite: {self.values}"
            )
        if self.edges is not None:
            if len(self.edges) != n - 1:
                raise SchemaError(
                    f"variable {self.name!r} has {len(self.edges)} edges for {n} levels; "
                    "interior edges are one fewer than the levels"
                )
            rising = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
            if not rising or not all(map(math.isfinite, self.edges)):
                raise SchemaError(
                    f"variable {self.name!r} has edges that do not increase or are not finite: {self.edges}"
                )
        if self.other is not None and (self.edges is not None or self.other not in self.levels):
            raise SchemaError(
                f"variable {self.name!r} has other = {self.other!r}, which must be one of its levels, and a continuous "
                "column has none; add the level, or take out other"
            )
        if self.absent is not None and (self.edges is not None or self.absent not in self.levels):
            raise SchemaError(
                f"variable {self.name!r} has absent = {self.absent!r}, which must be one of its levels, and continuous "
                "columns have none; add the level, or take out absent"
            )
        part = self.part
        if part and (n != 2 or not part.sign or part.answer not in part.answers):
            raise SchemaError(
                f"variable {self.name!r} has {n} levels and is the part {part}; pass two levels, no and yes, a sign, "
                "and one of the answers"
            )
        keys = [self._key(level) for level in self.levels]
        if len(set(keys)) < n:
            twice = sorted({k for k in keys if keys.count(k) > 1})
            raise SchemaError(f"variable {self.name!r} has the same level more than once: {twice}")

    def summary(self) -> Summary:
        """Return a summary of levels with their codes, values or bins: text in a terminal, HTML in a notebook."""
        from pmflib.base.display.summary import cut, decimal, format_count, name_missing

        facts = [("missing", name_missing(self.missing))]
        if self.other is not None:
            facts.append(("any other text", f"counts as {cut(self.other)!r}"))
        columns: tuple[str, ...] = (">code", "level")
        if self.role != "nominal":
            columns += (">value",) if self.role == "ordinal" else ("holds",)
        rows = []
        for code, level in enumerate(self.levels[:MOST_ROWS]):
            row: tuple[str, ...] = (str(code), cut(level))
            if self.edges is not None:
                row += (_name_bin(self.edges, code),)
            elif self.values is not None:
                row += (decimal(self.values[code], 6),)
            rows.append(row)
        table = SummaryTable("Levels", columns, rows, self.cardinality, "variable.levels")
        headline = (
            f"Variable {cut(self.name)!r}: {self.role}, {format_count(self.cardinality)} levels"
        )
        return Summary(headline, tuple(facts), (), (table,))

    @property
    def column(self) -> str:
        """Return the name of the column in a wide table."""
        return self.name if self.part is None else self.part.column

    def list_known(self) -> str:
        """Name the levels, or the answers that a cell of several may hold, for a message."""
        if self.part is None:
            return f"levels are {abridge_names(self.levels)}"
        return f"answers, between {self.part.sign!r}, are {abridge_names(self.part.answers)}"

    @property
    def cardinality(self) -> int:
        """Return the number of levels."""
        return len(self.levels)

    @property
    def role(self) -> Role:
        """Return the role: continuous with bin edges, ordinal with a value per level, otherwise nominal."""
        if self.edges is not None:
            return "continuous"
        return "nominal" if self.values is None else "ordinal"

    @cached_property
    def is_numeric(self) -> bool:
        """Return whether levels, but for `other` and `absent`, are numbers, so that 5, "5" and "5.0" are the same."""
        numbers = [
            read_number(level) for level in self.levels if level not in (self.other, self.absent)
        ]
        return all(x is not None for x in numbers) and len(set(numbers)) == len(numbers)

    def _key(self, text: str) -> str:
        if self.edges is not None or self.is_numeric:
            number = read_number(text)
            if number is not None:
                return repr(number)
        return fold_text(text) if self.folded else text.strip()

    @cached_property
    def _codes(self) -> Mapping[str, int]:
        codes = {self._key(level): code for code, level in enumerate(self.levels)}
        if self.folded:
            return codes
        # a text listed as missing is missing, even if it could also be a level
        return codes | {self._key(text): MISSING for text in self.missing}

    @cached_property
    def _unknown(self) -> int:
        return UNKNOWN if self.other is None else self.levels.index(self.other)

    def encode_value(self, value: object) -> int:
        """Encode one raw value.

        Parameters
        ----------
        value
            Text, bytes in UTF-8, a number, a boolean or None; for a continuous variable also the label of a bin.

        Returns
        -------
        A code in [0, cardinality), or MISSING, UNKNOWN (never if the variable has `other`) or UNDECODABLE.
        """
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return MISSING
        if isinstance(value, bytes):
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError:
                return UNDECODABLE
        text = as_text(value)
        if isinstance(value, bool | np.bool_) and text not in self.levels:
            # a level may be written as Python does
            alike = [level for level in self.levels if level.casefold() == text]
            text = alike[0] if len(alike) == 1 else text
        if self.folded and text.strip() in self.missing:
            # "NA" is missing, but "Na" may be sodium
            return MISSING
        code = self._codes.get(self._key(text), self._unknown)
        if self.edges is None or code == MISSING:
            return code
        number = read_number(text)
        if number is None:
            return code
        return bisect_right(self.edges, number)

    def encode_cell(self, value: object) -> int:
        """Encode one raw value of the column; unlike for `encode_value`, it may hold several answers, or mean `absent`.

        Returns
        -------
        As from `encode_value`.
        """
        code = self.encode_value(value)
        if self.part is not None and code not in (MISSING, UNDECODABLE):
            text = value.decode("utf-8") if isinstance(value, bytes) else as_text(value)
            given = split_answers(text, self.part.sign, self.missing)
            code = int(self.part.answer in given) if given <= {*self.part.answers} else UNKNOWN
            code = code if given else MISSING
        return self.levels.index(self.absent) if code == MISSING and self.absent else code

    def encode_column(self, column: pa.Array | pa.ChunkedArray) -> IntArray:
        """Encode a column of raw values.

        Parameters
        ----------
        column
            Arrow values of length n_rows: text, bytes, numbers, booleans or a dictionary of these.

        Returns
        -------
        int16 of shape (n_rows,): codes, MISSING, UNKNOWN or UNDECODABLE.

        Raises
        ------
        SchemaError
            If the column is nested.
        """
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_nested(column.type):
            raise SchemaError(
                f"column {self.name!r} holds {column.type}; a value is a text, a number or a boolean"
            )
        if self.edges is not None and (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        ):
            return self._encode_numbers(column)
        if pa.types.is_integer(column.type):
            near = self._encode_near(column)
            if near is not None:
                return near
        if not pa.types.is_dictionary(column.type):
            # a batch has few distinct values, each of which is parsed once
            column = column.dictionary_encode()
        table = [self.encode_cell(value) for value in column.dictionary.to_pylist()]
        lookup = np.array([*table, self.encode_cell(None)], np.int16)
        positions = column.indices.fill_null(len(table)).to_numpy(zero_copy_only=False)
        codes: IntArray = lookup[positions]
        return codes

    def _encode_near(self, column: pa.Array) -> IntArray | None:
        """Encode integers in a small range by a lookup table; None if the range is larger."""
        # the values behind nulls are undefined
        whole = column.fill_null(0) if column.null_count else column
        numbers = whole.to_numpy(zero_copy_only=False)
        if not numbers.size or int(numbers.max()) - int(numbers.min()) >= NEAR:
            return None
        least = int(numbers.min())
        positions = (numbers - least).astype(np.intp)
        present = np.flatnonzero(np.bincount(positions))
        lookup = np.empty(int(present[-1]) + 1, np.int16)
        lookup[present] = [self.encode_cell(least + index) for index in present.tolist()]
        codes: IntArray = lookup[positions]
        if column.null_count:
            codes[column.is_null().to_numpy(zero_copy_only=False)] = self.encode_cell(None)
        return codes

    def _encode_numbers(self, column: pa.Array) -> IntArray:
        # unsafe casting rounds integers beyond 2**53, which still fall in their bin
        numbers = (
            column.cast(pa.float64(), safe=False).fill_null(math.nan).to_numpy(zero_copy_only=False)
        )
        codes: IntArray = np.searchsorted(np.asarray(self.edges), numbers, side="right").astype(
            np.int16
        )
        codes[np.isinf(numbers)] = UNKNOWN
        codes[np.isnan(numbers)] = MISSING
        coded = [number for text in self.missing if (number := read_number(text)) is not None]
        codes[np.isin(numbers, coded)] = MISSING
        return codes

    def numeric_values(self) -> FloatArray:
        """Return the values of the levels, float64 of shape (cardinality,).

        Raises
        ------
        SchemaError
            If the variable is not ordinal.
        """
        if self.values is None:
            raise SchemaError(
                f"variable {self.name!r} has no values, so it has no expected value; "
                "pass a number per level in the schema"
            )
        return np.asarray(self.values, np.float64)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON types, omitting absent fields."""
        out: dict[str, object] = {"name": self.name, "levels": list(self.levels)}
        if self.values is not None:
            out["values"] = list(self.values)
        if self.edges is not None:
            out["edges"] = list(self.edges)
        out["missing"] = list(self.missing)
        if self.other is not None:
            out["other"] = self.other
        if self.folded:
            out["folded"] = True
        if self.absent is not None:
            out["absent"] = self.absent
        if self.part is not None:
            out["part"] = {**asdict(self.part), "answers": list(self.part.answers)}
        return out

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], missing: tuple[str, ...] = DEFAULT_MISSING
    ) -> Variable:
        """Restore a variable from `to_json`; ``missing`` is used if the variable has no list of its own.

        Raises
        ------
        SchemaError
            If a field is missing, unknown or of another type.
        """
        if not isinstance(data, Mapping):
            raise SchemaError(f"a variable is {data!r}, not an object with a name and levels")
        known = {
            "name",
            "levels",
            "values",
            "edges",
            "missing",
            "other",
            "folded",
            "part",
            "absent",
        }
        if unknown := sorted(set(data) - known):
            raise SchemaError(
                f"variable {data.get('name')!r} has unknown fields {unknown}; known: {sorted(known)}"
            )
        for field in ("name", "levels"):
            if field not in data:
                raise SchemaError(f"a variable lacks its field {field!r}: {dict(data)}")
        return cls(
            str(data["name"]),
            _texts(data, "levels"),
            _numbers(data, "values"),
            _numbers(data, "edges"),
            _texts(data, "missing") if "missing" in data else missing,
            None if data.get("other") is None else as_text(data["other"]),
            bool(data.get("folded", False)),
            None if data.get("part") is None else _read_part(data),
            None if data.get("absent") is None else as_text(data["absent"]),
        )


def _read_part(data: Mapping[str, Any]) -> Part:
    part = data["part"]
    if not isinstance(part, Mapping) or {*part} != {field.name for field in fields(Part)}:
        raise SchemaError(
            f"variable {data['name']!r}: part is {part!r}; give column, sign, answers and answer"
        )
    texts = (str(part["column"]), str(part["sign"]))
    return Part(*texts, _texts({**part, "name": data["name"]}, "answers"), str(part["answer"]))


def as_text(value: object) -> str:
    """Format a raw value like a level: 5.0 is "5", True is "true"."""
    if isinstance(value, np.number | np.bool_):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_absent(value: object) -> bool:
    """Return whether a raw value is missing: None, NaN, or pandas' missing values."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def read_number(text: str) -> float | None:
    """Parse a text as a finite number; None if it is not one."""
    if "_" in text:
        # Python reads "18_24" as 1824
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number + 0.0 if math.isfinite(number) else None


def _texts(data: Mapping[str, Any], field: str) -> tuple[str, ...]:
    items = data[field]
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise SchemaError(f"variable {data['name']!r}: {field} is {items!r}, not a list of texts")
    if wrong := [item for item in items if not isinstance(item, str | int | float)]:
        raise SchemaError(f"variable {data['name']!r}: {field} has {wrong[0]!r}, which is no text")
    return tuple(as_text(item) for item in items)


def _numbers(data: Mapping[str, Any], field: str) -> tuple[float, ...] | None:
    items = data.get(field)
    if items is None:
        return None
    try:
        if isinstance(items, str):
            raise TypeError
        return tuple(float(item) for item in items)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"variable {data['name']!r}: {field} is {cut(repr(items))}, not a list of numbers between -1e308 and "
            "1e308"
        ) from None


def _name_bin(edges: tuple[float, ...], code: int) -> str:
    """Format the range of numbers in a level of a continuous variable."""
    from pmflib.base.display.summary import decimal

    parts = [f"{decimal(edges[code - 1], 6)} <= "] if code > 0 else []
    parts.append("x")
    if code < len(edges):
        parts.append(f" < {decimal(edges[code], 6)}")
    return "".join(parts) if len(parts) > 1 else "every number"


def summarise_schema(
    variables: Sequence[Variable], missing: Sequence[str], left_out: Sequence[str]
) -> Summary:
    """Return a summary with one row per variable: role, levels, and missing codes.

    Parameters
    ----------
    variables
        The variables, in order.
    missing
        Texts that are missing in all variables.
    left_out
        Columns that are not variables.
    """
    facts = [("missing in all", name_missing(missing))]
    if left_out:
        facts.append(("left out", join_some(left_out, len(left_out))))
    rows = [
        (
            str(index),
            cut(variable.name),
            variable.role,
            format_count(variable.cardinality),
            join_some(variable.levels, variable.cardinality),
            _name_own_missing(variable, missing),
        )
        for index, variable in enumerate(variables[:MOST_ROWS])
    ]
    table = SummaryTable(
        "Variables",
        (">place", "variable", "role", ">levels", "labels", "missing, other"),
        rows,
        len(variables),
        "schema.names, schema[name]",
    )
    n_levels = sum(variable.cardinality for variable in variables)
    headline = f"Schema: {format_count(len(variables))} variables, {format_count(n_levels)} levels"
    return Summary(headline, tuple(facts), (), (table,))


def _name_own_missing(variable: Variable, missing: Sequence[str]) -> str:
    """Format the missing codes and the level of other texts that are specific to a variable."""
    own = [text for text in variable.missing if text not in missing]
    parts = [name_missing(own)] if own else []
    if variable.other is not None:
        parts.append(f"others are {cut(variable.other)!r}")
    return "; ".join(parts)
