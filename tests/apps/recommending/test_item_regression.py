"""The regression of items on each other, against one on the samples themselves, item by item."""

import numpy as np
import pytest
import scipy.sparse

from pmflib.apps.recommending.item_regression import (
    EXPONENTS,
    MIN_ANSWERS,
    RIDGE,
    find_best,
    regress_items,
)

MEMORY = 1 << 30


def draw_worths(n_samples=600, n_items=8, seed=0):
    """Worths 0, 1 and 2, of samples of two kinds that like other items."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n_samples)[:, None]
    chance = np.where((np.arange(n_items) % 2) == kind, 0.7, 0.2)
    return (rng.random((n_samples, n_items)) < chance) * rng.integers(1, 3, (n_samples, n_items))


def regress(worths, is_judge=None, memory=MEMORY):
    sparse = scipy.sparse.csr_array(worths.astype(np.float32))
    is_judge = np.arange(len(worths)) % 4 == 1 if is_judge is None else is_judge
    return regress_items(sparse, is_judge, memory)


def predict(found, worths):
    return found.predict(scipy.sparse.csr_array(worths.astype(np.float32)))


def predict_slowly(worths, rows, ridge):
    """Each item by a ridge regression on the others."""
    found = np.empty(rows.shape)
    for item in range(worths.shape[1]):
        inputs = np.delete(worths, item, axis=1)
        gram = inputs.T @ inputs + ridge * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ worths[:, item])
        found[:, item] = np.delete(rows, item, axis=1) @ weights
    return found


def test_regress_items__is_the_regression_on_the_samples():
    worths = draw_worths()
    worths[5] = 0
    found = regress(worths)
    values, some = predict(found, worths), worths.any(axis=1)
    np.testing.assert_allclose(
        values[some], predict_slowly(worths, worths, found.ridge)[some], atol=1e-5
    )
    np.testing.assert_allclose(values[5], worths.mean(axis=0), rtol=1e-6)
    assert values.dtype == np.float32


def measure_slowly(worths, ridge):
    """NDCG of the hidden answers of highest worth of every fourth sample, sample by sample."""
    judges = np.arange(len(worths)) % 4 == 1
    given = worths[judges]
    is_hidden = np.zeros(given.shape, bool)
    is_hidden[given > 0] = np.random.default_rng(0).random((given > 0).sum()) < 0.2
    known = np.where(is_hidden, 0, given)
    values = predict_slowly(worths[~judges], known, ridge)
    gains = []
    for row, wanted in enumerate(is_hidden & (given == 2)):
        order = [n for n in np.argsort(-values[row], kind="stable") if not known[row, n]]
        hits = [wanted[n] / np.log2(2 + place) for place, n in enumerate(order[:20])]
        best = sum(1 / np.log2(2 + place) for place in range(min(20, wanted.sum())))
        gains += [sum(hits) / best] if best else []
    return np.mean(gains)


def test_regress_items__ridge_has_the_best_ranking_of_hidden_answers():
    worths = draw_worths(400, 60)
    ridges = [2.0**exponent for exponent in EXPONENTS]
    reached = [measure_slowly(worths, ridge) for ridge in ridges]
    found = regress(worths)
    assert reached[ridges.index(found.ridge)] == pytest.approx(max(reached), abs=1e-3)
    assert max(reached) > min(reached) + 0.02


def test_regress_items__rare_items_have_their_means_and_predict_nothing():
    worths = draw_worths()
    worths[:, 3] = 0
    worths[: MIN_ANSWERS - 1, 3] = 1
    found, without = regress(worths), regress(np.delete(worths, 3, axis=1))
    assert found.positions.tolist() == [0, 1, 2, 4, 5, 6, 7]
    np.testing.assert_array_equal(found.weights, without.weights)
    np.testing.assert_array_equal(predict(found, worths)[:, 3], found.means[3])


def test_regress_items__most_answered_items_that_fit_in_memory():
    worths = draw_worths()
    worths[:300, [1, 2]] = 0
    found = regress(worths, memory=4 * 2 * 6**2)
    assert found.positions.tolist() == [0, 3, 4, 5, 6, 7]
    assert found.n_left_out == 2
    assert regress(worths, memory=0).positions.size == 0


@pytest.mark.parametrize("n_samples", [0, 1, 7])
def test_regress_items__few_samples(n_samples):
    worths = draw_worths(n_samples)
    found = regress(worths, is_judge=np.zeros(n_samples, bool))
    assert found.ridge == RIDGE
    assert np.isfinite(predict(found, draw_worths(3))).all()


def test_regress_items__same_bits_whatever_the_batch():
    worths = draw_worths(100, 40)
    found = regress(worths)
    whole = predict(found, worths)
    parts = [predict(found, worths[start : start + 7]) for start in range(0, 100, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_find_best__ranks_and_gaps():
    values = np.array([[1.0, 3.0, -np.inf, 2.0], [-np.inf, -np.inf, -np.inf, 0.0]])
    items, ranks = find_best(values, 3)
    assert items[0].tolist() == [1, 3, 0]
    assert ranks.tolist() == [[1, 2, 3], [1, 0, 0]]
    assert items[1, 0] == 3
    grouped, ranks = find_best(values, 9, np.array([0, 1, 1, 1], np.int32), 1)
    assert grouped[0, :2].tolist() == [1, 0]
    assert ranks[0].tolist() == [1, 2, 0, 0]
