"""Conditions on the levels of variables, and mixtures conditioned on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias, cast

import numpy as np

from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray, name_type
from pmflib.base.codes import Codes
from pmflib.base.display.summary import name_missing
from pmflib.base.errors import SchemaError
from pmflib.base.texts import abridge_names, list_near
from pmflib.model.sufficient_statistics import take_logs
from pmflib.schema import Schema, Variable
from pmflib.schema.variable import MISSING, as_text

Level: TypeAlias = str | float | bool
LevelSet: TypeAlias = Level | Collection[Level] | Codes
Given: TypeAlias = Mapping[str | int, LevelSet] | Mapping[str, LevelSet] | Mapping[int, LevelSet]
"""Mapping from a variable, by name or position, to an answer, a collection of answers, or `Codes`."""
Conditions: TypeAlias = Mapping[int, tuple[int, ...]]
"""Mapping from the position of a variable to its allowed codes, in ascending order."""

SHOWN = 6
"""Number of levels of a condition that a message names."""


def encode_level(variable: Variable, level: object) -> int:
    """Return the code of a level, given as an answer: a text, a number or a boolean.

    Raises
    ------
    SchemaError
        If the variable has no such level.
    """
    code = find_code(variable, level)
    if not 0 <= code < variable.cardinality:
        raise SchemaError(explain_no_level(variable, level))
    return code


def find_code(variable: Variable, text: object) -> int:
    """Return the code of a text as `Variable.encode_value` does; Python's "True" also matches the level "true"."""
    code = variable.encode_value(text)
    written = as_text(text).strip().casefold()
    if written in ("true", "false") and (code < 0 or variable.levels[code] == variable.other):
        alike = [n for n, each in enumerate(variable.levels) if each.casefold() == written]
        return alike[0] if len(alike) == 1 else code
    return code


def explain_no_level(variable: Variable, level: object) -> str:
    """Return a message that a variable has no such level: the valid levels, or that the value was declared missing."""
    text, position = as_text(level), ""
    if variable.encode_value(text) == MISSING:
        return (
            f"variable {variable.name!r} has no level {level!r}: it was declared missing, as "
            f"{name_missing(variable.missing)} are; take it out of its missing codes to make it a level, or leave the "
            "condition out"
        )
    if (
        isinstance(level, int | np.integer)
        and not isinstance(level, bool)
        and 0 <= level < variable.cardinality
    ):
        position = f"; a number is an answer, no position: that at {level} is {variable.levels[int(level)]!r}"
    close = list_near(text, variable.levels)
    hint = f"did you mean {close}? Its levels" if close else "levels"
    return (
        f"variable {variable.name!r} has no level {level!r}; {hint} are "
        f"{abridge_names(variable.levels, 12)}{position}"
    )


def encode_conditions(schema: Schema, given: Given | None) -> dict[int, tuple[int, ...]]:
    """Encode conditions as allowed codes, by position of the variable.

    Parameters
    ----------
    schema
        The schema.
    given
        Level of each variable, or a collection of allowed levels: answers, in the words or numbers of the data, or
        `Codes`. None means no condition.

    Raises
    ------
    SchemaError
        If given is not a mapping, a variable or level is unknown, a variable occurs twice, or a collection is empty.
    """
    if getattr(given, "ndim", None) == 1 and hasattr(given, "to_dict"):
        # a row of a frame
        given = cast(Any, given).to_dict()
    if given is not None and not isinstance(given, Mapping):
        raise SchemaError(
            f"given is {given!r}, {name_type(given)}; pass a level by variable, as {{'smokes': 'yes'}}"
        )
    conditions: dict[int, tuple[int, ...]] = {}
    for name, levels in (given or {}).items():
        position = schema.position(name)
        # anything but a collection is treated as a single level, and rejected if it is not one
        single = isinstance(levels, str) or not isinstance(levels, Collection)
        requested: Any = [levels] if single else levels
        if isinstance(levels, Codes):
            codes = set(levels.ravel().tolist())
            if codes and not 0 <= min(codes) <= max(codes) < schema[position].cardinality:
                raise SchemaError(f"given[{name!r}] is {levels!r}; codes are those of levels")
        else:
            codes = {encode_level(schema[position], each) for each in requested}
        if not codes or position in conditions:
            raise SchemaError(
                f"given[{name!r}] is {levels!r}: each may occur once, with a level or some levels"
            )
        conditions[position] = tuple(sorted(codes))
    return conditions


def list_few(conditions: Conditions) -> Iterator[tuple[int, ...]]:
    """List each position, and then each pair of them."""
    yield from ((position,) for position in conditions)
    yield from combinations(conditions, 2)


def find_unseen(table: IntArray, offsets: IntArray, conditions: Conditions) -> tuple[int, ...]:
    """Find conditions that no row of the data satisfies jointly, from the counts of pairs.

    Parameters
    ----------
    table
        int64 of shape (n_levels, n_levels), symmetric: co-occurrence counts of all levels, with the count of each level
        on the diagonal.
    offsets
        int64 of shape (n_variables + 1,): first row of each variable.
    conditions
        As from `encode_conditions`.

    Returns
    -------
    Positions of one variable or two; empty if every pair occurs, which does not imply that triples do.
    """
    for positions in list_few(conditions):
        if not count_meeting(table, offsets, conditions, positions):
            return positions
    return ()


def count_meeting(
    table: IntArray, offsets: IntArray, conditions: Conditions, positions: Sequence[int]
) -> int:
    """Count the rows that satisfy one condition or two; see `find_unseen`."""
    rows = [int(offsets[position]) + np.array(conditions[position]) for position in positions]
    if len(rows) == 1:
        return int(table[rows[0], rows[0]].sum())
    return int(table[np.ix_(*rows)].sum())


def describe_conditions(
    schema: Schema, conditions: Conditions, positions: Sequence[int] | None = None
) -> str:
    """Format conditions as text, ``A=5 and C in {x, y}``, for some positions or all."""
    said = []
    for position in conditions if positions is None else positions:
        variable, codes = schema[position], conditions[position]
        levels = [variable.levels[code] for code in codes[:SHOWN]]
        if len(codes) == 1:
            said.append(f"{variable.name}={levels[0]}")
        else:
            more = ", ..." if len(codes) > SHOWN else ""
            said.append(f"{variable.name} in {{{', '.join(levels)}{more}}}")
    return " and ".join(said)


def find_able_states(
    prior: FloatArray, factors: FloatArray, offsets: IntArray, conditions: Conditions
) -> BoolArray:
    """Find the states of nonzero probability in which every condition can be satisfied.

    Parameters
    ----------
    prior, factors
        float64 of shapes (rank,) and (n_levels, rank).
    offsets
        int64 of shape (n_variables + 1,): first row of each variable.
    conditions
        Allowed codes of each variable, by position.

    Returns
    -------
    bool of shape (rank,).
    """
    able = np.asarray(prior > FLOOR)
    for position, codes in conditions.items():
        able &= (factors[int(offsets[position]) + np.array(codes)] > FLOOR).any(axis=0)
    return able


def condition_states(
    prior: FloatArray, factors: FloatArray, offsets: IntArray, conditions: Conditions
) -> tuple[FloatArray, FloatArray, float]:
    """Condition a mixture of independent variables on levels of some variables.

    Parameters
    ----------
    prior, factors, offsets, conditions
        As for `find_able_states`.

    Returns
    -------
    Prior and factors given the conditions, and the log-probability of the conditions, nats. If the conditions are
    impossible, it is -inf and prior and factors are unchanged.
    """
    unchanged, factors = factors, factors.copy()
    masses = np.empty((len(conditions), prior.size))
    for mass, (position, codes) in zip(masses, conditions.items(), strict=True):
        block = factors[offsets[position] : offsets[position + 1]]
        kept = np.zeros((len(block), 1))
        kept[list(codes)] = 1.0
        if len(codes) == len(block):
            mass[:] = 1.0
            continue
        mass[:] = block[list(codes)].sum(axis=0)
        # a state in which these levels have no mass has prior 0, too
        block[:] = np.where(mass > FLOOR, block * kept / np.maximum(mass, FLOOR), kept / kept.sum())
        block /= block.sum(axis=0)
    log_prior, log_masses = take_logs(prior, masses)
    logs: FloatArray = log_prior + log_masses.sum(axis=0)
    logs[(prior <= FLOOR) | (masses <= FLOOR).any(axis=0)] = -np.inf
    if logs.max() == -np.inf:
        return prior, unchanged, -np.inf
    weights = np.exp(logs - logs.max())
    log_probability = float(logs.max() + np.log(weights.sum()))
    return weights / weights.sum(), factors, log_probability
