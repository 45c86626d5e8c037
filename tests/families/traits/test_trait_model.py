import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, SchemaError
from pmflib.families.traits import TraitModel
from tests.families.traits.planted_traits import draw_samples, integrate, make_schema, plant_traits


def move_prior(model):
    root = np.array([[1.2, 0.0], [-0.4, 0.7]])
    return TraitModel(model.schema, model.base, model.slopes, np.array([0.5, -0.3]), root @ root.T)


@pytest.mark.parametrize("nominal", [(), tuple(range(0, 40, 3))])
def test_fold_in__is_near_quadrature(nominal):
    model = move_prior(plant_traits([5] * 40, 2, 1, nominal=nominal, size=0.4))
    codes, _ = draw_samples(model, 6, 2, missing=0.2)
    found = model.score_traits(codes)
    log_probs = model.log_prob(codes)
    for row in range(len(codes)):
        mean, covariance, log_prob, probabilities = integrate(model, codes[row])
        assert found.scores[row] == pytest.approx(mean, abs=0.08)
        assert found.errors[row] == pytest.approx(np.sqrt(np.diag(covariance)), rel=0.1)
        assert log_probs[row] == pytest.approx(log_prob, abs=0.05)
        hidden = np.flatnonzero(codes[row] < 0)
        block, rows = DenseBlock(codes[row : row + 1]), np.zeros(hidden.size, np.int64)
        for position, chances in zip(hidden, model.predict_cells(block, rows, hidden), strict=True):
            assert chances == pytest.approx(probabilities[model.schema.rows_of(position)], abs=0.02)


def test_fold_in__of_a_row_with_nothing_observed_is_the_prior():
    model = move_prior(plant_traits([3, 4, 2], 2, 3, nominal=(1,)))
    codes = np.full((2, 3), -1, np.int8)
    found = model.score_traits(codes)
    assert found.scores == pytest.approx(np.tile(model.mean, (2, 1)))
    assert found.errors == pytest.approx(np.tile(np.sqrt(np.diag(model.covariance)), (2, 1)))
    assert model.log_prob(codes).tolist() == [0.0, 0.0]
    for position, tolerance in ((0, 5e-3), (1, 1e-3), (2, 1e-3)):
        expected = integrate(model, codes[0])[3][model.schema.rows_of(position)]
        assert model.predict_proba(codes, position)[0] == pytest.approx(expected, abs=tolerance)


def test_predict_proba__ignores_the_own_column():
    model = plant_traits([5] * 6, 2, 4)
    codes, _ = draw_samples(model, 30, 5, missing=0.1)
    hidden = codes.copy()
    hidden[:, 2] = -1
    found = model.predict_proba(codes, "v2")
    assert np.array_equal(found, model.predict_proba(hidden, 2))
    assert found.sum(axis=1) == pytest.approx(1)


def test_fold_in__does_not_depend_on_the_batch(monkeypatch):
    model = plant_traits([5] * 8, 2, 6)
    codes, _ = draw_samples(model, 50, 7, missing=0.3)
    whole = model.predict_proba(codes, 1)
    monkeypatch.setattr("pmflib.families.traits.trait_model.BATCH_CELLS", 28)
    assert np.array_equal(model.predict_proba(codes, 1), whole)


def test_fold_in__without_traits_is_independence():
    schema = make_schema([3, 2])
    base = np.log(np.array([0.2, 0.3, 0.5, 0.6, 0.4]))
    model = TraitModel(schema, base, np.zeros((5, 0)), np.zeros(0), np.zeros((0, 0)))
    codes = np.array([[2, 0], [-1, 1]], np.int8)
    assert model.log_prob(codes) == pytest.approx(np.log([0.5 * 0.6, 0.4]))
    assert model.predict_proba(codes, 0)[0] == pytest.approx([0.2, 0.3, 0.5])
    assert model.score_traits(codes).scores.shape == (2, 0)


def test_find_factors__are_softmax():
    model = plant_traits([3, 2], 1, 8)
    factors = model.find_factors(np.array([[0.0], [2.0]]))
    logits = model.base[:3] + 2 * model.slopes[:3, 0]
    assert factors[:3, 1] == pytest.approx(np.exp(logits) / np.exp(logits).sum())
    assert factors[3:, 0].sum() == pytest.approx(1)


def test_trait_model__refuses_what_does_not_fit():
    model = plant_traits([3, 2], 1, 8)
    with pytest.raises(pmf.PmfError, match="slopes"):
        TraitModel(model.schema, model.base, model.slopes[:4], model.mean, model.covariance)
    with pytest.raises(pmf.PmfError, match="covariance"):
        TraitModel(model.schema, model.base, model.slopes, model.mean, -model.covariance)
    with pytest.raises(pmf.PmfError, match="base"):
        TraitModel(model.schema, model.base * np.inf, model.slopes, model.mean, model.covariance)
    with pytest.raises(SchemaError, match="outside"):
        model.score_traits(np.array([[7, 0]]))
