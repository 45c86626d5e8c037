import itertools

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import FloatArray
from pmflib.families.forests.structure import grow_forest, measure_edge_gains
from pmflib.fits import find_residuals
from tests.families.forests.conftest import make_tree
from tests.reference import make_model


def test_grow_forest__has_the_largest_sum_of_all_trees():
    rng = np.random.default_rng(0)
    gains = rng.uniform(-5, 20, (5, 5))
    gains = np.triu(gains, 1) + np.triu(gains, 1).T
    parents = grow_forest(gains)
    found = sum(gains[n, p] - np.log(5) for n, p in enumerate(parents.tolist()) if p >= 0)
    best = 0.0
    edges = list(itertools.combinations(range(5), 2))
    for k in range(5):
        for chosen in itertools.combinations(edges, k):
            groups = list(range(5))
            is_forest = True
            for one, other in chosen:
                is_forest &= groups[one] != groups[other]
                groups = [groups[one] if each == groups[other] else each for each in groups]
            if is_forest:
                best = max(best, sum(gains[edge] - np.log(5) for edge in chosen))
    assert found == pytest.approx(best)


@pytest.mark.parametrize("n_variables", [1, 2])
def test_grow_forest__few_variables(n_variables):
    assert (grow_forest(np.zeros((n_variables, n_variables))) == -1).all()


def test_measure_edge_gains__is_the_likelihood_ratio_less_the_penalty():
    offsets = np.array([0, 2, 4])
    table = np.array([[30.0, 10], [5, 55]])
    mass = np.zeros((4, 4))
    mass[:2, 2:], mass[2:, :2] = table, table.T
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / 100
    ratio = (table * np.log(table / expected)).sum()
    found = measure_edge_gains(mass, offsets, 1.0)
    assert found[0, 1] == pytest.approx(ratio - 0.5 * np.log(100))
    assert found[1, 0] == found[0, 1]
    assert measure_edge_gains(mass, offsets, 0.0)[0, 1] == pytest.approx(ratio)


def test_measure_edge_gains__few_pairs_that_occur_are_as_many_that_do():
    rng, sizes = np.random.default_rng(0), [40, 2, 3]
    codes = np.stack([rng.integers(-1, size, 60) for size in sizes], axis=1)
    mass: FloatArray = np.asarray(pmf.count_pairs(codes, sizes).to_dense() * 0.7, dtype=np.float64)
    # levels that are never seen make the table sparse, and change nothing
    offsets, wide = np.array([0, 40, 42, 45]), np.array([0, 400, 402, 405])
    table = np.zeros((405, 405))
    kept = np.r_[:40, 400:405]
    table[np.ix_(kept, kept)] = mass
    np.testing.assert_allclose(
        measure_edge_gains(table, wide, 0.5), measure_edge_gains(mass, offsets, 0.5), rtol=1e-12
    )


def test_measure_edge_gains__nothing_from_one_level_or_from_nothing():
    offsets = np.array([0, 1, 3, 5])
    assert not measure_edge_gains(np.zeros((5, 5)), offsets, 1.0).any()
    mass = np.zeros((5, 5))
    mass[0, 1:3] = mass[1:3, 0] = 20.0
    assert not measure_edge_gains(mass, offsets, 1.0)[0].any()


def test_find_residuals__none_under_the_truth():
    sizes = [3, 2, 4, 2]
    schema = pmf.Schema.from_cardinalities(sizes)
    model = pmf.JointPMF(*make_model(np.random.default_rng(0), sizes, 2), schema)
    counts = pmf.count_pairs(model.sample(20_000, 1), schema)
    assert find_residuals(model, counts).list_large() == []


def test_find_residuals__finds_the_edge():
    parents = np.array([[-1, -1, -1, 1]] * 2)
    truth = make_tree([3, 3, 3, 3], parents, seed=2)
    plain = pmf.JointPMF(truth.prior, truth.factors, truth.schema)
    counts = pmf.count_pairs(truth.sample(20_000, 1), truth.schema)
    large = find_residuals(plain, counts).list_large()
    assert large[0][:2] == ("v1", "v3")
