import itertools

import numpy as np
import pytest

from pmflib.base import DenseBlock
from pmflib.families.forests import statistics
from pmflib.families.forests.kernels.messages import add_masses, find_posteriors
from pmflib.families.forests.statistics import (
    StarPasses,
    TreePasses,
    arrange_forest,
    choose_batch,
    measure_stars,
)
from tests.families.forests.conftest import PARENTS, SIZES, draw_gaps, list_cells, make_tree

CHAIN, LONG_CHAIN = list(range(-1, 11)), list(range(-1, 199))
HUB = [-1] + [0] * 11


def draw_forest(rng, n_variables, rank):
    """Random parents, a root now and then."""
    parents = np.full((rank, n_variables), -1)
    for state in range(rank):
        order = rng.permutation(n_variables)
        for k in range(1, n_variables):
            if rng.random() < 0.85:
                parents[state, order[k]] = order[rng.integers(k)]
    return parents


def draw_rows(rng, sizes, n_rows, observed):
    """Random rows, of which the first has nothing observed unless all is."""
    codes = np.stack([rng.integers(size, size=n_rows) for size in sizes], axis=1).astype(np.int8)
    codes[rng.random(codes.shape) >= observed] = -1
    if observed < 1:
        codes[0] = -1
    return codes


def pass_by_logs(model, codes, weights):
    """Posteriors, log-probabilities and masses, a row and a state at a time."""
    forest, offsets = model.forest, model.schema.offsets
    n_variables = offsets.size - 1
    tables = np.maximum(model.tables, 1e-300)
    posteriors, log_probs = np.empty((len(codes), model.rank)), np.empty(len(codes))
    mass, states = np.zeros(tables.size), np.zeros(model.rank)
    vectors = np.empty((2, int(offsets[-1])))
    work = np.empty(n_variables, np.uint8), np.empty(n_variables, np.int32)
    of_model = forest.arrays, offsets
    find_posteriors(
        codes, *of_model, np.log(model.prior), np.log(tables), tables, (vectors[0], *work), posteriors, log_probs
    )  # fmt: skip
    add_masses(
        codes, weights, posteriors, *of_model, np.log(tables), tables, (vectors, *work), mass, states
    )  # fmt: skip
    return posteriors, log_probs, mass, states


def pass_by_stars(model, codes, weights):
    """The same by stars, and the rows that are left to others."""
    passes = StarPasses(model.prior, model.forest, np.maximum(model.tables, 1e-300))
    posteriors, log_probs = np.empty((len(codes), model.rank)), np.empty(len(codes))
    doubtful = passes.find_posteriors(codes, posteriors, log_probs)
    mass, states = np.zeros(model.tables.size), np.zeros(model.rank)
    total, left_out = passes.add_masses(codes, weights, mass, states)
    assert np.array_equal(doubtful, left_out)
    if (codes >= 0).all():
        own = StarPasses(model.prior, model.forest, np.maximum(model.tables, 1e-300), complete=True)
        again, of_states = np.zeros(mass.size), np.zeros(states.size)
        sums = own.add_masses(codes, weights, again, of_states)[0]
        np.testing.assert_allclose(again, mass, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(of_states, states, rtol=1e-9, atol=1e-10)
        assert sums == pytest.approx(total, abs=1e-9)
    return posteriors, log_probs, mass, states, total, doubtful


def compare(model, codes, weights=None):
    weights = np.ones(len(codes)) if weights is None else weights
    expected = pass_by_logs(model, codes, weights)
    *found, total, doubtful = pass_by_stars(model, codes, weights)
    assert not doubtful.size
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)
    assert total == pytest.approx(weights @ expected[1], abs=1e-9)


@pytest.mark.parametrize("observed", [1.0, 0.9, 0.5, 0.1])
@pytest.mark.parametrize("seed", range(6))
def test_star_passes__are_those_of_a_row_and_a_state_at_a_time(seed, observed):
    rng = np.random.default_rng(seed)
    n_variables, rank = int(rng.integers(2, 15)), int(rng.integers(1, 5))
    sizes = rng.integers(1, 6, n_variables)
    parents = draw_forest(rng, n_variables, 1 if seed % 2 else rank)
    model = make_tree(sizes.tolist(), np.resize(parents, (rank, n_variables)), seed)
    codes = draw_rows(rng, sizes, 700, observed)
    compare(model, codes, rng.integers(1, 4, len(codes)).astype(np.float64))


@pytest.mark.parametrize(
    ("sizes", "parents"),
    [
        ([3], [-1]),
        ([1], [-1]),
        ([2, 3], [-1, -1]),
        ([2, 3], [1, -1]),
        ([1, 1], [-1, 0]),
        ([4] * 12, CHAIN),
        ([4] * 12, HUB),
        ([2] * 12, [-1] * 12),
        ([40, 3, 40], [1, -1, 0]),
        ([300, 2, 300], [2, 0, -1]),
    ],
)
@pytest.mark.parametrize("rank", [1, 3])
def test_star_passes__of_forests_of_all_shapes(sizes, parents, rank):
    rng = np.random.default_rng(len(sizes))
    codes = draw_rows(rng, np.minimum(sizes, 120), 90, 0.6)
    model = make_tree(sizes, [parents] * rank)
    compare(model, codes)
    compare(model, np.maximum(codes, 0))


def test_star_passes__are_bayes_rule():
    model = make_tree(SIZES, PARENTS)
    cells, chances = list_cells(model)
    codes = np.concatenate([draw_gaps(cells, 60), cells[:20]])
    found = pass_by_stars(model, codes, np.ones(len(codes)))
    kept = [((cells == row) | (row < 0)).all(axis=1) for row in codes]
    np.testing.assert_allclose(found[1], np.log([chances[each].sum() for each in kept]), atol=1e-12)
    assert found[1][0] == 0.0
    np.testing.assert_allclose(found[0][0], model.prior)


@pytest.mark.parametrize("limit", [1, 30, 1 << 14])
def test_star_passes__whatever_the_size_of_stars(monkeypatch, limit):
    monkeypatch.setattr(statistics, "MAX_ENTRIES", limit)
    rng = np.random.default_rng(limit)
    sizes = rng.integers(2, 5, 11)
    model = make_tree(sizes.tolist(), draw_forest(rng, 11, 3))
    compare(model, draw_rows(rng, sizes, 200, 0.7))


def test_star_passes__of_batches_are_those_of_all_rows():
    model = make_tree(SIZES, PARENTS)
    n_batch = choose_batch(sum(SIZES), model.rank)
    codes = draw_gaps(list_cells(model)[0], 2 * n_batch + 1)
    posteriors, log_probs = pass_by_stars(model, codes, np.ones(len(codes)))[:2]
    for rows in (slice(5, 6), slice(n_batch - 3, n_batch + 3)):
        part = pass_by_stars(model, codes[rows], np.ones(len(codes[rows])))
        assert np.array_equal(part[0], posteriors[rows])
        assert np.array_equal(part[1], log_probs[rows])


def test_star_passes__of_no_rows():
    model = make_tree(SIZES, PARENTS)
    *_, mass, states, total, doubtful = pass_by_stars(
        model, np.empty((0, len(SIZES)), np.int8), np.empty(0)
    )
    assert total == 0.0
    assert not mass.any()
    assert not states.any()
    assert not doubtful.size


def test_tree_passes__of_rows_next_to_impossible_are_by_logarithms():
    # a variable has the level of the one above it but for one row in a thousand, in all states
    model = make_tree([2] * 200, [LONG_CHAIN] * 2)
    tables = model.tables.copy()
    for state, n in itertools.product(range(2), range(1, 200)):
        rare = 1e-3 * (1 + state)
        model.forest.view_table(tables, state, n)[:] = [[1 - rare, rare], [rare, 1 - rare]]
    model = type(model).make(model.parameters._replace(tables=tables), model.schema)
    codes = np.zeros((6, 200), np.int8)
    codes[1, ::2] = codes[2, ::2] = codes[3, 1:60:2] = 1
    codes[2, 50:70] = codes[4, 100:] = codes[5] = -1
    weights = np.ones(6)
    assert pass_by_stars(model, codes, weights)[-1].tolist() == [1, 2]
    expected = pass_by_logs(model, codes, weights)
    passes, posteriors, log_probs = TreePasses(model.parameters), np.empty((6, 2)), np.empty(6)
    passes.find_posteriors(codes, posteriors, log_probs)
    np.testing.assert_allclose(posteriors, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(log_probs, expected[1], rtol=1e-12)
    found = passes.add_up(DenseBlock(codes))
    np.testing.assert_allclose(found.mass, expected[2], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.state_mass, expected[3], rtol=1e-9)
    assert found.log_likelihood == pytest.approx(expected[1].sum(), rel=1e-12)


def test_star_passes__of_many_unlikely_levels_below_a_gap():
    # a root that is missing hears from 199 children, each of a probability near 0 in one state
    model = make_tree([2] * 200, [[-1] + [0] * 199] * 2)
    tables = model.tables.copy()
    for n in range(1, 200):
        model.forest.view_table(tables, 0, n)[:] = 1e-9, 1 - 1e-9
    model = type(model).make(model.parameters._replace(tables=tables), model.schema)
    codes = np.zeros((3, 200), np.int8)
    codes[:, 0] = -1
    codes[1, 100:] = codes[2, 3:] = -1
    compare(model, codes)


def test_star_passes__of_a_chain_with_every_other_level_missing():
    codes = np.zeros((3, 200), np.int16)
    codes[0, ::2] = codes[1, 1:150] = codes[2, :199] = -1
    compare(make_tree([2] * 200, [LONG_CHAIN] * 4), codes)


def test_arrange_forest__every_variable_is_in_one_outer_star_of_a_state():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, 30).tolist()
    forest = make_tree(sizes, draw_forest(rng, 30, 4)).forest
    arranged = arrange_forest(forest)
    for state in range(4):
        held = []
        for k in range(arranged.first_outer[state], arranged.first_outer[state + 1]):
            for star in range(arranged.begins[k], arranged.ends[k]):
                first, stop = arranged.first_digits[star], arranged.first_digits[star + 1]
                n_entries = int(arranged.bases[star + 1] - arranged.bases[star])
                assert n_entries <= statistics.MAX_ENTRIES or stop - first == 1
                held += arranged.digits[first:stop].tolist()
        assert sorted(held) == list(range(30))
    assert measure_stars(forest.offsets, 4) >= 16 * int(arranged.bases[-1])
