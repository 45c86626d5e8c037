"""Scores of rows against the definitions, in plain NumPy."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.model import RowScorer, planted_factors
from pmflib.model.row_scores import BATCH_ROWS


def make_model(sizes, rank, *, seed=0, concentration=0.5):
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors(sizes, rank, rng, concentration=concentration)
    return pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(sizes))


def draw(model, n_rows, missing, seed=1):
    rng = np.random.default_rng(seed)
    codes = model.sample(n_rows, seed)
    codes[rng.random(codes.shape) < missing] = -1
    return codes


def leave_one_out(model, codes):
    """Probability of each observed cell given the others, and most probable level: each by its own prediction."""
    chances, best, most = (np.full(codes.shape, np.nan) for _ in range(3))
    for position in range(codes.shape[1]):
        probabilities = model.predict_proba(codes, position)
        rows = np.flatnonzero(codes[:, position] >= 0)
        chances[rows, position] = probabilities[rows, codes[rows, position]]
        best[:, position], most[:, position] = (
            probabilities.argmax(axis=1),
            probabilities.max(axis=1),
        )
    return chances, best, most


@pytest.mark.parametrize(
    ("sizes", "rank", "missing"),
    [
        ([3, 2, 4, 5], 3, 0.3),
        ([2, 2], 1, 0.5),
        ([4] * 30, 9, 0.1),
        ([1, 3], 2, 0.2),
        ([200, 3], 5, 0),
    ],
)
def test_score__least_probable_cell_is_that_of_predictions_one_by_one(sizes, rank, missing):
    model = make_model(sizes, rank)
    codes = draw(model, 300, missing)
    found = RowScorer(model).score(codes)
    np.testing.assert_array_equal(found.log_probs, model.log_prob(codes))
    np.testing.assert_array_equal(found.posteriors, model.posterior(codes))
    np.testing.assert_array_equal(found.states, found.posteriors.argmax(axis=1))
    np.testing.assert_array_equal(found.n_observed, (codes >= 0).sum(axis=1))
    chances, best, most = leave_one_out(model, codes)
    observed = np.flatnonzero(found.n_observed > 0)
    least = np.nanmin(chances[observed], axis=1)
    np.testing.assert_allclose(found.probabilities[observed], least, rtol=1e-12)
    variables = found.variables[observed]
    np.testing.assert_allclose(chances[observed, variables], least, rtol=1e-12)
    np.testing.assert_allclose(
        found.expected_probabilities[observed], most[observed, variables], rtol=1e-12
    )
    assert (found.expected[observed] == best[observed, variables]).mean() > 0.99
    nothing = np.flatnonzero(found.n_observed == 0)
    assert (found.variables[nothing] == -1).all()
    for values in (found.surprises, found.probabilities, found.expected_probabilities):
        assert np.isnan(values[nothing]).all()


def test_score__probabilities_of_zero_are_never_divided_by():
    # each level of the first two variables is impossible in one state: naively 0 / 0
    factors = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]], float)
    model = pmf.JointPMF(np.array([0.75, 0.25]), factors, pmf.Schema.from_cardinalities([2, 2, 2]))
    codes = np.array([[0, 0, 0], [1, 1, 0], [0, -1, 1], [-1, 1, 1]], np.int8)
    found = RowScorer(model).score(codes)
    # the others say the state
    np.testing.assert_allclose(found.probabilities, [0.9, 0.1, 0.1, 0.75], rtol=1e-12)
    chances, best, _ = leave_one_out(model, codes)
    np.testing.assert_allclose(found.probabilities, np.nanmin(chances, axis=1), rtol=1e-10)
    rows = np.arange(len(codes))
    np.testing.assert_array_equal(found.expected, best[rows, found.variables])


def test_score__a_row_that_cannot_be_has_a_finite_score():
    factors = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 1]], float)
    model = pmf.JointPMF(np.array([0.5, 0.5]), factors, pmf.Schema.from_cardinalities([2, 2, 2]))
    found = RowScorer(model).score(np.array([[0, 0, 1], [0, 0, 0]], np.int8))
    # the third is what is wrong, as the two others agree
    assert found.variables[0] == 2
    assert found.probabilities[0] < 1e-290
    assert found.expected[0] == 0
    assert found.expected_probabilities[0] == pytest.approx(1)
    assert np.isfinite(found.surprises).all()
    assert found.surprises[0] > 100
    assert found.surprises[1] < 1


def test_score__does_not_depend_on_how_rows_are_cut():
    model = make_model([3] * 12, 4)
    codes = draw(model, BATCH_ROWS + 100, 0.2)
    whole = RowScorer(model).score(codes)
    parts = [RowScorer(model).score(codes[a:b]) for a, b in ((0, 5000), (5000, len(codes)))]
    for name in ("surprises", "probabilities", "expected_probabilities", "variables", "states"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(joined, getattr(whole, name), rtol=1e-12, atol=1e-13)


def test_score__wide_rows():
    model = make_model([5] * 400, 6)
    codes = draw(model, 50, 0.5)
    found = RowScorer(model).score(codes)
    chances, _, _ = leave_one_out(model, codes)
    np.testing.assert_allclose(found.probabilities, np.nanmin(chances, axis=1), rtol=1e-10)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize(("size", "n_variables", "rank"), [(5, 30, 10), (3, 16, 4), (2, 40, 3)])
def test_score__surprises_have_the_expected_mean_and_deviation(share, size, n_variables, rank):
    model = make_model([size] * n_variables, rank, concentration=0.3)
    codes = draw(model, 20_000, 1 - share)
    surprises = RowScorer(model).score(codes).surprises
    surprises = surprises[~np.isnan(surprises)]
    # what is known of the state is an approximation: a tenth or two of a standard deviation
    assert abs(surprises.mean()) < 0.2
    assert 0.85 < surprises.std() < 1.15


def test_score__refuses_codes_that_do_not_fit():
    with pytest.raises(SchemaError, match="outside"):
        RowScorer(make_model([2, 2], 1)).score(np.array([[0, 2]], np.int8))
    assert RowScorer(make_model([2, 2], 1)).score(np.empty((0, 2), np.int8)).states.size == 0
