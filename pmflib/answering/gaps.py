"""Counts standardised for gaps that depend on other answers.

If a variable is missing more often at some levels of another, the samples that have it are not like all samples. Let R
be the event that a sample has all variables of a table, and Z the variables on which its gaps depend. Each counted
sample gets the weight 1 / Pr(R | Z), the inverse of the share of the samples with its levels of Z that are counted, so
that the counted samples have the distribution of Z of all samples. This direct standardisation needs no model: it is
unbiased if gaps depend on Z alone, whatever the rank of a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from pmflib.answering.conditional_tables import TableRequest
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.model.conditions import Conditions, describe_conditions
from pmflib.schema import Schema

CountTables = Callable[[Sequence[TableRequest]], Sequence[Any]]
"""Function that counts the tables of some requests: shaped by the targets' cardinalities."""

LEAST_MISSING = 0.01
"""Share of samples without a variable below which its gaps are ignored; not tuned."""
LEAST_OBSERVED = 0.5
"""Minimum share of the samples without a variable in which another, on which its gaps may depend, is observed."""
MOST_CHANCE = 1e-3
"""P-value, divided by the number of variables, up to which gaps depend on another variable; not tuned."""
MOST_VARIABLES = 3
"""Maximum number of variables by which a table is standardised."""
MOST_CELLS = 1 << 13
"""Maximum number of cells of a table with these variables."""
MOST_LEVELS = 1_000
"""Maximum number of levels of a schema of which gaps are examined: each needs a table with every other variable."""
LEAST_COUNT = 5
"""Minimum number of counted samples of a stratum; smaller strata are merged."""
MOST_WEIGHT = 100.0
"""Weight above which the samples of a stratum keep the weight 1: a question that was put to nobody like them, as one of
pregnancies to men, and answered by mistake."""


@dataclass(frozen=True)
class Standardised:
    """A table of counts, standardised if its gaps depend on other variables.

    Parameters
    ----------
    counts
        Shaped by the cardinalities of the targets: number of samples; if standardised, float64, standardised shares
        times their effective sample size.
    by
        Positions of the variables by which they are standardised; empty if they are not.
    """

    counts: Any
    by: tuple[int, ...] = ()


def standardise(
    count: CountTables,
    schema: Schema,
    requests: Sequence[TableRequest],
    causes: Mapping[int, Mapping[int, float]],
    most_variables: int | None = None,
) -> list[Standardised]:
    """Count tables, and standardise those whose gaps depend on other variables.

    Parameters
    ----------
    count
        Function that counts.
    schema
        Variables.
    requests
        Tables to count; without a target, they are numbers of samples, and are not standardised.
    causes
        Result of `find_causes` for the variables of the requests.
    most_variables
        Maximum number of variables of a table that ``count`` can count; None for any.

    References
    ----------
    Horvitz and Thompson (1952), A generalization of sampling without replacement from a finite universe, JASA 47.
    Little and Rubin (2019), Statistical analysis with missing data, section 3.3: weighting classes. Kish (1965), Survey
    sampling, section 11.7: the effective sample size.
    """
    plans = plan_parts(schema, requests, causes, most_variables)
    counted = iter(count([each for _, parts in plans for each in parts]))
    found = []
    for request, (by, parts) in zip(requests, plans, strict=True):
        tables = [next(counted) for _ in parts]
        if by:
            tables[0] = _weigh(request, by, [np.asarray(each, np.float64) for each in tables])
        found.append(Standardised(tables[0], by))
    return found


def plan_parts(
    schema: Schema,
    requests: Sequence[TableRequest],
    causes: Mapping[int, Mapping[int, float]],
    most_variables: int | None = None,
) -> list[tuple[tuple[int, ...], list[TableRequest]]]:
    """Plan, for each request of `standardise`, the variables of its strata and the tables that it is computed from."""
    chosen = [_choose(schema, each, causes, most_variables) for each in requests]
    return [(by, _list_parts(schema, x, by)) for x, by in zip(requests, chosen, strict=True)]


def _choose(
    schema: Schema,
    request: TableRequest,
    causes: Mapping[int, Mapping[int, float]],
    most_variables: int | None,
) -> tuple[int, ...]:
    """Choose the variables on which the gaps of a table depend most."""
    if not request.targets:
        return ()
    scores: dict[int, float] = {}
    for position in request.positions:
        for cause, score in causes.get(position, {}).items():
            scores[cause] = max(score, scores.get(cause, 0.0))
    sizes = schema.cardinalities
    n_cells = math.prod(int(sizes[each]) for each in request.targets)
    by: list[int] = []
    for cause in sorted(scores, key=lambda each: (-scores[each], each)):
        size = 1 if cause in request.targets else int(sizes[cause]) + 1
        # samples that meet a condition have one level of its variable
        if cause in dict(request.given) or n_cells * size > MOST_CELLS:
            continue
        if most_variables is not None and len({*request.positions, *by, cause}) > most_variables:
            continue
        n_cells *= size
        by.append(cause)
        if len(by) == MOST_VARIABLES:
            break
    return tuple(by)


def _list_parts(schema: Schema, request: TableRequest, by: tuple[int, ...]) -> list[TableRequest]:
    """List the tables that a standardised table is computed from."""
    if not by:
        return [request]
    targets, given = request.targets, request.given
    all_levels = tuple((each, tuple(range(int(schema.cardinalities[each])))) for each, _ in given)
    own = tuple(each for each in targets if each in by)
    return [
        TableRequest((*axes, *some), conditions)
        for axes, conditions in ((targets, given), (own, given), (own, all_levels), (own, ()))
        for some in _list_subsets(request, by)
    ]


def _list_subsets(request: TableRequest, by: tuple[int, ...]) -> list[tuple[int, ...]]:
    """List the subsets of the variables of the strata that are no targets."""
    others = [each for each in by if each not in request.targets]
    return [some for n in range(len(others) + 1) for some in combinations(others, n)]


def _weigh(request: TableRequest, by: tuple[int, ...], parts: Sequence[FloatArray]) -> FloatArray:
    """Weigh the cells of a table by strata; ``parts`` are the tables of `_list_parts`."""
    subsets, targets = _list_subsets(request, by), request.targets
    others, n = subsets[-1], len(subsets)
    n_own = sum(each in by for each in targets)
    groups = [
        _add_missing(
            dict(zip(subsets, parts[k * n : (k + 1) * n], strict=True)), n_axes, (), others
        )
        for k, n_axes in enumerate((len(targets), n_own, n_own, n_own))
    ]
    joint, meeting, having, every = groups
    held = joint.sum(axis=tuple(n for n, each in enumerate(targets) if each not in by))
    weights = _divide(meeting, held) * _divide(every, having)
    shape = [joint.shape[n] if each in by else 1 for n, each in enumerate(targets)]
    weights = weights.reshape(*shape, *joint.shape[len(targets) :])
    table = (joint * weights).sum(axis=tuple(range(len(targets), joint.ndim)))
    # Kish's effective sample size of each group
    axes = tuple(range(request.n_given, len(targets)))
    squares = (joint * weights**2).sum(axis=tuple(range(request.n_given, joint.ndim)))
    totals = table.sum(axis=axes)
    scale = np.divide(totals, squares, out=np.ones_like(totals), where=squares > 0)
    result: FloatArray = table * scale.reshape(scale.shape + (1,) * len(axes))
    return result


def _add_missing(
    tables: Mapping[tuple[int, ...], FloatArray],
    n_axes: int,
    known: tuple[int, ...],
    others: tuple[int, ...],
) -> FloatArray:
    """Add a last level, missing, to the axis of each stratifying variable, from the tables with and without it."""
    if not others:
        return tables[known]
    having = _add_missing(tables, n_axes, (*known, others[0]), others[1:])
    every = _add_missing(tables, n_axes, known, others[1:])
    axis = n_axes + len(known)
    missing = np.maximum(every - having.sum(axis=axis), 0.0)
    return np.concatenate([having, np.expand_dims(missing, axis)], axis)


def _divide(numerators: FloatArray, denominators: FloatArray) -> FloatArray:
    """Divide by strata, of which those with few samples are merged."""
    few = (denominators > 0) & (denominators < LEAST_COUNT)
    if few.any():
        numerators, denominators = numerators.copy(), denominators.copy()
        numerators[few], denominators[few] = numerators[few].sum(), denominators[few].sum()
    found: FloatArray = np.divide(
        numerators, denominators, out=np.ones_like(numerators), where=denominators > 0
    )
    return np.where(found > MOST_WEIGHT, 1.0, found)


def describe_shift(
    schema: Schema,
    targets: Sequence[int],
    conditions: Conditions,
    counts: IntArray,
    standardised: Standardised,
) -> str:
    """Describe how far standardisation moves the shares of a table.

    Parameters
    ----------
    schema
        Variables.
    targets
        Position of the variable of each axis.
    conditions
        Conditions that the samples meet.
    counts, standardised
        The table as counted, and standardised.
    """
    before, after = (x / max(float(x.sum()), 1.0) for x in (counts, standardised.counts))
    cell = np.unravel_index(int(np.abs(after - before).argmax()), before.shape)
    levels = {position: (int(code),) for position, code in zip(targets, cell, strict=True)}
    names = [
        ", ".join(repr(schema[x].name) for x in some)
        for some in (dict.fromkeys([*targets, *conditions]), standardised.by)
    ]
    among = f" given {describe_conditions(schema, conditions)}" if conditions else ""
    return (
        f"gaps in {names[0]} depend on {names[1]}: counts are standardised by these, which moves the share of "
        f"{describe_conditions(schema, levels)}{among} from {before[cell]:.3g} to {after[cell]:.3g}"
    )


def find_causes(
    count: CountTables, schema: Schema, n_rows: int, positions: Sequence[int]
) -> dict[int, dict[int, float]]:
    """Find the variables on which the gaps of some variables depend.

    Parameters
    ----------
    count
        Function that counts tables of one and two variables.
    schema
        Variables.
    n_rows
        Number of samples.
    positions
        Variables whose gaps are of interest.

    Returns
    -------
    For each of these variables, the variables whose levels or gaps are associated with its gaps, and Pearson's
    statistic minus its degrees of freedom. It is empty without gaps, and for schemas with more than ``MOST_LEVELS``
    levels.
    """
    from scipy.special import chdtrc

    if schema.n_levels > MOST_LEVELS:
        return {}
    numbers = count([request_observed(schema, each) for each in positions])
    observed = {each: int(x) for each, x in zip(positions, numbers, strict=True)}
    gaps = [x for x, n in observed.items() if n and n_rows - n > LEAST_MISSING * n_rows]
    if not gaps:
        return {}
    sizes_of, everyone = schema.cardinalities, range(schema.n_variables)
    pairs = [
        (gap, other)
        for gap in gaps
        for other in everyone
        if other != gap and int(sizes_of[gap]) * int(sizes_of[other]) <= MOST_CELLS
    ]
    tables = count([TableRequest(each) for each in [*((each,) for each in everyone), *pairs]])
    singles = [np.asarray(each, np.float64) for each in tables[: len(everyone)]]
    found: dict[int, dict[int, float]] = {each: {} for each in gaps}
    for (gap, other), table in zip(pairs, tables[len(everyone) :], strict=True):
        sizes, having, n = singles[other], table.sum(axis=0), observed[gap]
        if (sizes - having).sum() < LEAST_OBSERVED * (n_rows - n):
            continue
        # the last level is missing
        both = np.array([[*having, n - having.sum()], [*sizes, n_rows - sizes.sum()]])
        statistic, degrees = _test(both[:, both[1] > 0], n / n_rows)
        if degrees and chdtrc(degrees, statistic) * schema.n_variables < MOST_CHANCE:
            found[gap][other] = statistic - degrees
    return found


def request_observed(schema: Schema, position: int) -> TableRequest:
    """Request the number of samples in which a variable is observed."""
    return TableRequest((), ((position, tuple(range(int(schema.cardinalities[position])))),))


def _test(numbers: FloatArray, share: float) -> tuple[float, int]:
    """Return Pearson's statistic of equal shares of the first row in the second, and its degrees of freedom."""
    having, sizes = numbers
    apart = np.square(having - share * sizes) / (sizes * share * (1 - share))
    return float(apart.sum()), len(sizes) - 1
