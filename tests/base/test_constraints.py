"""Constraints of arguments: what they accept, and the sentences with which they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmflib.base import (
    FINITE,
    NONNEGATIVE,
    Interval,
    MemoryPlanError,
    OneOf,
    PmfError,
    RankError,
    SchemaError,
    at_least,
    check,
    check_distinct,
    check_entries,
    check_rows,
    check_schemas,
    check_shapes,
    check_size,
    check_type,
)
from pmflib.schema import Schema


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (at_least(1), 1),
        (at_least(1), math.inf),
        (at_least(1), np.int64(3)),
        (at_least(1, also=(None, "auto")), None),
        (at_least(1, also=(None, "auto")), "auto"),
        (at_least(0, whole=True), np.int8(0)),
        (Interval(0, 1), 0.0),
        (Interval(0, 1, "right"), 1),
        (Interval(0, 1, "left"), 0),
        (Interval(0, closed="right"), math.inf),
        (OneOf(("bch", "ml")), "ml"),
    ],
)
def test_values_within_a_constraint_are_accepted(constraint, value):
    check(constraint, value=value)


@pytest.mark.parametrize(
    ("constraint", "value", "words"),
    [
        (at_least(1), 0, "value is 0; pass at least 1"),
        (at_least(1), math.nan, "value is nan; pass at least 1"),
        (at_least(1), None, "value is None; pass at least 1"),
        (at_least(1, also=("auto",)), "all", "value is 'all'; pass at least 1, or 'auto'"),
        (at_least(1, whole=True), 1.5, "value is 1.5; pass a whole number of at least 1"),
        (at_least(0, whole=True), True, "value is True; pass a whole number of at least 0"),
        (Interval(0, 1, "neither", "as 0.95"), 1, "value is 1; pass a number in (0, 1), as 0.95"),
        (Interval(0, 1, "left"), 1, r"pass a number in [0, 1)"),
        (Interval(0, 1, "right"), 0, r"pass a number in (0, 1]"),
        (Interval(0, closed="right"), 0, "value is 0; pass a number above 0"),
        (Interval(0, closed="neither"), math.inf, "pass a finite number above 0"),
        (Interval(most=3), 4, "value is 4; pass at most 3"),
        (NONNEGATIVE, math.inf, "value is inf; pass a finite number of at least 0"),
        (FINITE, -math.inf, "value is -inf; pass a finite number"),
        (OneOf(("modal", "proportional")), "model", "did you mean ['modal']?"),
        (OneOf((1, 2)), 3, "value is 3; pass one of [1, 2]"),
    ],
)
def test_other_values_are_refused_with_name_value_and_limit(constraint, value, words):
    with pytest.raises(PmfError) as caught:
        check(constraint, value=value)
    assert words in str(caught.value)


def test_the_class_of_the_error_is_the_callers():
    with pytest.raises(RankError, match="rank is 0"):
        check(at_least(1), RankError, seed=3, rank=0)


def test_the_first_entry_outside_an_interval_is_named():
    check_entries(NONNEGATIVE, table=np.ones((2, 2)), empty=np.empty(0))
    with pytest.raises(PmfError, match=r"table\[1, 0\] is nan; pass a finite number of at least 0"):
        check_entries(NONNEGATIVE, table=np.array([[1.0, 2.0], [np.nan, -1.0]]))
    with pytest.raises(PmfError, match=r"share is -1\.0; "):
        check_entries(NONNEGATIVE, share=np.array(-1.0))


def test_sizes_of_one_name_are_equal():
    factors = np.ones((7, 2))
    check_shapes(prior=(np.ones(2), ("rank",)), factors=(factors, (7, "rank")))
    with pytest.raises(
        SchemaError,
        match=r"factors has shape \(7, 2\) beside prior \(3,\), not \(7, rank\); take both",
    ):
        check_shapes("take both", prior=(np.ones(3), ("rank",)), factors=(factors, (7, "rank")))
    with pytest.raises(RankError, match=r"prior has shape \(2, 1\), not \(rank,\)"):
        check_shapes("", RankError, prior=(np.ones((2, 1)), ("rank",)))
    check_shapes(prior=(np.ones(0), ("rank",)))


def test_numbers_above_a_limit_of_memory_are_refused():
    check_size(10, 10, "cells", "name fewer variables")
    with pytest.raises(MemoryPlanError, match=r"there are 1,100 cells, above 1,000; name fewer"):
        check_size(1100, 1000, "cells", "name fewer variables")


def test_columns_have_as_many_rows_as_the_samples():
    check_rows(2, weight=None, group=["a", "b"])
    with pytest.raises(PmfError, match="group has 1 rows and samples 2"):
        check_rows(2, weight=[1, 2], group=["a"])


def test_types_schemas_and_names_are_checked():
    check_type(Schema, "pass a Schema", schema=Schema.from_cardinalities([2]))
    with pytest.raises(SchemaError, match="schema is a list; pass a Schema"):
        check_type(Schema, "pass a Schema", SchemaError, schema=[2])
    two, three = Schema.from_cardinalities([2]), Schema.from_cardinalities([3])
    check_schemas(model=two, counts=Schema.from_cardinalities([2]))
    with pytest.raises(SchemaError, match="model and counts have different schemas"):
        check_schemas(model=two, counts=three)
    check_distinct(["a", "b"], "variables")
    with pytest.raises(SchemaError, match=r"variables named more than once: \['a'\]"):
        check_distinct(["a", "b", "a"], "variables")


@pytest.mark.parametrize("value", [[1], {}, object(), np.array([0.5, 0.7])])
def test_check__what_is_no_number_is_refused(value):
    with pytest.raises(PmfError, match=r"level is .*; pass a number in"):
        check(Interval(0, 1), level=value)
