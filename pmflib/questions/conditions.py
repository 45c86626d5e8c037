"""Conditions: levels that variables are given to have, and the model of those who have them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from pmflib.argument_checks import name_type
from pmflib.arrays import FloatArray, IntArray
from pmflib.em.statistics import take_logs
from pmflib.errors import PmfError, SchemaError
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.near_names import list_near
from pmflib.schema import Schema, Variable
from pmflib.trees.tree_conditions import condition_forests
from pmflib.trees.tree_pmf import TreePMF

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
    if isinstance(model, TreePMF):
        found, log_probability = condition_forests(model.parameters, conditions)
        return TreePMF.make(found, model.schema, model.origin), log_probability
    factors = model.factors.copy()
    masses = np.empty((len(conditions), model.rank))
    for mass, (place, codes) in zip(masses, conditions.items(), strict=True):
        block = factors[model.schema.rows_of(place)]
        kept = np.zeros((len(block), 1))
        kept[list(codes)] = 1.0
        if len(codes) == len(block):
            mass[:] = 1.0
            continue
        mass[:] = block[list(codes)].sum(axis=0)
        # a state without mass there has none of the prior either
        block[:] = np.where(mass > FLOOR, block * kept / np.maximum(mass, FLOOR), kept / kept.sum())
        block /= block.sum(axis=0)
    log_prior, log_masses = take_logs(model.prior, masses)
    logs: FloatArray = log_prior + log_masses.sum(axis=0)
    logs[(model.prior <= FLOOR) | (masses <= FLOOR).any(axis=0)] = -np.inf
    weights = np.exp(logs - logs.max())
    log_probability = float(logs.max() + np.log(weights.sum()))
    return JointPMF(weights / weights.sum(), factors, model.schema, model.origin), log_probability


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
    possible = {}
    for place, codes in conditions.items():
        rows = int(model.schema.offsets[place]) + np.array(codes)
        possible[place] = (model.factors[rows] > FLOOR).any(axis=0)
    for places in (*_list_few(conditions), tuple(conditions)):
        states = model.prior > FLOOR
        for place in places:
            states = states & possible[place]
        if not states.any():
            return places
    if (
        isinstance(model, TreePMF)
        and condition_forests(model.parameters, conditions)[1] == -math.inf
    ):
        return tuple(conditions)
    return ()


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
