"""Conditions: levels that variables are given to have, and the model of those who have them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from pmflib.argument_checks import name_type
from pmflib.arrays import IntArray
from pmflib.errors import PmfError, SchemaError
from pmflib.model import JointPMF
from pmflib.model.state_conditions import find_able_states
from pmflib.near_names import list_near
from pmflib.schema import Schema, Variable

Wanted: TypeAlias = str | int | Collection[str] | Collection[int] | Collection[str | int]
Given: TypeAlias = Mapping[str | int, Wanted] | Mapping[str, Wanted] | Mapping[int, Wanted]
"""Variable by name or place, and what it is given to be: a label, a code, or a collection of these."""
Conditions: TypeAlias = Mapping[int, tuple[int, ...]]
"""Codes that each variable is given to have one of, by place; in order."""

SHOWN = 6
"""Levels of a condition that a message names."""


def encode_level(variable: Variable, level: str | int) -> int:
    """Code of a level of a variable: a label, or a code.

    Raises
    ------
    SchemaError
        If the variable has no such level.
    """
    is_code = isinstance(level, int | np.integer)
    code = int(level) if is_code else variable.encode_value(level)
    if not 0 <= code < variable.cardinality:
        close = list_near(str(level), variable.levels)
        hint = f"did you mean {close}? Its levels" if close else "levels"
        raise SchemaError(
            f"variable {variable.name!r} has no level {level!r}; {hint} are {variable.levels[:12]}"
        )
    return code


def encode_conditions(schema: Schema, given: Given | None) -> dict[int, tuple[int, ...]]:
    """Codes that variables are given to have one of, by place.

    Parameters
    ----------
    schema
        The schema.
    given
        Level of each variable, or a collection of levels that it has one of: labels or codes. None is no condition.

    Raises
    ------
    SchemaError
        If given is no mapping, a variable or level is unknown, a variable occurs twice, or a collection is empty.
    """
    if given is not None and not isinstance(given, Mapping):
        raise SchemaError(
            f"given is {given!r}, {name_type(given)}; give a level by variable, as {{'smokes': 'yes'}}"
        )
    conditions: dict[int, tuple[int, ...]] = {}
    for name, levels in (given or {}).items():
        place = schema.position(name)
        # what is no collection is taken for a level, and refused as such
        single = isinstance(levels, str) or not isinstance(levels, Collection)
        wanted: Any = [levels] if single else levels
        codes = {encode_level(schema[place], each) for each in wanted}
        if not codes or place in conditions:
            raise SchemaError(
                f"given[{name!r}] is {levels!r}: each may occur once, with a level or some levels"
            )
        conditions[place] = tuple(sorted(codes))
    return conditions


def condition(model: JointPMF, conditions: Conditions) -> tuple[JointPMF, float]:
    """Condition a model: the joint PMF of those who meet some conditions, which is a mixture of the same states again.

    Parameters
    ----------
    model
        The model.
    conditions
        As from `encode_conditions`.

    Returns
    -------
    The model given the conditions, whose prior is the posterior of the states and whose factors of the variables
    that are given have mass on the given levels alone; and the log-probability of the conditions, nats.

    Raises
    ------
    PmfError
        If nobody can meet the conditions: they have probability 0.
    """
    if not conditions:
        return model, 0.0
    if places := find_impossible(model, conditions):
        raise PmfError(
            f"nobody can have {describe_conditions(model.schema, conditions, places)}: the model gives that "
            "probability 0, and no answer; leave a condition out, or fit with a larger pseudo-count"
        )
    return model.condition_codes(conditions)


def find_impossible(model: JointPMF, conditions: Conditions) -> tuple[int, ...]:
    """Find conditions that nobody can meet together: probability 0 under the model.

    Parameters
    ----------
    model
        The model.
    conditions
        As from `encode_conditions`.

    Returns
    -------
    Places of one variable, or two, or all that are given: the fewest that are impossible; empty where all are possible.
    """
    able = {
        place: find_able_states(model.prior, model.factors, model.schema.offsets, {place: codes})
        for place, codes in conditions.items()
    }
    for places in _list_few(conditions):
        if not np.all([able[place] for place in places], axis=0).any():
            return places
    return () if model.can_meet(conditions) else tuple(conditions)


def find_unseen(table: IntArray, offsets: IntArray, conditions: Conditions) -> tuple[int, ...]:
    """Find conditions that no row of the data meets together, by counts of pairs.

    Parameters
    ----------
    table
        int64 of shape (n_levels, n_levels), symmetric: co-occurrence counts of all levels, each level with itself on
        the diagonal.
    offsets
        int64 of shape (n_variables + 1,): first row of each variable.
    conditions
        As from `encode_conditions`.

    Returns
    -------
    Places of one variable or two; empty where each pair was seen, which says nothing of three.
    """
    for places in _list_few(conditions):
        if not count_meeting(table, offsets, conditions, places):
            return places
    return ()


def count_meeting(
    table: IntArray, offsets: IntArray, conditions: Conditions, places: Sequence[int]
) -> int:
    """Count the rows that meet one condition or two; see `find_unseen`."""
    rows = [int(offsets[place]) + np.array(conditions[place]) for place in places]
    if len(rows) == 1:
        return int(table[rows[0], rows[0]].sum())
    return int(table[np.ix_(*rows)].sum())


def describe_conditions(
    schema: Schema, conditions: Conditions, places: Sequence[int] | None = None
) -> str:
    """Conditions in words: ``A=5 and C in {x, y}``; those of some places, or all."""
    said = []
    for place in conditions if places is None else places:
        variable, codes = schema[place], conditions[place]
        levels = [variable.levels[code] for code in codes[:SHOWN]]
        if len(codes) == 1:
            said.append(f"{variable.name}={levels[0]}")
        else:
            more = ", ..." if len(codes) > SHOWN else ""
            said.append(f"{variable.name} in {{{', '.join(levels)}{more}}}")
    return " and ".join(said)


def _list_few(conditions: Conditions) -> Iterator[tuple[int, ...]]:
    """List each place, and then each pair of them."""
    yield from ((place,) for place in conditions)
    yield from combinations(conditions, 2)
