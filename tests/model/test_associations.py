import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.model import expect_values, measure_associations, measure_in_counts
from tests.reference import make_model

SIZES = [2, 3, 1, 4]


@pytest.fixture
def model():
    schema = pmf.Schema.from_cardinalities(SIZES)
    return pmf.JointPMF(*make_model(np.random.default_rng(0), SIZES, 3), schema)


def test_measure_associations__equals_sums_over_marginals(model):
    found = measure_associations(model)
    for one, other in ((0, 1), (1, 3), (2, 3), (3, 0)):
        joint = model.marginal([one, other])
        product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        information = float((joint * np.log(joint / product)).sum())
        assert found.mutual_information[one, other] == pytest.approx(information, abs=1e-12)
        least = max(min(joint.shape) - 1, 1)
        phi = ((joint - product) ** 2 / product).sum() / least
        assert found.cramers_v[one, other] == pytest.approx(np.sqrt(phi), abs=1e-7)
    assert not found.mutual_information.diagonal().any()
    # one level only
    assert found.mutual_information[2].max() < 1e-12


def test_measure_associations__copies_have_all_there_is():
    factors = np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]])
    model = pmf.JointPMF(np.array([0.5, 0.5]), factors, pmf.Schema.from_cardinalities([2, 2]))
    found = measure_associations(model)
    assert found.mutual_information[0, 1] == pytest.approx(np.log(2))
    assert found.cramers_v[0, 1] == pytest.approx(1.0)


def test_rank_pairs__largest_first_and_without_those_nobody_holds(model):
    found = measure_associations(model)
    pairs = found.rank_pairs(10)
    values = [found.mutual_information[pair] for pair in pairs]
    assert len(pairs) == 6
    assert values == sorted(values, reverse=True)
    support = np.ones((4, 4), int)
    one, other = pairs[0]
    support[one, other] = support[other, one] = 0
    assert found.rank_pairs(10, support) == pairs[1:]
    assert measure_associations_of_one().rank_pairs(3) == []
    with pytest.raises(pmf.PmfError, match="most"):
        found.rank_pairs(-1)
    with pytest.raises(pmf.PmfError, match="support"):
        found.rank_pairs(1, np.ones((2, 2), int))


def measure_associations_of_one():
    return measure_associations(
        pmf.JointPMF(np.array([1.0]), np.array([[0.4], [0.6]]), pmf.Schema.from_cardinalities([2]))
    )


def test_measure_in_counts__independent_is_about_nothing_and_unseen_is_none():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, (5000, 4))
    codes[:, 1] = codes[:, 0]
    codes[:, 3] = -1
    table = pmf.count_pairs(codes, [3, 3, 3, 3])
    found = measure_in_counts(table.to_dense(), table.schema.offsets)
    assert found[0, 1] == found[1, 0] == pytest.approx(np.log(3), abs=0.01)
    assert found[0, 2] < 0.001
    assert np.isnan(found[0, 3])
    assert np.isnan(found[0, 0])
    with pytest.raises(SchemaError, match="table"):
        measure_in_counts(np.zeros((2, 2), int), table.schema.offsets)


def test_expect_values__shifts_in_standard_deviations():
    schema = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("1", "3"), (1.0, 3.0))))
    factors = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    positions, shifts, spreads, means = expect_values(
        pmf.JointPMF(np.array([0.5, 0.5]), factors, schema)
    )
    assert positions.tolist() == [1]
    np.testing.assert_allclose(shifts, [[-1.0, 1.0]])
    np.testing.assert_allclose(spreads, [1.0])
    np.testing.assert_allclose(means, [2.0])
    nominal = pmf.JointPMF(np.array([1.0]), factors[:2, :1], pmf.Schema((schema["a"],)))
    assert expect_values(nominal)[1].shape == (0, 1)


def test_measure_in_counts__equals_the_sum_less_what_chance_gives():
    counts = pmf.count_pairs(np.array([[0, 0], [0, 1], [1, 1], [1, 1], [0, 0], [2, 0]]), [3, 2])
    joint = np.array([[2, 1], [0, 2], [1, 0]]) / 6
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    raw = (joint[inside] * np.log(joint[inside] / product[inside])).sum()
    found = measure_in_counts(counts.to_dense(), counts.schema.offsets)
    assert found[0, 1] == pytest.approx(raw - 2 * 1 / (2 * 6))
