"""Splits of the variables in two sides."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pmflib.papers import cut_observed_pairs
from pmflib.papers.pair_matrix import list_splits, split_evenly


def complete(n_variables):
    """Every pair observed."""
    return ~np.eye(n_variables, dtype=np.bool_)


def smaller_side(cardinalities, first):
    return min(cardinalities[first].sum(), cardinalities[~first].sum())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=9))
def test_split_evenly__equals_every_subset(values):
    cardinalities = np.array(values)
    best = max(
        smaller_side(cardinalities, np.array(first))
        for first in product([False, True], repeat=len(values))
    )
    first = split_evenly(cardinalities)
    assert smaller_side(cardinalities, first) == best
    assert cardinalities[first].sum() == best


def test_cut_observed_pairs__bipartite():
    kinds = np.array([True, True, False, True, False, False, True])
    first = cut_observed_pairs(np.full(7, 3), kinds[:, None] != kinds)
    assert first.tolist() in (kinds.tolist(), (~kinds).tolist())


def test_cut_observed_pairs__tie_evens_the_levels():
    first = cut_observed_pairs(np.array([9, 2, 2, 2]), np.zeros((4, 4), np.bool_))
    np.testing.assert_array_equal(first, [True, False, False, False])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=8), st.data())
def test_list_splits__fit_the_rank_and_never_repeat(values, data):
    cardinalities = np.array(values)
    limit = int(smaller_side(cardinalities, split_evenly(cardinalities)))
    rank = data.draw(st.integers(1, limit))
    splits = [first for _, first in list_splits(cardinalities, complete(len(values)), rank)]
    assert splits
    assert all(smaller_side(cardinalities, first) >= rank for first in splits)
    assert len({first.tobytes() for first in splits}) == len(splits)


def test_list_splits__falls_back_on_the_most_even():
    cardinalities = np.array([2, 2, 3, 3, 2])
    splits = list_splits(cardinalities, complete(5), 6)
    assert [smaller_side(cardinalities, first) for _, first in splits] == [6, 6]
