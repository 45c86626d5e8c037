"""The schema: an ordered set of variables, shared by all runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray, find_extremes, name_type
from pmflib.base.codes import Codes
from pmflib.base.constraints import check_distinct
from pmflib.base.display.summary import Summarised, Summary
from pmflib.base.errors import SchemaError
from pmflib.base.hooks import find_offers
from pmflib.base.json_files import read_json
from pmflib.base.texts import abridge_names, suggest, suggest_file
from pmflib.schema.tables import are_codes, as_arrow, name_columns
from pmflib.schema.variable import DEFAULT_MISSING, MISSING, UNDECODABLE, UNKNOWN, Role, Variable

SHOWN = 6
"""Number of variables in the short form of a schema."""


@dataclass(frozen=True)
class Schema(Summarised):
    """Ordered variables with names, levels, cardinalities and offsets.

    Cardinalities are those of the schema, not of particular data, so that counts of any two partitions can be added.

    Parameters
    ----------
    variables
        Variables, at least one, with distinct names.
    left_out
        Names of variables of a long log that are left out on purpose, for example by `pmf infer --min-count`. Their
        rows are counted, but not quarantined. The names do not affect equality and digest of schemas, because codes,
        counts and models do not depend on them.
    missing
        Texts that mean "not given" in every variable without a list of its own, so that they can be changed in one
        place. Each variable contains its effective list; this one does not affect comparisons.
    weight_decimals
        Number of decimals of the weights of samples, 0 to 18: the unit of weighted counts, so that those of any two
        partitions can be added. None chooses it when counting. It does not affect comparisons, because codes do not
        depend on it.

    Raises
    ------
    SchemaError
        If there is no variable, or a name is repeated.

    Examples
    --------
    >>> schema = Schema.infer({"smokes": ["yes", "no", None], "visits": [0, 2, 1]})
    >>> schema.cardinalities.tolist(), schema.names
    ([2, 3], ('smokes', 'visits'))
    >>> schema.encode({"smokes": ["no", ""], "visits": ["2", "0"]}).tolist()
    [[0, 2], [-1, 0]]
    """

    variables: tuple[Variable, ...]
    left_out: tuple[str, ...] = field(default=(), compare=False, repr=False)
    missing: tuple[str, ...] = field(default=DEFAULT_MISSING, compare=False, repr=False)
    weight_decimals: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.variables:
            raise SchemaError("a schema needs at least one variable; got none")
        if wrong := [each for each in self.variables if not isinstance(each, Variable)]:
            raise SchemaError(
                f"variables has {wrong[0]!r}, {name_type(wrong[0])}; pass a pmflib.Variable(name, levels), or draft a "
                "schema from data: pmflib.Schema.infer(table)"
            )
        names = [variable.name for variable in self.variables]
        check_distinct(names, "variables are")
        if both := sorted(set(names) & set(self.left_out)):
            raise SchemaError(
                f"left_out names {abridge_names(both)}, which are variables; take them out of one of the two"
            )

    def __repr__(self) -> str:
        """Return the first variables with their number of levels; for the complete schema see `to_json`."""
        shown = [f"{each.name!r} ({each.cardinality})" for each in self.variables[:SHOWN]]
        more = ", ..." if len(self.variables) > SHOWN else ""
        return f"Schema({self.n_variables} variables, {self.n_levels} levels: {', '.join(shown)}{more})"

    def summary(self) -> Summary:
        """Return a summary of variables, roles, levels and missing codes: text in a terminal, HTML in a notebook."""
        from pmflib.schema.variable import summarise_schema

        return summarise_schema(self.variables, self.missing, self.left_out)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the variables, in order."""
        return tuple(variable.name for variable in self.variables)

    @property
    def n_variables(self) -> int:
        """Return the number of variables."""
        return len(self.variables)

    @cached_property
    def cardinalities(self) -> IntArray:
        """Return the number of levels of each variable, int64 of shape (n_variables,)."""
        return np.array([variable.cardinality for variable in self.variables], np.int64)

    @cached_property
    def offsets(self) -> IntArray:
        """Return the first row of each variable in stacked tables, int64 of shape (n_variables + 1,)."""
        return np.concatenate([[0], np.cumsum(self.cardinalities)]).astype(np.int64)

    @property
    def n_levels(self) -> int:
        """Return the total number of levels."""
        return int(self.offsets[-1])

    @property
    def max_pairs_rank(self) -> int:
        """Return the largest rank of pairwise marginals, in which the columns of every variable have the same sum."""
        return self.n_levels - self.n_variables + 1

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Return int8, or int16 if a variable has more than 127 levels."""
        return np.dtype(np.int8 if self.cardinalities.max() <= 127 else np.int16)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 digest of the canonical JSON form; equal schemas have equal digests."""
        text = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def left_out_digest(self) -> str:
        """Return the SHA-256 digest of the names left out, in any order; empty if there are none."""
        text = json.dumps(sorted(self.left_out), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest() if self.left_out else ""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of a wide table, in which several variables may be parts of one column."""
        return tuple(dict.fromkeys(variable.column for variable in self.variables))

    @cached_property
    def coded_columns(self) -> tuple[str, ...]:
        """Return the names of the columns of levels, which bins of numbers have not."""
        named = (variable.column for variable in self.variables if variable.edges is None)
        return tuple(dict.fromkeys(named))

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def position(self, variable: str | int) -> int:
        """Return the index of a variable given by name or by index.

        Raises
        ------
        SchemaError
            If the variable does not exist.
        """
        if isinstance(variable, int | np.integer):
            if not 0 <= variable < self.n_variables:
                raise SchemaError(
                    f"variable {variable} is outside [0, {self.n_variables}); indices count from 0"
                )
            return int(variable)
        if not isinstance(variable, str):
            raise SchemaError(
                f"variable is {variable!r}, {name_type(variable)}; pass one name, or an index in "
                f"[0, {self.n_variables})"
            )
        if variable not in self._positions:
            hint = suggest(variable, self.names) or (
                f"; the schema has {self.n_variables}: {abridge_names(self.names, 5)}"
            )
            raise SchemaError(f"variable {variable!r} is not in the schema{hint}")
        return self._positions[variable]

    def __getitem__(self, variable: str | int) -> Variable:
        """Return a variable given by name or index."""
        return self.variables[self.position(variable)]

    def __iter__(self) -> Iterator[Variable]:
        """Iterate over the variables in order."""
        return iter(self.variables)

    def __contains__(self, name: object) -> bool:
        """Return whether a variable has this name."""
        return name in self._positions

    def rows_of(self, variable: str | int) -> slice:
        """Return the rows of a variable in tables stacked by level, such as the factors."""
        index = self.position(variable)
        return slice(int(self.offsets[index]), int(self.offsets[index + 1]))

    def select(self, positions: IntArray) -> Schema:
        """Return a schema of some of the variables, by their positions, int64."""
        return Schema(tuple(self.variables[position] for position in positions.tolist()))

    @classmethod
    def from_cardinalities(cls, cardinalities: IntArray | Sequence[int]) -> Schema:
        """Make a schema of unnamed variables: v0, v1, ... with levels "0", "1", ... and values 0, 1, ...

        Raises
        ------
        SchemaError
            If a cardinality is below 1.
        """
        given = np.asarray(cardinalities)
        whole = np.issubdtype(given.dtype, np.integer) or not given.size
        if given.ndim != 1 or not whole:
            shown = (
                f"of {given.dtype} of shape {given.shape}" if given.ndim else repr(cardinalities)
            )
            raise SchemaError(
                f"cardinalities is {name_type(cardinalities)} {shown}; pass a Schema, or whole numbers: how many "
                "levels each variable has"
            )
        sizes = [int(size) for size in given]
        return cls(
            tuple(
                Variable(f"v{n}", tuple(map(str, range(size))), tuple(map(float, range(size))))
                for n, size in enumerate(sizes)
            )
        )

    @classmethod
    def infer(
        cls,
        table: object,
        *,
        missing: Sequence[str] = DEFAULT_MISSING,
        max_levels: int = 32,
        bins: int = 8,
        split: Mapping[str, str] | None = None,
        absent: str | None = None,
    ) -> Schema:
        """Infer a schema from a table in memory; `pmf infer` does this for files of any size, with explanations.

        Columns that identify rows, and columns without values, with free text, or with many times, are left out with a
        warning; those of arrays, which have no names, are variables v0, v1, ... in any case. Levels of a pandas
        Categorical or a polars Enum keep their order, including levels without values; an ordered Categorical is
        ordinal.

        Parameters
        ----------
        table
            Arrow table, pandas or polars DataFrame, or mapping of column names to values; or an array of answers of
            shape (n_rows, n_columns), at least one row: numbers or texts, of which NaN and None are missing; or
            `Codes`. In an array of integers, -1 is missing, and is refused where it may be an answer, as with 0 and 1.
        missing, max_levels, bins
            As in `propose_variable`.
        split
            Columns whose cells hold several answers, with the sign between these: ``{"interests": ";"}`` makes a
            variable of no and yes for each answer, missing in rows without any answer.
        absent
            Level of empty cells in columns of one value, such as ticks: "no" makes it a variable of no and the value.

        Raises
        ------
        SchemaError
            If no column can be a variable, a column cannot be split, or -1 may be an answer or missing.
        """
        found: Schema | None = None
        if isinstance(table, np.ndarray):
            if split:
                raise SchemaError(f"split names columns, {list(split)}; pass a table with names")
            if isinstance(table, Codes) or are_codes(table):
                highest = table.max(axis=0, initial=0).astype(np.int64)
                found = cls.from_cardinalities(highest + 1)
                gaps = table == MISSING
                if isinstance(table, Codes) or not gaps.any():
                    return found
                table = np.where(gaps.all(axis=0), 0, table)
        draft = find_offers("drafts").get("tables")
        if draft is not None:
            # it refuses -1 that may be an answer, also in what would be codes
            drafted: Schema = draft(
                table, missing=missing, max_levels=max_levels, bins=bins, split=split, absent=absent
            )
            found = found or drafted
        if found is None:
            raise SchemaError(
                "no feature of this installation infers a schema from values; make one by "
                "pmflib.Schema.from_cardinalities, pmflib.Schema.load, or of pmflib.Variable(name, levels)"
            )
        return found

    def set(
        self,
        name: str,
        *,
        levels: Sequence[str] | None = None,
        role: Role | None = None,
        missing: Sequence[str] | None = None,
        other: int | None = None,
        bins: int | None = None,
        drop: bool = False,
        table: object = None,
    ) -> Schema:
        """Change one variable, as `pmf schema set` does; the schema itself is not changed.

        Parameters
        ----------
        name
            The variable, or a column of the table that was left out.
        levels
            All levels in their order, which makes them ordinal unless the role is nominal.
        role
            Role of the variable.
        missing
            Missing codes, in addition to those of `infer`; with "none" among them, in addition to empty cells only.
        other
            Number of levels to keep, while the others are merged into one; 0 keeps all.
        bins
            Number of bins of a continuous variable, at least 2.
        drop
            Whether to leave the variable out.
        table
            Table from which levels and bins are drafted again; not needed with levels or drop.

        Returns
        -------
        The changed schema.

        Raises
        ------
        SchemaError
            If the column is unknown, values are needed and there is no table, or the values do not allow the change.

        Examples
        --------
        >>> schema = Schema.infer({"size": ["small", "large", "medium"] * 4, "sold": [0, 1, 1] * 4})
        >>> schema.set("size", levels=["small", "medium", "large"])["size"].values
        (1.0, 2.0, 3.0)
        """
        change = find_offers("drafts").get("changes")
        if change is None:
            raise SchemaError(
                "no feature of this installation drafts variables; make one by pmflib.Variable(name, levels)"
            )
        changed: Schema = change(
            self,
            name,
            table,
            levels=levels,
            role=role,
            missing=missing,
            other=other,
            bins=bins,
            is_dropped=drop,
        )
        return changed

    def encode(
        self, table: object, *, optional: Sequence[str] = (), hidden: str | None = None
    ) -> Codes:
        """Encode a table in memory; columns that are not variables are ignored.

        Parameters
        ----------
        table
            Arrow table, pandas or polars DataFrame, or mapping of column names to values; or an array of answers of
            shape (n_rows, n_variables), in the order of the variables; or `Codes`, which are checked. In an array of
            integers, -1 is missing unless it is a level or in a bin.
        optional
            Variables whose column may be absent, in which case they are missing in every row.
        hidden
            Variable that is set to missing in every row, even if its column is absent.

        Returns
        -------
        `Codes` of `code_dtype` and shape (n_rows, n_variables); -1 is missing.

        Raises
        ------
        SchemaError
            If a column is absent, a value is not a level of its variable, or a code is out of range.
        """
        if self.holds_codes(table):
            if hidden is not None and table.ndim == 2 and table.shape[1] == self.n_variables:
                table = table.copy()
                table[:, self.position(hidden)] = MISSING
            return Codes(self.check_codes(table))
        hint, gaps = "", None
        if isinstance(table, np.ndarray):
            self._check_shape(table)
            if np.issubdtype(table.dtype, np.integer):
                # integers have no other sign of a gap
                gaps = table == MISSING
            if np.issubdtype(table.dtype, np.number):
                hint = (
                    "; an array holds answers: codes are of type pmflib.Codes, from schema.encode or as "
                    "pmflib.Codes(array)"
                )
            table = name_columns(table, self.names)
        columns = as_arrow(table, {*self.columns, *self.names})
        for name in (*optional, *(() if hidden is None else (hidden,))):
            self.position(name)
        codes = np.full((columns.num_rows, self.n_variables), MISSING, self.code_dtype)
        for index, variable in enumerate(self.variables):
            if variable.name == hidden:
                continue
            name = variable.column
            if name not in columns.column_names and variable.name in columns.column_names:
                # a part may have a column of its own, of no and yes
                variable = replace(variable, part=None)
                name = variable.name
            if name not in columns.column_names:
                if variable.name in optional:
                    continue
                raise SchemaError(
                    f"column {name!r} is absent; the table has {abridge_names(columns.column_names)}. "
                    f"Add it (empty values are missing), or name it optional{self._suggest_column(variable, columns)}"
                )
            column = variable.encode_column(columns[name])
            if gaps is not None:
                column[gaps[:, index] & (column == UNKNOWN)] = variable.encode_cell(None)
            bad = np.flatnonzero(column < MISSING)
            if bad.size:
                row = int(bad[0])
                value = columns[name][row].as_py()
                raise SchemaError(
                    f"row {row}, column {name!r}: {value!r} "
                    f"{'is not UTF-8' if column[row] == UNDECODABLE else 'is no level'}; "
                    f"{variable.list_known()}, missing is {abridge_names(variable.missing)} "
                    f"({bad.size} such rows){suggest(value, variable.levels)}{hint}"
                )
            codes[:, index] = column
        return Codes(codes)

    def holds_codes(self, table: object) -> TypeGuard[IntArray]:
        """Return whether a table is an array of codes, or of integers that equal their codes."""
        if isinstance(table, Codes):
            return True
        is_array = isinstance(table, np.ndarray) and np.issubdtype(table.dtype, np.integer)
        return is_array and self._has_codes_as_levels

    @cached_property
    def _has_codes_as_levels(self) -> bool:
        """Whether the answers of all variables are 0, 1, ..., which equal their codes."""
        return all(
            variable.role != "continuous"
            and {variable.part, variable.absent, variable.other} == {None}
            and variable.levels == tuple(map(str, range(variable.cardinality)))
            and not {*variable.levels} & {*variable.missing}
            for variable in self.variables
        )

    def _suggest_column(self, variable: Variable, columns: pa.Table) -> str:
        """Return a suggestion if a column of the table may be the variable under another name."""
        free = [name for name in columns.column_names if name not in self._positions]
        return suggest(variable.name, free)

    def check_codes(self, codes: np.ndarray[Any, Any]) -> IntArray:
        """Validate an array of codes and convert it to the schema's dtype.

        Raises
        ------
        SchemaError
            If shape, dtype or range is wrong.
        """
        self.check_shape(codes)
        lows, highs = find_extremes(codes) if len(codes) else (MISSING, MISSING)
        if np.any(lows < MISSING) or np.any(highs >= self.cardinalities):
            outside = (codes < MISSING) | (codes >= self.cardinalities)
            row, column = map(int, np.argwhere(outside)[0])
            value = codes[row, column]
            if codes[codes != MISSING].min() >= 1 and np.all(highs <= self.cardinalities):
                remedy = (
                    "no code is 0: if they count from 1, subtract 1 from all that are not missing"
                )
            else:
                remedy = f"they count from 0, and -1 is missing: codes[codes == {value}] = -1, if {value} means that"
            raise SchemaError(
                f"codes[{row}, {column}] is {value}, outside [-1, {self.cardinalities[column]}) of "
                f"{self.names[column]!r}; {remedy}"
            )
        return np.ascontiguousarray(codes, self.code_dtype)

    def check_shape(self, codes: np.ndarray[Any, Any]) -> None:
        """Check the shape and dtype of an array of codes, but not its range.

        Raises
        ------
        SchemaError
            If shape or dtype is wrong.
        """
        if not isinstance(codes, np.ndarray):
            raise SchemaError(
                f"codes is {name_type(codes)}; pass an array of integers, such as schema.encode(table) gives"
            )
        self._check_shape(codes)
        if not np.issubdtype(codes.dtype, np.integer):
            remedy = "if it holds labels, give a table with named columns instead"
            if np.issubdtype(codes.dtype, np.floating):
                remedy = "of floats with NaN: np.where(np.isnan(codes), -1, codes).astype(int)"
            raise SchemaError(
                f"codes has dtype {codes.dtype}; codes are integers, -1 where missing; {remedy}"
            )

    def _check_shape(self, codes: np.ndarray[Any, Any]) -> None:
        if codes.ndim != 2 or codes.shape[1] != self.n_variables:
            single = (
                "; a single row is codes[None, :]" if codes.shape == (self.n_variables,) else ""
            )
            raise SchemaError(
                f"codes has shape {codes.shape}, expected (n_rows, {self.n_variables}){single}"
            )

    def decode(self, codes: IntArray) -> pa.Table:
        """Decode codes to labels: an Arrow table of strings, null if missing; the inverse of `encode`."""
        codes = self.check_codes(codes)
        columns = {}
        for index, variable in enumerate(self.variables):
            column = codes[:, index]
            labels = pa.array(variable.levels, pa.string())
            columns[variable.name] = labels.take(
                pa.array(np.where(column < 0, 0, column), mask=column < 0)
            )
        return pa.table(columns)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON types, on which the digest is based."""
        return {
            "format": "pmf-schema-1",
            "variables": [variable.to_json() for variable in self.variables],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schema:
        """Restore a schema from `to_json` or `save`; ``review`` and ``draft``, which are for reviewers, are ignored.

        Raises
        ------
        SchemaError
            If the format or a field is unknown.
        """
        found = data.get("format") if isinstance(data, Mapping) else type(data).__name__
        if found != "pmf-schema-1" or not isinstance(data.get("variables"), list):
            raise SchemaError(
                f"not a schema: format is {found!r}, expected 'pmf-schema-1' with a list of variables"
            )
        left_out = data.get("left_out", [])
        if not isinstance(left_out, list) or not all(isinstance(name, str) for name in left_out):
            raise SchemaError("left_out is no list of names; correct it, or remove it")
        missing = data.get("missing", list(DEFAULT_MISSING))
        if not isinstance(missing, list) or not all(isinstance(text, str) for text in missing):
            raise SchemaError(
                f"missing is {missing!r}, not a list of texts; correct it, or remove it"
            )
        decimals = data.get("weight_decimals")
        if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= 18):
            raise SchemaError(
                f"weight_decimals is {decimals!r}; pass a whole number from 0 to 18, or remove it"
            )
        variables = (Variable.from_json(each, tuple(missing)) for each in data["variables"])
        return cls(tuple(variables), tuple(left_out), tuple(missing), decimals)

    def save(
        self,
        path: str | Path,
        *,
        review: Sequence[str] = (),
        draft: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the schema as JSON, with the names left out, notes for its reviewer and its draft.

        Texts that mean "not given" are stored once, and for variables with a list of their own.
        """
        data = {"format": "pmf-schema-1", "missing": list(self.missing)} | self.to_json()
        for variable in data["variables"]:
            if variable["missing"] == data["missing"]:
                del variable["missing"]
        data |= {"left_out": list(self.left_out)} if self.left_out else {}
        if self.weight_decimals is not None:
            data["weight_decimals"] = self.weight_decimals
        data |= {"review": list(review)} if review else {}
        data |= {"draft": dict(draft)} if draft else {}
        Path(path).write_text(
            json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Load a schema from a JSON file.

        Raises
        ------
        SchemaError
            If the file is missing, cannot be read, is not JSON, or is not a schema.
        """
        try:
            data = read_json(Path(path))
        except FileNotFoundError:
            raise SchemaError(
                f"schema file {str(path)!r} does not exist; `pmf infer` drafts one{suggest_file(Path(path))}"
            ) from None
        except OSError as error:
            raise SchemaError(f"schema file {str(path)!r} cannot be read: {error}") from None
        except ValueError as error:
            raise SchemaError(f"schema file {str(path)!r} is not JSON: {error}") from None
        return cls.from_json(data)
