import math
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib_tasks.stages import MEASURES, HeldOutScores, choose_hidden, score_hidden
from tests.reference import conditional_pmf, joint_tensor, make_codes, make_model

SCHEMA = pmf.Schema(
    (
        pmf.Variable("a", ("x", "y")),
        pmf.Variable("b", ("1", "2", "5"), (1.0, 2.0, 5.0)),
        pmf.Variable("c", ("p", "q")),
    )
)
CARDINALITIES = [2, 3, 2]
BASELINE = np.array([0.5, 0.5, 0.2, 0.2, 0.6, 0.9, 0.1])


@pytest.fixture(scope="module")
def model():
    return pmf.JointPMF(*make_model(np.random.default_rng(0), CARDINALITIES, 2), SCHEMA)


@pytest.fixture(scope="module")
def codes():
    return make_codes(np.random.default_rng(1), 40, CARDINALITIES)


def score_by_loops(codes, hidden, model):
    tensor = joint_tensor(model.prior, model.factors, CARDINALITIES)
    sums = np.zeros((3, len(MEASURES)))
    for row, gone in zip(codes, hidden, strict=True):
        shown = np.where(gone, -1, row)
        for j in np.flatnonzero(gone):
            guesses = (conditional_pmf(tensor, shown, j), BASELINE[SCHEMA.rows_of(int(j))])
            sums[j, 0] += 1
            gain = math.log(guesses[0][row[j]] / guesses[1][row[j]])
            sums[j, 9] += gain**2
            for guess, column, error_column in zip(guesses, (1, 3), (5, 7), strict=True):
                sums[j, column] += math.log(guess[row[j]])
                sums[j, column + 1] += guess.argmax() == row[j]
                if j == 1:
                    error = guess @ [1, 2, 5] - [1, 2, 5][row[j]]
                    sums[j, error_column] += error**2
                    sums[j, error_column + 1] += abs(error)
    return sums


def test_score_hidden__equals_the_loop(model, codes):
    hidden = choose_hidden(codes, np.arange(40), 0.4, 7)
    scores = score_hidden(codes, hidden, model, BASELINE)
    np.testing.assert_allclose(scores.sums, score_by_loops(codes, hidden, model), rtol=1e-11)
    assert scores.log_likelihood == pytest.approx(model.log_prob(codes).sum(), rel=1e-13)
    assert scores.n_rows == 40


def test_score_hidden__calibration_is_that_of_all_hidden_cells(model, codes):
    hidden = choose_hidden(codes, np.arange(40), 0.4, 7)
    scores = score_hidden(codes, hidden, model, BASELINE)
    content: Any = scores.to_json(SCHEMA)
    assert sum(each["rows"] for each in content["calibration"]) == hidden.sum()
    shares = [each["rows"] * each["accuracy"] for each in content["calibration"]]
    correct = sum(each["correct"] for each in content["variables"].values())
    assert sum(shares) == pytest.approx(correct)
    assert all(each["from"] <= each["probability"] <= each["to"] for each in content["calibration"])


def test_merge__blocks_add_up(model, codes):
    hidden = choose_hidden(codes, np.arange(40), 0.4, 7)
    parts = [
        score_hidden(codes[a:b], hidden[a:b], model, BASELINE)
        for a, b in ((0, 1), (1, 1), (1, 30), (30, 40))
    ]
    merged = HeldOutScores.merge([HeldOutScores.zero(3), *parts])
    whole = score_hidden(codes, hidden, model, BASELINE)
    np.testing.assert_allclose(merged.sums, whole.sums, rtol=1e-13)
    np.testing.assert_allclose(merged.bins, whole.bins, rtol=1e-13)
    assert merged.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-13)
    assert merged.n_rows == 40


def test_summarise__means_over_hidden_cells():
    sums = np.array([[2, -2, 1, -4, 0, 0, 0, 0, 0, 2], [2, -2, 2, -2, 1, 8, 4, 18, 6, 0]], float)
    schema = pmf.Schema((SCHEMA["a"], SCHEMA["b"]))
    assert HeldOutScores(sums, -30.0, 10, np.zeros((10, 3))).summarise(schema) == {
        "rows": 10.0,
        "log_likelihood_per_row": -3.0,
        "hidden_cells": 4.0,
        "log_prob_per_cell": -1.0,
        "accuracy": 0.75,
        "baseline_log_prob_per_cell": -1.5,
        "baseline_accuracy": 0.25,
        "errors": {
            "b": {"cells": 2.0, "rmse": 2.0, "mae": 2.0, "baseline_rmse": 3.0, "baseline_mae": 3.0}
        },
    }


def test_summarise__errors_of_one_scale_alone_are_pooled():
    years, dollars, stars = (40.0, 60.0), (0.0, 9000.0), (1.0, 2.0)
    schema = pmf.Schema(
        (
            pmf.Variable("age", ("young", "old"), years, (50.0,)),
            pmf.Variable("film", ("1", "2"), stars),
            pmf.Variable("income", ("0", "9000"), dollars),
            pmf.Variable("school", ("primary", "secondary"), stars),
            pmf.Variable("book", ("1", "2"), stars),
            pmf.Variable("asked", ("1", "3"), (1.0, 3.0)),
        )
    )
    sums = np.zeros((6, 10))
    sums[:, 0] = 2, 1, 2, 5, 3, 0
    sums[:, 5:9] = np.outer([1, 0.1, 1000, 0.5, 0.3, 0], [8, 4, 18, 6])
    errors = HeldOutScores(sums, 0.0, 5, np.zeros((10, 3))).summarise(schema)["errors"]
    assert list(errors) == ["age", "film, book", "income"]
    assert [each["cells"] for each in errors.values()] == [2, 4, 2]
    assert [each["mae"] for each in errors.values()] == pytest.approx([2, 1.6 / 4, 2000])
    expected = [2, np.sqrt(3.2 / 4), np.sqrt(4000)]
    assert [each["rmse"] for each in errors.values()] == pytest.approx(expected)
    assert errors["film, book"]["baseline_mae"] == pytest.approx(2.4 / 4)


def test_summarise__no_samples_and_no_ordinal_variable():
    summary = HeldOutScores.zero(1).summarise(pmf.Schema((SCHEMA["a"],)))
    assert summary["accuracy"] == summary["rows"] == summary["log_likelihood_per_row"] == 0.0
    assert "errors" not in summary


def test_choose_hidden__does_not_depend_on_how_rows_are_cut(codes):
    rows = np.arange(100, 140)
    whole = choose_hidden(codes, rows, 0.5, 3)
    parts = [choose_hidden(codes[s], rows[s], 0.5, 3) for s in (slice(0, 7), slice(7, 40))]
    assert np.array_equal(whole, np.concatenate(parts))
    assert not np.array_equal(whole, choose_hidden(codes, rows, 0.5, 4))


def test_choose_hidden__share_of_the_observed_cells():
    codes = make_codes(np.random.default_rng(2), 5000, CARDINALITIES)
    rows = np.arange(5000)
    hidden = choose_hidden(codes, rows, 0.2, 0)
    observed = codes >= 0
    assert not np.any(hidden & ~observed)
    n = observed.sum()
    assert abs(hidden.sum() - 0.2 * n) < 6 * np.sqrt(n * 0.2 * 0.8)
    assert not choose_hidden(codes, rows, 0.0, 0).any()
    assert np.array_equal(choose_hidden(codes, rows, 1.0, 0), observed)
