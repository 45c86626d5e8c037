"""Items are ranked by a regression on counts of pairs, which equals one on the samples themselves."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.recommending import item_regression
from pmflib.apps.recommending.item_regression import N_FOLDS, regress_items
from pmflib.base import MemoryPlanError, QuestionError, SchemaError, assign_folds
from pmflib.counts import StoredTables
from tests.pipelines import draw_codes, make_schema

SIZES = (3, 4, 3, 3, 5, 3)
SCHEMA = make_schema(*SIZES)
CODES = draw_codes(600, SIZES, seed=3)
HELD = (CODES >= 2).astype(float)


def make_model(schema=SCHEMA):
    uniform = np.concatenate([np.full((n, 1), 1 / n) for n in schema.cardinalities])
    return pmf.JointPMF(np.ones(1), uniform, schema)


def recommend(samples, *, model=None, counts=CODES, value="P(item>=2)", **options):
    return pmf.apps.recommend(model or make_model(), samples, value=value, counts=counts, **options)


def list_holds(schema=SCHEMA, least=2):
    return np.concatenate([np.arange(n) >= least for n in schema.cardinalities])


def predict_slowly(known, held, ridge):
    """Each item by a ridge regression with an intercept on the others of the samples themselves."""
    means = known.mean(axis=0)
    deviations = known - means
    found = np.empty(held.shape)
    for item in range(known.shape[1]):
        others = np.delete(np.arange(known.shape[1]), item)
        inputs = deviations[:, others]
        gram = inputs.T @ inputs + ridge * np.eye(others.size)
        weights = np.linalg.solve(gram, inputs.T @ deviations[:, item])
        found[:, item] = means[item] + (held[:, others] - means[others]) @ weights
    return found


def test_regress_items__is_the_regression_on_the_samples():
    found = regress_items(CODES, SCHEMA, list_holds())
    expected = predict_slowly(HELD, HELD, found.ridge)
    has_one = HELD.any(axis=1)
    np.testing.assert_allclose(found.predict(CODES)[has_one], expected[has_one], rtol=1e-9)
    assert not has_one.all()
    np.testing.assert_array_equal(
        found.predict(CODES)[~has_one], np.tile(HELD.mean(axis=0), ((~has_one).sum(), 1))
    )


def test_regress_items__ridge_has_the_smallest_error_on_held_out_samples():
    found = regress_items(CODES, SCHEMA, list_holds())
    is_judge = assign_folds(np.arange(len(CODES)), N_FOLDS) == 1

    def measure(ridge):
        return (
            (predict_slowly(HELD[~is_judge], HELD[is_judge], ridge) - HELD[is_judge]) ** 2
        ).sum()

    assert 2 < found.ridge < 2**19
    assert measure(found.ridge) < min(measure(found.ridge / 4), measure(found.ridge * 4))


def test_regress_items__values_of_independent_items_are_their_shares():
    """Without an intercept, they would grow with the number of items that a sample has."""
    shares = np.linspace(0.1, 0.8, 8)
    codes = (np.random.default_rng(0).random((5000, 8)) < shares).astype(np.int8)
    found = regress_items(codes, make_schema(*(2,) * 8), np.arange(16) % 2 == 1)
    np.testing.assert_allclose(found.predict(codes), np.tile(shares, (5000, 1)), atol=0.05)


def test_regress_items__same_bits_from_samples_counts_and_store(tmp_path):
    counts = pmf.count_pairs(CODES, SCHEMA, n_folds=N_FOLDS)
    counts.save(tmp_path / "pairs")
    expected = regress_items(CODES, SCHEMA, list_holds())
    for source in (counts, StoredTables(tmp_path / "pairs")):
        found = regress_items(source, SCHEMA, list_holds())
        assert found.ridge == expected.ridge
        for name in ("positions", "first", "weights", "base", "shares"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_regress_items__weights_of_samples():
    """Weights of 3 and 1 are shares and dependence of rows repeated so often, of fewer effective samples."""
    weight = np.where(np.arange(len(CODES)) % 3 == 0, 3, 1)
    found = regress_items(pmf.count_pairs(CODES, SCHEMA, weight=weight), SCHEMA, list_holds())
    np.testing.assert_allclose(found.shares, weight @ HELD / weight.sum(), rtol=1e-12)
    effective = weight.sum() / (weight**2).sum()
    expected = predict_slowly(np.repeat(HELD, weight, axis=0), HELD, found.ridge / effective)
    has_one = HELD.any(axis=1)
    np.testing.assert_allclose(found.predict(CODES)[has_one], expected[has_one], rtol=1e-9)


def test_recommend__from_counts_is_the_sorted_regression():
    found = recommend(CODES, top=3)
    regression = regress_items(CODES, SCHEMA, list_holds())
    values = np.where(CODES >= 0, -np.inf, regression.predict(CODES))
    order = np.argsort(-values, axis=1, kind="stable")[:, :3]
    kept = np.take_along_axis(values, order, axis=1) > -np.inf
    assert found["item"].to_pylist() == [f"v{n}" for n in order[kept]]
    np.testing.assert_array_equal(
        found["value"].to_numpy(), np.take_along_axis(values, order, 1)[kept]
    )
    # new samples, from counts of others
    few = recommend(CODES[:5], top=3)
    assert few.drop_columns("ratings").equals(
        found.filter(found["row"].to_numpy() < 5).drop_columns("ratings").combine_chunks()
    )
    assert {*zip(few["item"].to_pylist(), few["ratings"].to_pylist(), strict=True)} <= {
        (f"v{n}", int((CODES[:, n] >= 0).sum())) for n in range(6)
    }


def test_recommend__from_counts_with_limits():
    groups = {"v0": "a", "v1": "a", "v2": "b", "v3": "b"}
    found = recommend(CODES, exclude="none", groups=groups, most_per_group=1)
    for row in range(0, len(CODES), 50):
        mine = found["item"].to_numpy()[found["row"].to_numpy() == row]
        assert sorted(groups.get(item, item) for item in mine) == ["a", "b", "v4", "v5"]
    # candidates are predicted from all items, rare ones from none and not recommended
    all_values = regress_items(CODES, SCHEMA, list_holds()).predict(CODES)
    two = recommend(CODES, items=["v1", "v4"], exclude="none")
    for row, item, value in zip(
        *(two[name].to_pylist() for name in ("row", "item", "value")), strict=True
    ):
        assert value == all_values[row, int(item[1])]
    rare = CODES.copy()
    rare[3:, 0] = -1
    with_rare = recommend(rare, counts=rare, exclude="none", at_least=10)
    without = CODES.copy()
    without[:, 0] = -1
    expected = recommend(without, counts=without, exclude="none", at_least=10)
    assert "v0" not in with_rare["item"].to_pylist()
    assert with_rare["value"].equals(expected["value"])


def test_recommend__from_counts_with_an_absent_level():
    schema = pmf.Schema(tuple(pmf.Variable(f"v{n}", ("0", "1", "2"), absent="0") for n in range(4)))
    codes = draw_codes(300, (3,) * 4, missing=0)
    found = recommend(codes, model=make_model(schema), counts=codes, value="P(item in {1, 2})")
    rated = codes > 0
    n_open = np.bincount(found["row"].to_numpy(), minlength=300)
    np.testing.assert_array_equal(n_open, (~rated).sum(axis=1))
    assert set(found["ratings"].to_pylist()) == set(rated.sum(axis=0).tolist())
    regression = regress_items(codes, schema, list_holds(schema, least=1))
    np.testing.assert_allclose(regression.shares, rated.mean(axis=0))


def test_recommend__from_counts_of_one_item_and_of_a_sample_without_answers():
    schema = make_schema(3)
    codes = np.array([[2], [2], [-1], [0]] * 10, np.int8)
    found = recommend([[-1]] @ np.ones((1, 1), int), model=make_model(schema), counts=codes)
    assert found["value"].to_pylist() == [0.5]
    empty = recommend(np.full((1, 6), -1, np.int8), top=6)
    shares = HELD.mean(axis=0)
    assert empty["item"].to_pylist() == [f"v{n}" for n in np.argsort(-shares, kind="stable")]
    np.testing.assert_allclose(empty["value"], np.sort(shares)[::-1])


def test_recommend__from_counts_leaves_out_variables_without_the_levels():
    """An age beside the movies predicts nothing, and is no candidate unless it is excluded or not among the items."""
    schema = pmf.Schema((*SCHEMA.variables, pmf.Variable("age", ("young", "old"))))
    both = np.column_stack([CODES, np.arange(len(CODES)) % 2]).astype(np.int8)
    codes = pmf.Codes(both)
    found = recommend(codes, model=make_model(schema), counts=codes, exclude=["age"])
    assert found["value"].equals(recommend(CODES)["value"])
    with pytest.raises(QuestionError, match="'age'"):
        recommend(codes, model=make_model(schema), counts=codes)


def test_recommend__from_counts_refuses(monkeypatch):
    with pytest.raises(QuestionError, match=r"E\(item\)"):
        recommend(CODES, value="E(item)")
    with pytest.raises(pmf.PmfError, match="n_folds is 1; pass at least 2"):
        recommend(CODES, counts=pmf.count_pairs(CODES, SCHEMA, n_folds=1))
    with pytest.raises(SchemaError, match="model and counts have different schemas"):
        recommend(CODES, counts=pmf.count_pairs(CODES[:, :2], make_schema(3, 4)))
    monkeypatch.setattr(item_regression, "find_memory_limit", lambda: 1000)
    with pytest.raises(MemoryPlanError, match=r"6 by 6 items.*at_least"):
        recommend(CODES)
