"""Item response models: likelihood, recovery, the choice of traits, errors of item parameters."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import FloatArray, IdentificationWarning, PmfError
from pmflib.families.traits import ItemDesign
from pmflib.families.traits.quadrature import derive_logit, make_grid
from pmflib.fits import count_parameters
from pmflib.inference.errors.standard_errors import standard_errors
from tests.families.traits.planted_traits import draw_samples, make_schema, plant_items, traits_of
from tests.stored_samples import write_partition


def test_grid_has_the_moments_of_a_normal() -> None:
    for n_traits in (1, 2, 3):
        points, weights = make_grid(n_traits)
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights @ points, 0, atol=1e-12)
        np.testing.assert_allclose((points.T * weights) @ points, np.eye(n_traits), atol=0.02)


@pytest.mark.parametrize("nominal", [(), (0,)])
def test_derivatives_of_a_logit_are_those_of_its_likelihood(nominal: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    design = ItemDesign(make_schema([3], nominal), 2).open_variable(0)
    expanded = design.expand()
    mass = rng.uniform(0, 9, expanded.shape[:2])
    totals, at = mass.sum(axis=0), rng.normal(size=expanded.shape[2:])

    def score(coefficients: FloatArray) -> tuple[float, FloatArray]:
        sizes = np.exp(np.einsum("lqp,p->lq", expanded, coefficients))
        chances = sizes / sizes.sum(axis=0)
        return float((mass * np.log(chances)).sum()), chances

    slopes, curvature = derive_logit(design, mass, totals, score(at)[1])
    steps = 1e-5 * np.eye(at.size)
    numeric = [(score(at + step)[0] - score(at - step)[0]) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, numeric, rtol=1e-5)
    second = [
        (
            derive_logit(design, mass, totals, score(at - step)[1])[0]
            - derive_logit(design, mass, totals, score(at + step)[1])[0]
        )
        / 2e-5
        for step in steps
    ]
    np.testing.assert_allclose(curvature, second, rtol=1e-4, atol=1e-6)


def test_one_trait_is_found_again_and_its_likelihood_is_the_models_own() -> None:
    truth = plant_items([2] * 12, 1, 3)
    codes = draw_samples(truth, 4000, 4)[0]
    result = pmf.families.fit_item_responses(codes, 1, schema=truth.schema)
    assert result.converged
    assert result.training is not None
    mean = float(result.model.log_prob(codes).mean())
    assert result.training.per_row == pytest.approx(mean, rel=1e-12)
    assert result.log_likelihoods[-1] == pytest.approx(mean, rel=1e-12)
    assert np.all(np.diff(result.loss_history) <= 1e-12)
    assert result.training.n_parameters == 24 == count_parameters(result.model)
    found = traits_of(result.model)
    assert found is not None
    signs = np.sign((found.slopes * truth.slopes).sum())
    difference = signs * np.diff(found.slopes[:, 0])[::2] - np.diff(truth.slopes[:, 0])[::2]
    assert np.abs(difference).max() < 0.45
    # what happened is likelier under the fit than under what the answers were drawn from
    points, weights = make_grid(1)
    drawn_from = pmf.JointPMF(weights, truth.find_factors(points), truth.schema)
    assert mean > drawn_from.log_prob(codes).mean()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_intervals_of_item_parameters_hold(missing: float) -> None:
    truth = plant_items([2, 2, 3, 3, 2, 2], 1, 8)
    held = []
    for seed in range(25):
        codes = draw_samples(truth, 1200, 100 + seed, missing=missing)[0]
        result = pmf.families.fit_item_responses(codes, 1, schema=truth.schema)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)
            errors = standard_errors(result.model, codes)
        for name, values in (("base", truth.base), ("slopes", truth.slopes)):
            found = errors[name]
            centres = np.array([values[truth.schema.rows_of(k)].mean() for k in range(6)])
            logits = (values.T - np.repeat(centres, truth.schema.cardinalities)).T
            if name == "slopes" and float((found.values * logits).sum()) < 0:
                logits = -logits
            held.append(((found.lower <= logits) & (logits <= found.upper)).ravel())
    share = float(np.concatenate(held).mean())
    assert 0.9 < share < 0.985


def test_errors_of_turned_traits_are_finite_and_shown() -> None:
    truth = plant_items([3] * 9, 2, 9)
    codes = draw_samples(truth, 2000, 10)[0]
    result = pmf.families.fit_item_responses(codes, 2, schema=truth.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentificationWarning)
        errors = standard_errors(result.model, codes)
    assert np.isfinite(errors["slopes"].errors).all()
    # the level in the middle has no slope in any trait
    assert (errors["slopes"].errors.reshape(9, 3, 2)[:, ::2] > 0).all()
    assert errors["discriminations"].errors.shape == (9, 2)
    frame = result.to_frame(errors)
    sizes = {"discrimination": 9 * 2, "intercept": 27, "slope": 27 * 2}
    assert frame["parameter"].value_counts().to_dict() == sizes
    assert frame["error"].notna().all()


def test_what_no_sample_says_has_no_error() -> None:
    # one variable is never observed: its answers say nothing of it
    truth = plant_items([2] * 6, 1, 11)
    codes = draw_samples(truth, 600, 12)[0]
    codes[:, 2] = -1
    result = pmf.families.fit_item_responses(codes, 1, schema=truth.schema)
    with pytest.warns(IdentificationWarning):
        errors = standard_errors(result.model, codes)
    rows = truth.schema.rows_of(2)
    assert np.isnan(errors["slopes"].errors[rows]).all()
    assert np.isfinite(np.delete(errors["slopes"].errors, rows, axis=0)).all()


def test_levels_with_values_have_one_slope() -> None:
    schema = make_schema([4] * 6)
    assert ItemDesign(schema, 1).n_parameters == 6 * (3 + 1)
    assert ItemDesign(make_schema([4] * 6, range(6)), 2).n_parameters == 6 * (3 + 6) - 1
    codes = np.random.default_rng(0).integers(0, 4, (200, 6))
    found = traits_of(pmf.families.fit_item_responses(codes, 1, schema=schema).model)
    slopes = found.slopes.reshape(6, 4)
    np.testing.assert_allclose(np.diff(slopes, 2), 0, atol=1e-9)


def test_a_saved_model_answers_as_before(tmp_path: Path) -> None:
    truth = plant_items([2] * 8, 1, 13)
    codes = draw_samples(truth, 500, 14)[0]
    model = pmf.families.fit_item_responses(codes, 1, schema=truth.schema).model
    model.save(tmp_path / "model")
    again = pmf.JointPMF.load(tmp_path / "model")
    assert again.kind == "traits"
    assert again.is_mixture
    np.testing.assert_array_equal(again.predict_proba(codes, 3), model.predict_proba(codes, 3))
    # answers are those of the states, which the likelihood is of as well
    shown = codes.copy()
    shown[:, 3] = -1
    one = shown.copy()
    one[:, 3] = 1
    expected = np.exp(model.log_prob(one) - model.log_prob(shown))
    np.testing.assert_allclose(model.predict_proba(codes, 3)[:, 1], expected, rtol=1e-10)
    np.testing.assert_array_equal(again.traits(codes).scores, model.traits(codes).scores)


def test_same_samples_and_seed_give_the_same_bits() -> None:
    truth = plant_items([2] * 6, 2, 15)
    codes = draw_samples(truth, 700, 16)[0]
    first, second = (
        pmf.families.fit_item_responses(codes, 2, schema=truth.schema) for _ in range(2)
    )
    np.testing.assert_array_equal(first.model.factors, second.model.factors)


def test_edges_and_refusals() -> None:
    schema = pmf.Schema.from_cardinalities([2, 1, 3])
    codes = np.array([[0, 0, 2], [1, 0, -1], [-1, -1, -1]])
    result = pmf.families.fit_item_responses(codes, 1, schema=schema)
    assert np.isfinite(result.model.factors).all()
    assert np.isfinite(
        pmf.families.fit_item_responses(codes[2:], 1, schema=schema).model.factors
    ).all()
    for options, message in (
        ({"n_traits": 4}, "n_traits is 4"),
        ({"n_traits": 0}, "n_traits is 0"),
        ({"max_passes": -1}, "max_passes is -1"),
        ({"pseudo_count": np.inf}, "pseudo_count is inf"),
        ({"pseudo_count": -1.0}, "pseudo_count is -1"),
    ):
        with pytest.raises(PmfError, match=message):
            pmf.families.fit_item_responses(codes, schema=schema, **options)
    with pytest.raises(PmfError):
        pmf.families.fit_item_responses(codes[:0], schema=schema)
    people = pmf.families.fit_traits(
        np.tile(codes, (10, 1)), schema, dimensions=1, passes=2, n_states=5
    )
    with pytest.raises(PmfError, match="fit_item_responses"):
        standard_errors(people.model, codes)


@pytest.mark.parametrize("passes", [2, 9])
def test_an_interrupted_fit_goes_on_to_the_same_bits(tmp_path: Path, passes: int) -> None:
    truth = plant_items([3] * 9, 2, 9)
    codes = draw_samples(truth, 2000, 10)[0]
    whole = pmf.families.fit_item_responses(codes, 2, schema=truth.schema)
    n_made = 0

    def stop(run: str, state: object) -> None:
        nonlocal n_made
        n_made += 1
        if n_made == passes:
            raise KeyboardInterrupt

    options = {"schema": truth.schema, "checkpoint": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        pmf.families.fit_item_responses(codes, 2, on_pass=stop, **options)
    again = pmf.families.fit_item_responses(codes, 2, **options)
    np.testing.assert_array_equal(again.model.factors, whole.model.factors)
    assert again.loss_history == whole.loss_history
    assert np.all(np.diff(again.loss_history) <= 1e-12)
    with pytest.raises(PmfError, match="checkpoint"):
        pmf.families.fit_item_responses(codes[:-1], 2, **options)


def test_stored_samples_give_the_model_of_those_in_memory(tmp_path: Path) -> None:
    truth = plant_items([2] * 6, 1, 21)
    codes = draw_samples(truth, 500, 22)[0]
    blocks = write_partition(tmp_path, codes, truth.schema, sparse=True, block_rows=70)
    stored = pmf.em.StoredSamples(blocks, truth.schema)
    in_memory = pmf.families.fit_item_responses(codes, 1, schema=truth.schema).model
    model = pmf.families.fit_item_responses(stored, 1).model
    np.testing.assert_allclose(model.factors, in_memory.factors, atol=1e-6)
    errors = pmf.inference.standard_errors(model, stored)["slopes"].errors
    np.testing.assert_allclose(
        errors, pmf.inference.standard_errors(in_memory, codes)["slopes"].errors, rtol=1e-4
    )
