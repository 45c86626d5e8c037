"""Models of workers on disk, for other workers, and compared by the labels that they have held out."""

from dataclasses import replace

import numpy as np
import pytest

from pmflib.apps.crowd import AnnotatorModel, CrowdModel, WorkerModel
from pmflib.apps.crowd.stored.worker_models import count_held_out_folds, make_gain, sum_gains
from pmflib.base import SparseBlock

LABELS = SparseBlock(np.array([0, 3, 4, 6]), np.array([0, 3, 5, 2, 1, 4], np.int32))
"""Three workers and two classes: a task with three labels, one with one, one with two."""


def make_model(seed, n_subclasses=1, intercepts=None):
    rng = np.random.default_rng(seed)
    mass = rng.uniform(1, 5, (3, 2, 2 * n_subclasses))
    kind = AnnotatorModel(variational=False, n_subclasses=n_subclasses)
    return CrowdModel(rng.uniform(1, 3, 2 * n_subclasses), mass, 2.0, kind, 0.5, intercepts)


def predict(model, levels):
    """Log-probability of each label of a task given the others, summed, by enumeration."""
    given = model.mass / model.mass.sum(axis=1, keepdims=True)
    total = 0.0
    for own in levels:
        weights = model.states / model.states.sum()
        for other in levels:
            if other != own:
                weights = weights * given[other // 2, other % 2]
        total += np.log(weights @ given[own // 2, own % 2] / weights.sum())
    return total


@pytest.mark.parametrize("n_subclasses", [1, 2])
def test_sum_gains__equals_enumeration(n_subclasses):
    new, live = make_model(1, n_subclasses), make_model(2, n_subclasses)
    tasks = [[0, 3, 5], [1, 4]]
    gains = np.array([predict(new, each) - predict(live, each) for each in tasks])
    lengths = np.array([3, 2])
    expected = [2, 5, gains.sum(), 13, (gains * lengths).sum(), (gains**2).sum()]
    np.testing.assert_allclose(sum_gains(LABELS, new, live), expected, rtol=1e-12)
    found = make_gain(sum_gains(LABELS, new, live))
    assert (found.cells, found.samples) == (5, 2)


def test_sum_gains__a_model_gains_nothing_over_itself_and_single_labels_say_nothing():
    model = make_model(3)
    assert sum_gains(LABELS, model, model)[2] == 0
    assert not sum_gains(LABELS.take(np.array([1])), model, make_model(4)).any()


@pytest.mark.parametrize("intercepts", [None, np.array([0.5, -0.5])])
def test_worker_model__is_read_as_it_was_written_and_fitted_to_other_workers(tmp_path, intercepts):
    model = make_model(5, 2, intercepts)
    stored = WorkerModel(model, ("a", "b", "c"), ("x", "y"), 7, True, {15: make_model(6, 2)})
    stored.save(tmp_path / "model")
    found = WorkerModel.load(tmp_path / "model")
    assert found.model.mass.tobytes() == model.mass.tobytes()
    assert found.held_out[15].mass.tobytes() == stored.held_out[15].mass.tobytes()
    assert (found.passes, found.converged) == (7, True)
    np.testing.assert_array_equal(found.model.intercepts, intercepts)
    other = found.fit_to(("c", "d", "a"))
    np.testing.assert_array_equal(other.model.mass[[0, 2]], model.mass[[2, 0]])
    # somebody new labels as all do together
    pooled = model.mass.sum(axis=0) / model.mass.sum(axis=(0, 1))
    np.testing.assert_allclose(other.model.mass[1] / other.model.mass[1].sum(axis=0), pooled)


def test_worker_model__groups_of_copiers_go_by_name(tmp_path):
    model = make_model(5)
    kind = replace(model.annotator_model, copiers=(((0, 0.5), (2, 0.75)),))
    model = replace(model, annotator_model=kind)
    WorkerModel(model, ("a", "b", "c"), ("x", "y"), 7, True, {}).save(tmp_path / "model")
    found = WorkerModel.load(tmp_path / "model")
    assert found.model.annotator_model == kind
    other = found.fit_to(("d", "c", "a"))
    assert other.model.annotator_model.copiers == (((1, 0.75), (2, 0.5)),)
    # who is left alone repeats nobody
    assert found.fit_to(("a", "b")).model.annotator_model.copiers == ()


def test_count_held_out_folds__small_logs_hold_out_all():
    assert count_held_out_folds(500, 16, 1) == 16
    assert count_held_out_folds(10_000_000, 16, 1) == 1
    assert count_held_out_folds(0, 16, 2) == 16
    assert count_held_out_folds(160_000, 16, 1) == 2
