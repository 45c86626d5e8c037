import numpy as np
import pytest

import pmflib as pmf
from pmflib.families.forests import Forest, TreeParameters, TreePMF
from pmflib.inference.imputation import draw_gaps, draw_uniforms, imputing, seed_rows

SCHEMA = pmf.Schema.from_cardinalities([2, 3, 2])


def make_model():
    rng = np.random.default_rng(3)
    factors = np.vstack([rng.dirichlet(np.ones(k), 2).T for k in SCHEMA.cardinalities])
    return pmf.JointPMF(np.array([0.3, 0.7]), factors, SCHEMA)


def make_chain():
    """One state, in which the second variable nearly copies the first, and the third the second."""
    forest = Forest(np.array([[-1, 0, 1]], np.int32), SCHEMA.offsets)
    near = [[0.98, 0.01, 0.01], [0.01, 0.98, 0.01]], [[0.99, 0.01], [0.01, 0.99], [0.5, 0.5]]
    tables = np.concatenate([[0.5, 0.5], *map(np.ravel, near)])
    return TreePMF.make(TreeParameters(np.ones(1), forest, tables), SCHEMA)


def draw_table(model, row, n_rows=40_000, seed=5):
    codes = np.tile(np.array([row], np.int8), (n_rows, 1))
    return draw_gaps(model, codes, codes < 0, seed_rows(np.arange(n_rows), seed))


@pytest.mark.parametrize("make", [make_model, make_chain])
def test_draw_gaps__cells_of_a_row_have_their_joint_distribution(make):
    model = make()
    filled = draw_table(model, [-1, 1, -1])
    assert (filled[:, 1] == 1).all()
    expected = model.condition({"v1": SCHEMA["v1"].levels[1]}).marginal(["v0", "v2"])
    shares = np.zeros((2, 2))
    np.add.at(shares, (filled[:, 0], filled[:, 2]), 1 / len(filled))
    # four standard errors of a share of 40,000 rows, at most
    np.testing.assert_allclose(shares, expected, atol=0.01)


def test_draw_gaps__do_not_depend_on_other_rows_or_batches(monkeypatch):
    model, rng = make_model(), np.random.default_rng(0)
    codes = model.sample(300, 0)
    codes[rng.random(codes.shape) < 0.4] = -1
    seeds = seed_rows(np.arange(300), 7)
    whole = draw_gaps(model, codes, codes < 0, seeds)
    assert (whole[codes >= 0] == codes[codes >= 0]).all()
    assert (whole >= 0).all()
    order = rng.permutation(300)[:80]
    some = draw_gaps(model, codes[order], codes[order] < 0, seeds[order])
    np.testing.assert_array_equal(some, whole[order])
    monkeypatch.setattr(imputing, "BATCH_NUMBERS", 40)
    np.testing.assert_array_equal(draw_gaps(model, codes, codes < 0, seeds), whole)


def test_draw_gaps__cells_that_are_not_to_be_filled_stay_missing():
    model = make_model()
    codes = np.full((50, 3), -1, np.int8)
    gaps = np.zeros(codes.shape, bool)
    gaps[:, 1] = True
    filled = draw_gaps(model, codes, gaps, seed_rows(np.arange(50), 0))
    assert (filled[:, [0, 2]] == -1).all()
    assert (filled[:, 1] >= 0).all()
    nothing = draw_gaps(model, codes[:0], gaps[:0], seed_rows(np.arange(0), 0))
    assert nothing.shape == (0, 3)


def test_seed_rows__draws_are_independent_and_uniform():
    rows = np.arange(20_000)
    first, second = (draw_uniforms(seed_rows(rows, 1, draw), 0) for draw in (0, 1))
    other = draw_uniforms(seed_rows(rows, 1, 0), 1)
    for values in (first, second, other):
        assert values.min() >= 0
        assert values.max() < 1
        np.testing.assert_allclose(np.quantile(values, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)
    for values in (second, other, first[np.r_[1:20_000, 0]]):
        assert abs(np.corrcoef(first, values)[0, 1]) < 0.03
