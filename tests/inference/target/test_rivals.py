import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.inference.target import fit_boosting, fit_logistic_regression, rivals
from pmflib.inference.target.rivals import find_fit_obstacle

SIZES = np.array([2, 3, 3])
ALONE = np.array([0.5, 0.4, 0.1])


def draw(n_rows, seed):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, n, n_rows) for n in SIZES], axis=1)
    # missing says more than the level: level 2 of the target is never there
    codes[:, 2] = rng.integers(0, 2, n_rows)
    codes[(codes[:, 2] == 1) & (rng.random(n_rows) < 0.9), 1] = -1
    return codes


def rows(n_rows, seed):
    return DenseBlock(draw(n_rows, seed))


def test_fit_logistic_regression__whole_weights_are_rows_again():
    codes, often = draw(200, 2), np.random.default_rng(3).integers(1, 4, 200)
    weighted = DenseBlock(codes, often.astype(float))
    again = DenseBlock(np.repeat(codes, often, axis=0))
    first, second = (
        fit_logistic_regression(each, each, SIZES, 2, ALONE) for each in (weighted, again)
    )
    assert first.penalty == second.penalty
    np.testing.assert_allclose(first.predict_proba(codes), second.predict_proba(codes), atol=1e-3)


def test_fit_logistic_regression__missing_is_a_level_and_unseen_levels_keep_their_share():
    fitted = fit_logistic_regression(rows(400, 0), rows(100, 1), SIZES, 2, ALONE)
    pmf = fitted.predict_proba(np.array([[0, -1, 0], [1, 2, 1]]))
    np.testing.assert_allclose(pmf.sum(axis=1), 1)
    np.testing.assert_allclose(pmf[:, 2], 0.1)
    assert pmf[0, 1] > 0.7
    assert pmf[1, 0] > 0.7
    assert fitted.penalty in rivals.PENALTIES


def test_fit_logistic_regression__without_other_rows_takes_the_default():
    fitted = fit_logistic_regression(rows(50, 0), rows(0, 1), SIZES, 2, ALONE)
    assert fitted.penalty == rivals.DEFAULT_PENALTY


def test_find_fit_obstacle__what_cannot_be_fitted(monkeypatch):
    codes = draw(50, 0)
    assert find_fit_obstacle(codes, 2, 3) == ""
    assert "no other variable" in find_fit_obstacle(codes[:, 2:], 0, 3)
    assert "fewer than two levels" in find_fit_obstacle(codes[:0], 2, 3)
    monkeypatch.setattr(rivals, "MAX_WORK", 449)
    assert find_fit_obstacle(codes, 2, 3).startswith("50 rows x 3 variables x 3 levels")
    with pytest.raises(ValueError, match="2 classes"):
        fit_logistic_regression(
            DenseBlock(codes[codes[:, 2] == 0]), DenseBlock(codes), SIZES, 2, ALONE
        )


def test_fit_boosting__finds_what_two_variables_say_together():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (600, 4))
    codes[:, 3] = codes[:, 0] ^ codes[:, 1]
    codes[rng.random(600) < 0.1, 2] = -1
    schema, alone = pmf.Schema.from_cardinalities([2, 2, 2, 3]), np.array([0.4, 0.4, 0.2])
    parts = DenseBlock(codes[:400]), DenseBlock(codes[400:500])
    found = fit_boosting(*parts, schema, 3, alone).predict_proba(codes[500:])
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found[:, 2], 0.2)
    assert (found.argmax(axis=1) == codes[500:, 3]).all()
    again = fit_boosting(*parts, schema, 3, alone).predict_proba(codes[500:])
    np.testing.assert_array_equal(found, again)


def test_fit_boosting__validation_rows_choose_fewer_trees_on_noise():
    codes = np.random.default_rng(1).integers(0, 2, (300, 3))
    schema, alone = pmf.Schema.from_cardinalities([2, 2, 2]), np.array([0.5, 0.5])
    found, without = (
        fit_boosting(DenseBlock(codes[:200]), DenseBlock(codes[200:more]), schema, 2, alone)
        for more in (300, 200)
    )
    assert found.fitted.n_iter_ < without.fitted.n_iter_ == rivals.BOOSTED_TREES
