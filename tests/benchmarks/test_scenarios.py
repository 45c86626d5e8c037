import warnings
from functools import cache
from typing import get_args

import numpy as np
import pytest

from benchmarks.crowd.scenarios import ScenarioName, draw_crowd
from pmflib.apps.crowd import AnnotatorModel, aggregate, fit_crowd_model, read_labels

# tasks, workers, classes, labels of a task, rare classes
SHAPES = [
    (108, 39, 2, 39, False),
    (1500, 60, 5, 1.6, False),
    (400, 50, 3, 3, True),
]
SLOW_SHAPES = [
    (500, 164, 2, 10, False),
    (1000, 100, 2, 3, True),
    (300, 110, 5, 20, False),
    (1000, 59, 8, 2.5, False),
    (1500, 760, 4, 5, False),
    (1000, 80, 10, 4, True),
]
SCENARIOS = get_args(ScenarioName)
CELLS = [(shape, scenario) for shape in SHAPES for scenario in SCENARIOS]
SLOW_CELLS = [
    (shape, scenario)
    for row, shape in enumerate(SLOW_SHAPES)
    for column, scenario in enumerate(SCENARIOS)
    if (row + column) % 2 == 0
]
"""Every scenario in three of the six shapes, each of which has every other scenario."""


def find_wrong(found, truth):
    """Share of wrong labels, ties counted in part."""
    classes = np.array(found.log.classes.to_pylist())
    tasks = np.array(found.log.tasks.to_pylist())
    top = found.posterior >= found.posterior.max(axis=1, keepdims=True) - 1e-12
    hit = (top & (classes == truth[tasks][:, None])).sum(axis=1)
    return 1 - float((hit / top.sum(axis=1)).mean())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_draw_crowd__no_worker_labels_a_task_twice(scenario):
    rng = np.random.default_rng(1)
    crowd = draw_crowd(300, 30, 4, 5, rng, scenario=scenario, rare=True)
    assert np.unique(crowd.task * 30 + crowd.worker).size == crowd.task.size
    assert np.unique(crowd.task).size == 300
    assert crowd.prior.min() >= 0.02
    np.testing.assert_allclose(crowd.confusion.sum(axis=1), 1)
    assert 0 <= crowd.label.min() <= crowd.label.max() < 4


def test_draw_crowd__all_label():
    crowd = draw_crowd(20, 6, 2, 6, np.random.default_rng(2))
    np.testing.assert_array_equal(crowd.task, np.repeat(np.arange(20), 6))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_draw_crowd__prior_and_confusion_are_those_of_the_log(scenario):
    crowd = draw_crowd(20_000, 8, 3, 8, np.random.default_rng(3), scenario=scenario)
    shares = np.bincount(crowd.truth) / crowd.truth.size
    np.testing.assert_allclose(shares, crowd.prior, atol=0.015)
    found = np.zeros((8, 3, 3))
    np.add.at(found, (crowd.worker, crowd.label, crowd.truth[crowd.task]), 1)
    if scenario not in ("clique", "mixed"):  # who repeats another log otherwise
        np.testing.assert_allclose(
            found / found.sum(axis=1, keepdims=True), crowd.confusion, atol=0.05
        )


@cache
def gain_over_votes(shape, scenario, *seed):
    """By how much the default errs less than majority vote, a share of the tasks; of a seed's log."""
    n_tasks, n_workers, n_classes, n_labels, rare = shape
    rng = np.random.default_rng(seed)
    crowd = draw_crowd(n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario, rare=rare)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = aggregate(crowd.log)
    votes = find_wrong(aggregate(crowd.log, "majority"), crowd.truth)
    return votes - find_wrong(found, crowd.truth)


@pytest.mark.parametrize(
    ("shape", "scenario"),
    [*CELLS, *(pytest.param(*cell, marks=pytest.mark.slow) for cell in SLOW_CELLS)],
)
def test_auto__is_no_point_worse_than_majority(shape, scenario, request):
    if (shape, scenario) == (SHAPES[1], "grade"):
        reason = "1.3 points worse on this draw, 3.2 better in the mean of ten: see the next test"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    assert gain_over_votes(shape, scenario, 7, *scenario.encode()) >= -0.01


def test_auto__gains_where_one_draw_is_worse_than_majority():
    gains = [gain_over_votes(SHAPES[1], "grade", seed, *b"grade") for seed in range(7, 17)]
    assert np.mean(gains) > 0.02
    assert sum(gain < -0.01 for gain in gains) == 1


def test_auto__gains_on_the_whole():
    gains = [gain_over_votes(shape, scenario, 7, *scenario.encode()) for shape, scenario in CELLS]
    assert np.mean(gains) > 0.04


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(
            SHAPES[0],
            marks=pytest.mark.xfail(
                strict=True, reason="what most get wrong together, labels alone cannot show"
            ),
        ),
        SLOW_SHAPES[2],
    ],
)
def test_auto__is_no_point_worse_than_majority_where_tasks_are_graded_hard(shape):
    assert gain_over_votes(shape, "grade", 7) >= -0.01


@pytest.mark.parametrize("shape", [(400, 60, 5, 1.6, False), (500, 25, 2, 1.5, False)])
@pytest.mark.slow
def test_auto__gains_on_the_whole_where_a_task_has_hardly_more_than_one_label(shape):
    # of so few labels, a point on one log is chance
    gains = [
        gain_over_votes(shape, scenario, seed, *scenario.encode())
        for scenario in SCENARIOS
        for seed in range(3)
    ]
    assert np.mean(gains) > 0.01
    assert min(gains) > -0.03


@pytest.mark.parametrize("seed", [1, 3])
def test_auto__needs_no_votes_where_workers_have_labelled_thousands(seed):
    crowd = draw_crowd(3000, 8, 3, 5, np.random.default_rng([seed, *b"plain"]))
    free, found = (aggregate(crowd.log, method) for method in ("dawid_skene", "auto"))
    assert find_wrong(found, crowd.truth) <= find_wrong(free, crowd.truth) + 0.01


def test_fit_crowd_model__a_second_subclass_keeps_classes_apart_where_tasks_near_an_edge_are_hard():
    # with a state per class, the hard tasks of both classes come to share one
    rng = np.random.default_rng([100, 3, *b"order"])
    crowd = draw_crowd(108, 39, 2, 39, rng, scenario="order")
    log = read_labels(crowd.log)
    truth = crowd.truth[log.tasks.to_numpy()]
    wrong = [
        (
            fit_crowd_model(log, annotator_model, max_passes=100, tol=1e-5)[1].argmax(axis=1)
            != truth
        ).mean()
        for annotator_model in (AnnotatorModel(), AnnotatorModel(n_subclasses=2))
    ]
    # from the shares of the votes, as maximum likelihood starts; weighed votes lead elsewhere
    plain = aggregate(log, "dawid_skene").posterior.argmax(axis=1) != truth
    assert plain.mean() > 0.1
    assert max(wrong) < 0.03
