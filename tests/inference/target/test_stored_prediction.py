import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.inference.target import rivals
from pmflib_tasks.stages import Folds
from pmflib_tasks.target import prediction as stored_prediction
from pmflib_tasks.target.prediction import evaluate_stored_target
from pmflib_tasks.target.target_report import TargetReport
from tests.reference import make_codes, make_model
from tests.stored_samples import write_partition

SIZES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)
MODEL = pmf.JointPMF(*make_model(np.random.default_rng(1), SIZES, 2), SCHEMA)


@pytest.fixture
def codes():
    return make_codes(np.random.default_rng(0), 300, SIZES)


@pytest.fixture(params=["dense", "sparse"])
def folds(request, tmp_path, codes):
    blocks = write_partition(tmp_path, codes, SCHEMA, sparse=request.param == "sparse")
    return Folds(*([each for each in blocks if each.fold == fold] for fold in range(3)))


def test_evaluate_target__scores_are_those_of_the_model_on_rows_with_the_target(folds, codes):
    counts = pmf.count_pairs(codes[::3], SCHEMA)
    found = evaluate_stored_target(None, folds, counts, MODEL, "v2", 0)
    test = codes[2::3][codes[2::3, 2] >= 0]
    chances = MODEL.predict_proba(test, 2)[np.arange(len(test)), test[:, 2]]
    assert found.rows == len(test) < 100
    assert found.scores["model"]["log_loss"].value == pytest.approx(-np.log(chances).mean())
    assert np.sum(found.confusion) == len(test)
    assert list(found.scores) == [
        "model",
        "majority class",
        "naive Bayes",
        "logistic regression",
        "boosting",
    ]
    assert len(found.verdict) == 4
    difference = found.differences["naive Bayes"]["brier"].value
    first, second = (found.scores[name]["brier"].value for name in ("model", "naive Bayes"))
    assert difference == pytest.approx(first - second)
    assert TargetReport.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    assert list(found.to_json()) == [
        *("target", "rows", "scores", "differences", "levels", "confusion", "calibration"),
        *("verdict", "left_out"),
    ]


def test_evaluate_target__on_workers_or_alone_to_the_same_bits(folds, codes, thread_client):
    counts = pmf.count_pairs(codes[::3], SCHEMA)
    alone, together = (
        evaluate_stored_target(client, folds, counts, MODEL, "v0", 5)
        for client in (None, thread_client)
    )
    assert alone == together


def test_evaluate_target__bounds_draw_rows_and_leave_predictors_out(folds, codes, monkeypatch):
    counts = pmf.count_pairs(codes[::3], SCHEMA)
    whole = evaluate_stored_target(None, folds, counts, MODEL, "v0", 5)
    monkeypatch.setattr(stored_prediction, "MAX_TESTED", 30)
    monkeypatch.setattr(rivals, "MAX_WORK", 10)
    found = evaluate_stored_target(None, folds, counts, MODEL, "v0", 5)
    assert 10 < found.rows < 50 < whole.rows
    assert list(found.left_out) == ["logistic regression", "boosting"]
    assert "logistic regression" not in found.scores


def test_evaluate_target__no_test_sample(folds, codes):
    counts = pmf.count_pairs(codes[::3], SCHEMA)
    found = evaluate_stored_target(None, folds._replace(test=[]), counts, MODEL, "v0", 5)
    assert found.rows == 0
    assert found.verdict
