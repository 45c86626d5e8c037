import numpy as np
import pytest

from pmflib.base import adjust_by_holm, find_wald_test
from pmflib.inference.three_steps.assigned_classes import (
    Assigned,
    LevelOutcome,
    Logits,
    Means,
    NormalOutcome,
)

ERRORS = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.05, 0.15, 0.8]])


def draw(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2])
    assigned = np.array([rng.choice(3, p=ERRORS[each]) for each in classes])
    number = classes + rng.normal(size=n_rows)
    codes = (classes + rng.integers(0, 2, n_rows)) % 3
    covariates = np.stack([np.ones(n_rows), number], axis=1)
    designs = {
        "logits": Logits(covariates, 3),
        "normal": NormalOutcome(number, 3),
        "levels": LevelOutcome(codes, 3, 3),
        "means": Means(number[:, None], 3),
    }
    shares = 0.7 * np.eye(3)[assigned] + 0.1
    return designs, shares, rng.uniform(0.5, 2, n_rows)


CASES = [("logits", "bch"), ("logits", "ml"), ("normal", "ml"), ("levels", "ml"), ("means", "bch")]


@pytest.mark.parametrize(("name", "correction"), CASES)
def test_solve__scores_vanish_and_parts_are_their_derivatives(name, correction):
    designs, shares, weights = draw()
    design, assigned = designs[name], Assigned(shares, ERRORS, weights, correction)
    found = assigned.solve(design)
    assert found.converged
    n = found.parameters.size
    assert np.abs(found.scores.sum(axis=0)).max() < 1e-4

    def score(parameters, errors=ERRORS):
        return (
            Assigned(shares, errors, weights, correction)
            ._differentiate(design, parameters)[0]
            .sum(axis=0)
        )

    away = found.parameters + 0.1 * np.sin(np.arange(n))
    width = 1e-5
    steps = width * np.eye(n)
    slopes = [(score(away + step) - score(away - step)) / (2 * width) for step in steps]
    curvature = assigned._measure(design, away)[1]
    assert np.allclose(np.array(slopes), curvature, atol=1e-4)
    by_errors = assigned._differentiate(design, away)[1]
    for row, column in np.ndindex(3, 3):
        moved = ERRORS.copy()
        moved[row, column] += width
        less = ERRORS.copy()
        less[row, column] -= width
        slope = (score(away, moved) - score(away, less)) / (2 * width)
        assert np.allclose(slope, by_errors[:, row, column], atol=1e-4)


def test_solve__without_errors_of_assignment_is_the_plain_estimate():
    designs, shares, weights = draw()
    certain = np.eye(3)[shares.argmax(axis=1)]
    design = designs["means"]
    held = certain * weights[:, None]
    plain = design.columns[:, 0] @ held / held.sum(axis=0)
    by_bch = Assigned(certain, np.eye(3), weights, "bch").solve(design)
    by_ml = Assigned(certain, np.eye(3), weights, "ml").solve(designs["normal"])
    assert np.allclose(by_bch.parameters, plain)
    assert np.allclose(by_ml.parameters[3:6], plain)


def test_find_wald_test__is_the_square_of_a_score_and_takes_shares_that_sum_to_one():
    assert np.isclose(find_wald_test(np.array([3.0]), np.array([[4.0]])).statistic, 2.25)
    shares = np.array([0.5, -0.3, -0.2])
    spread = np.diag([0.2, 0.3, 0.5]) - np.outer([0.2, 0.3, 0.5], [0.2, 0.3, 0.5])
    whole, part = find_wald_test(shares, spread), find_wald_test(shares[:2], spread[:2, :2])
    assert whole.degrees == part.degrees == 2
    assert np.isclose(whole.statistic, part.statistic)
    assert np.isnan(find_wald_test(np.zeros(2), np.zeros((2, 2))).p_value)


def test_adjust_by_holm__keeps_the_order_given():
    assert np.allclose(adjust_by_holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
