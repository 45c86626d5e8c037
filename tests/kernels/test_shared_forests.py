import numpy as np
import pytest

from pmflib.kernels.shared_forests import find_shared_posteriors
from pmflib.kernels.tree_passes import find_posteriors
from tests.trees.conftest import SIZES, draw_gaps, list_cells, make_tree

CHAIN = np.arange(-1, 199)


def find_both(model, codes):
    """Posteriors and log-probabilities by both kernels: with all states at once, and a state at a time."""
    forest, offsets, rank = model.forest, model.schema.offsets, model.rank
    tables = np.maximum(model.tables, 1e-300)
    logs, held = np.log(tables), np.empty(len(offsets) - 1, np.uint8)
    found = []
    for _ in range(2):
        found.append((np.empty((len(codes), rank)), np.empty(len(codes))))
    by_entry = [np.ascontiguousarray(each.reshape(rank, -1).T) for each in (logs, tables)]
    find_shared_posteriors(
        codes,
        tuple(each[0] for each in forest.arrays),
        offsets,
        np.log(model.prior),
        *by_entry,
        (np.empty((offsets[-1] + 1, rank)), held),
        *found[0],
    )
    work = np.empty(offsets[-1]), held, np.empty(held.size, np.int32)
    find_posteriors(
        codes, forest.arrays, offsets, np.log(model.prior), logs, tables, work, *found[1]
    )
    return found


@pytest.mark.parametrize("parents", [[-1, 0, 1, 1, 0], [4, -1, 4, -1, 1], [-1] * 5])
@pytest.mark.parametrize("rank", [1, 3, 9])
def test_find_shared_posteriors__are_those_of_a_state_at_a_time(parents, rank):
    model = make_tree(SIZES, np.tile(parents, (rank, 1)))
    cells = list_cells(model)[0]
    codes = np.concatenate([draw_gaps(cells, 60), cells[:5]])
    (posteriors, log_probs), expected = find_both(model, codes)
    np.testing.assert_allclose(posteriors, expected[0], atol=1e-13)
    np.testing.assert_allclose(log_probs, expected[1], atol=1e-12)
    assert log_probs[0] == 0
    np.testing.assert_allclose(posteriors[0], model.prior)


def test_find_shared_posteriors__of_many_unlikely_levels_below_a_gap():
    # a root that is missing hears from 199 children, each of a probability near 0 in one state
    parents = np.zeros(200, int)
    parents[0] = -1
    model = make_tree([2] * 200, np.tile(parents, (2, 1)))
    tables = model.tables.copy()
    for place in range(1, 200):
        model.forest.cut(tables, 1, place)[:] = (1e-9, 1 - 1e-9)
    model = type(model).make(model.parameters._replace(tables=tables), model.schema)
    codes = np.zeros((2, 200), np.int8)
    codes[:, 0] = -1
    codes[1, 100:] = -1
    (posteriors, log_probs), expected = find_both(model, codes)
    np.testing.assert_allclose(posteriors, expected[0])
    np.testing.assert_allclose(log_probs, expected[1])
    assert np.isfinite(log_probs).all()


def test_find_shared_posteriors__of_a_chain_with_every_other_level_missing():
    model = make_tree([2] * 200, np.tile(CHAIN, (4, 1)))
    codes = np.zeros((3, 200), np.int16)
    codes[0, ::2] = -1
    codes[1, 1:150] = -1
    codes[2, :199] = -1
    (posteriors, log_probs), expected = find_both(model, codes)
    np.testing.assert_allclose(posteriors, expected[0], atol=1e-13)
    np.testing.assert_allclose(log_probs, expected[1])
