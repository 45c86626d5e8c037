"""Dependence of new answers compared with folds: what a young pipeline can tell."""

import numpy as np
import pytest

from pmflib.counts import count_pairs
from pmflib_tasks.guards import measure_young
from pmflib_tasks.guards.dependence_guards import (
    Dependence,
    compare_dependence,
    count_inside,
    measure_folds,
)
from tests.pipelines import draw_codes, make_schema

SIZES = (3, 3, 4, 3, 3)
SCHEMA = make_schema(*SIZES)
N_FOLDS = 8


def count(codes):
    return count_pairs(codes, SCHEMA, n_folds=1).tables[0]


@pytest.fixture(scope="module")
def known():
    """Counts of folds of 300 samples."""
    return list(count_pairs(draw_codes(300, SIZES), SCHEMA, n_folds=N_FOLDS).tables)


def measure(known, inside, across=0):
    """Standard deviations by guard, and the subject of the column."""
    found = measure_young(SCHEMA, known, inside, inside + across)
    return {each.guard: each.value for each in found} | {"column": found[1].subject}


@pytest.mark.parametrize("seed", range(1, 6))
def test_measure_young__samples_of_the_same_population(known, seed):
    found = measure(known, count(draw_codes(200, SIZES, seed=seed)))
    assert found["joint_agreement"] < 4
    assert found["column_agreement"] < 5
    assert found["sample_agreement"] is None


def test_measure_young__a_column_shifted_against_its_rows(known):
    codes = draw_codes(200, SIZES, seed=1)
    codes[:, 2] = np.roll(codes[:, 2], 1)
    found = measure(known, count(codes))
    assert found["column_agreement"] > 6.5
    assert found["column"] == "v2"


def test_measure_young__rows_at_random(known):
    rng = np.random.default_rng(0)
    codes = draw_codes(200, SIZES, seed=1)
    codes[:60] = rng.integers(0, SIZES, (60, len(SIZES)))
    assert measure(known, count(codes))["joint_agreement"] > 4


def test_measure_young__answers_of_other_people(known):
    codes = draw_codes(200, SIZES, seed=1, missing=0)
    earlier, later = codes.copy(), codes.copy()
    earlier[:, 3:], later[:, :3] = -1, -1
    inside = count(later)
    for people, is_right in ((np.arange(200), True), (np.roll(np.arange(200), 7), False)):
        mixed = np.where(earlier >= 0, earlier, later[people])
        found = measure(known, inside, count(mixed) - count(earlier) - inside)
        assert (found["sample_agreement"] < 4) == is_right
        assert (found["sample_agreement"] > 6) != is_right
        assert found["joint_agreement"] < 4


def test_measure_young__too_little_to_compare(known):
    empty = np.zeros_like(known[0])
    new = count(draw_codes(50, SIZES))
    for found in (measure(known, empty), measure([empty] * N_FOLDS, new)):
        assert [each for name, each in found.items() if name != "column"] == [None] * 3


def test_compare_dependence__is_nan_where_nobody_answers(known):
    codes = draw_codes(200, SIZES, seed=1)
    codes[:, 4] = -1
    reference = np.sum(known, axis=0)
    new = Dependence.measure(SCHEMA, count(codes), reference)
    found = compare_dependence(measure_folds(SCHEMA, known, reference), new)
    assert np.isnan(found).tolist() == [False] * 4 + [True, False]


def test_compare_dependence__nights_that_answer_other_variables():
    first, second = draw_codes(400, SIZES), draw_codes(200, SIZES, seed=1)
    # the dependence of v0 and v1 is strong, that of all others was hardly seen
    first[20:, 2:] = -1
    folds = count_pairs(first, SCHEMA, n_folds=N_FOLDS).tables
    reference = folds.sum(axis=0)
    known = measure_folds(SCHEMA, folds, reference)
    found = compare_dependence(known, Dependence.measure(SCHEMA, count(second), reference))
    assert np.nanmax(found) < 4


def test_count_inside__the_last_answer_of_a_sample_counts():
    codes = np.array([[0, -1, 2, -1, 1], [1, 1, -1, -1, -1], [-1] * 5])
    rows, variables = np.nonzero(codes >= 0)
    levels = SCHEMA.offsets[variables] + codes[rows, variables]
    # before them, another answer of the first sample
    samples = np.concatenate([[0], rows])
    levels = np.concatenate([[int(SCHEMA.offsets[0]) + 2], levels])
    assert (count_inside(samples, levels, SCHEMA) == count(codes)).all()
    nothing = np.empty(0, np.int64)
    assert not count_inside(nothing, nothing, SCHEMA).any()
