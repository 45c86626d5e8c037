"""A classifier beside the workers: worth nothing, worth a lot, and too sure of itself."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from tests.apps.crowd.label_logs import draw_log

AHEAD = 1.8
"""Standard deviations by which the score of the right class is ahead of others."""


def predict(kind, truth, rng, n_classes=3):
    """Frame of a planted classifier: its probabilities are right as they stand, sharpened, or of nothing."""
    scores = rng.normal(0, 1, (truth.size, n_classes))
    if kind != "useless":
        scores[np.arange(truth.size), truth] += AHEAD
    logs = AHEAD * scores * (4.0 if kind == "overconfident" else 1.0)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return {"task": np.arange(truth.size)} | {str(k): shares[:, k] for k in range(n_classes)}


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(2)
    log, truth = draw_log(rng, n_tasks=500, n_workers=25, n_classes=3, n_labels=3)
    return log, truth, pmf.crowd.aggregate(log)


def wrong(found, truth):
    return float((found.codes != truth).mean())


@pytest.mark.parametrize(
    ("kind", "power", "error"),
    [
        ("useless", (-0.2, 0.2), 1.1),
        ("good", (0.7, 1.4), 0.6),
        ("overconfident", (0.15, 0.6), 0.8),
    ],
)
def test_aggregate__a_classifier_counts_for_what_it_is_worth(drawn, kind, power, error):
    log, truth, alone = drawn
    table = predict(kind, truth, np.random.default_rng(5))
    found = pmf.crowd.aggregate(log, classifier=table)
    assert power[0] < found.classifier.power < power[1]
    assert wrong(found, truth) <= error * wrong(alone, truth)
    # what the workers are is learnt from labels alone
    np.testing.assert_array_equal(found.posterior, alone.posterior)
    rows = np.arange(truth.size)
    before, after = (
        -np.log(np.maximum(each.probabilities[rows, truth], 1e-6)).mean() for each in (alone, found)
    )
    assert after < before + 0.01
    assert found.labels["confidence"].to_pylist() == found.probabilities.max(axis=1).tolist()


def test_aggregate__a_classifier_may_know_some_tasks_in_any_order_and_others(drawn):
    log, truth, alone = drawn
    table = predict("good", truth, np.random.default_rng(5))
    rows = np.random.default_rng(1).permutation(250)
    part = {name: values[rows] for name, values in table.items()}
    part["task"] = np.append(part["task"][:-1], 10_000)
    found = pmf.crowd.aggregate(log, classifier=part)
    none = np.isnan(found.predictions).any(axis=1)
    assert none.sum() == 251
    np.testing.assert_array_equal(found.probabilities[none], alone.probabilities[none])


def test_aggregate__a_classifier_labels_tasks_without_labels_and_leaves_known_ones():
    table = {"task": [1, 1, 2, 2, 3], "worker": list("abaab"), "label": ["x", "x", "y", "y", None]}
    model = {"task": [1, 2, 3], "x": [0.9, 0.1, 0.2], "y": [0.1, 0.9, 0.8]}
    found = pmf.crowd.aggregate(table, known={1: "x"}, classifier=model)
    assert found.labels["label"].to_pylist() == ["x", "y", "y"]
    assert found.probabilities[0].tolist() == [1.0, 0.0]
    assert np.isfinite(found.probabilities).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"task": [1], "x": [1.0]}, r"classifier has no columns \['y'\]"),
        (
            {"task": [1, 1], "x": [1, 1], "y": [0, 0]},
            r"classifier has tasks named more than once: \['1'\]",
        ),
        ({"task": [1], "x": [-0.1], "y": [1.1]}, r"gives task '1' the probabilities \[-0.1, 1.1\]"),
        ({"task": [1], "x": [0.0], "y": [0.0]}, "not all 0"),
        ({"task": [7], "x": [0.5], "y": [0.5]}, "has none of the tasks of the log"),
    ],
)
def test_aggregate__refuses_what_is_no_classifier(model, message):
    table = {"task": [1, 1, 2], "worker": list("aba"), "label": ["x", "x", "y"]}
    with pytest.raises(SchemaError, match=message):
        pmf.crowd.aggregate(table, classifier=model)
