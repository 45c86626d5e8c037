"""Tables of standard errors: the parameters and scale of the model's summary, and errors that an oracle finds."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

import pmflib as pmf
from pmflib.base import FloatArray, IdentificationWarning, percent
from pmflib.families.traits import Discriminations, ItemDesign
from tests.families.traits.planted_traits import draw_samples, make_schema, plant_items, traits_of
from tests.inference.errors.test_standard_errors import plant


def find_errors(model, codes, *design):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentificationWarning)
        return pmf.inference.standard_errors(model, codes, *design)


@pytest.mark.parametrize("kind", ["classes", "forests", "design"])
def test_errors_of_classes_are_of_the_probabilities_of_the_summary(kind):
    truth = plant([3, 2, 3, 2, 2], 2, concentration=0.7)
    codes = truth.sample(600, 0)
    result = pmf.fit_em(
        codes, rank=2, schema=truth.schema, dependence="tree" if kind == "forests" else "none"
    )
    design = (
        [pmf.surveys.SurveyDesign(np.ones(600), psu=np.arange(600) // 3)]
        if kind == "design"
        else []
    )
    errors = find_errors(result.model, codes, *design)
    (table,) = errors.summary().tables
    rows = {(row[0], row[1]): row[2] for row in table.rows}
    assert len(rows) == 2 + 2 * truth.schema.n_levels
    n_compared = 0
    for state, share, levels in result.model.summary().tables[0].rows:
        at = int(state)
        assert share == percent(float(errors["prior"].values[at]))
        assert rows["share of the samples", state] == f"{errors['prior'].values[at]:.3f}"
        for name, level, said in re.findall(r"(\w+)=(\w+) (\S+ %)", levels):
            row = truth.schema.rows_of(name).start + truth.schema[name].levels.index(level)
            value = float(errors["factors"].values[row, at])
            assert said == percent(value)
            assert rows[f"{name} = {level}", state] == f"{value:.3f}"
            n_compared += 1
    assert n_compared > 4
    assert table.title.startswith("Probabilities")
    assert set(errors.scales) == set(errors)
    assert all("probabilities" in scale for scale in errors.scales.values())


@pytest.mark.parametrize("n_traits", [1, 2])
def test_errors_of_item_responses_are_of_the_numbers_of_the_summary(n_traits):
    truth = plant_items([2, 3, 2, 4, 2, 3], n_traits, 3)
    codes = draw_samples(truth, 900, 4)[0]
    result = pmf.families.fit_item_responses(codes, n_traits, schema=truth.schema)
    errors = find_errors(result.model, codes)
    tables = errors.summary().tables
    rows = {tuple(row[:2]): row[2] for row in tables[0].rows}
    said = {}
    thresholds = []
    for name, *cells in result.summary().tables[0].rows:
        for trait, cell in enumerate(cells[:n_traits]):
            value, levels = re.fullmatch(r"(\S+) \((.+)\)", cell).groups()
            said[f"{name}: {levels}", str(trait)] = value
        thresholds += [each for cell in cells[n_traits:] for each in cell.split(", ")]
    assert rows == said
    assert (errors["discriminations"].values >= 0).all()
    assert "standard deviation of the trait" in tables[0].title
    assert set(errors.scales) == set(errors)
    frame = result.to_frame(errors).set_index("parameter")
    np.testing.assert_array_equal(
        frame.loc["discrimination", "value"], errors["discriminations"].values.ravel()
    )
    assert len(tables) == (2 if n_traits == 1 else 1)
    if n_traits == 1:
        assert [row[1] for row in tables[1].rows] == thresholds
        assert "standard deviations of the trait" in tables[1].title
        np.testing.assert_array_equal(frame.loc["threshold", "error"], errors["thresholds"].errors)


def test_two_levels_are_those_of_the_logistic_model():
    truth = plant_items([2] * 5, 1, 2)
    found = Discriminations.find(truth)
    for trait in (-1.3, 0.4):
        factors = truth.find_factors(np.array([[trait]]))[:, 0].reshape(5, 2)
        expected = found.values[:, 0] * (trait - found.thresholds)
        np.testing.assert_allclose(np.log(factors[:, 1] / factors[:, 0]), expected)


def find_derivatives(of, at: FloatArray, width: float = 1e-4) -> FloatArray:
    """Derivatives of an array by parameters: (size, n_parameters)."""
    steps = width * np.eye(at.size)
    return np.stack([(of(at + s) - of(at - s)) / (2 * width) for s in steps], axis=1)


def test_errors_of_item_responses_are_those_of_the_numeric_information():
    """The larger of both errors by derivatives of the likelihood of rows, and of the numbers, by differences."""
    schema = make_schema([2, 3, 2, 3, 2], (3,))
    truth = plant_items([2, 3, 2, 3, 2], 1, 7)
    codes = draw_samples(truth, 700, 8, missing=0.1)[0]
    model = pmf.families.fit_item_responses(
        codes, 1, schema=schema, pseudo_count=0.0, tol=1e-13, max_passes=3000
    ).model
    errors = find_errors(model, codes)
    design = ItemDesign(schema, 1)
    points, weights = design.grid
    traits = traits_of(model)
    at = design.project(traits.base, traits.slopes)

    def score_rows(coefficients):
        factors = np.log(design.make_model(coefficients).find_factors(points))
        logs = np.tile(np.log(weights), (len(codes), 1))
        for k in range(schema.n_variables):
            own = factors[schema.rows_of(k)]
            logs += np.where(codes[:, k, None] >= 0, own[codes[:, k]], 0.0)
        return logsumexp(logs, axis=1)

    def find_scores(coefficients):
        return find_derivatives(score_rows, coefficients)

    observed = -find_derivatives(lambda c: find_scores(c).sum(axis=0), at, 1e-3)
    inverse, scores = np.linalg.inv(observed), find_scores(at)
    robust = inverse @ (scores.T @ scores) @ inverse
    for name, read in (
        ("discriminations", lambda c: Discriminations.find(design.make_model(c)).values[:, 0]),
        ("thresholds", lambda c: Discriminations.find(design.make_model(c)).thresholds),
        ("slopes", lambda c: design.spread(c)[1][:, 0]),
    ):
        slopes = find_derivatives(read, at)
        both = [np.sqrt(np.diagonal(slopes @ each @ slopes.T)) for each in (inverse, robust)]
        expected = np.maximum(*both)
        known = errors[name].is_determined.ravel()
        assert known.mean() > 0.7
        np.testing.assert_allclose(
            errors[name].errors.ravel()[known], expected[known], rtol=2e-3, atol=1e-6
        )


def test_a_threshold_that_no_slope_moves_has_no_interval():
    codes = np.random.default_rng(3).integers(0, 2, (400, 5))
    codes[:, 1] = np.where(np.arange(400) % 4 > 0, codes[:, 0], codes[:, 1])
    codes[:, 2] = np.where(np.arange(400) % 4 > 1, codes[:, 0], codes[:, 2])
    model = pmf.families.fit_item_responses(codes, 1).model
    errors = find_errors(model, codes)
    slopes, thresholds = errors["discriminations"], errors["thresholds"]
    is_moved = slopes.lower[:, 0] > 0
    assert is_moved.any()
    assert not is_moved.all()
    np.testing.assert_array_equal(np.isfinite(thresholds.errors), is_moved)
