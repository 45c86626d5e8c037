import numpy as np
import pytest
from scipy.special import digamma

from benchmarks.crowd.scenarios import draw_crowd
from pmflib.apps.crowd import AnnotatorModel, CrowdModel, aggregate
from pmflib.apps.crowd.e_step import RULED_OUT, LogWeights, add_votes, score_states
from pmflib.apps.crowd.known_intercepts import (
    KnownScores,
    add_intercepts,
    find_intercepts,
    score_known,
)
from pmflib.base import SparseBlock


def draw_scores(rng, codes, ahead=2.0, n_classes=3):
    """Log-weights that are right on the whole: the class of a task is ahead, more or less."""
    scores = rng.normal(0, 1, (codes.size, n_classes))
    scores[np.arange(codes.size), codes] += ahead
    return scores


def test_find_intercepts__undo_what_all_workers_mistake():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 400)
    scores = draw_scores(rng, codes)
    scores[:, 1] -= 2.0
    found = find_intercepts(KnownScores(scores, codes), np.full(3, 1 / 3))
    assert found.sum() == pytest.approx(0, abs=1e-9)
    assert abs(found[0] - found[2]) < 0.4
    assert 1.0 < found[1] - found[0] < 2.5
    before, after = ((each.argmax(axis=1) != codes).mean() for each in (scores, scores + found))
    assert after < before - 0.05


def test_find_intercepts__few_tasks_say_little():
    rng = np.random.default_rng(1)
    codes = np.array([0, 1])
    found = find_intercepts(KnownScores(draw_scores(rng, codes), codes), np.full(3, 1 / 3))
    assert not found.any()


@pytest.mark.parametrize("n_known", [6, 30, 300])
def test_find_intercepts__none_where_classes_are_not_mistaken(n_known):
    """Known tasks of a log without anything to correct: most logs of a few known tasks get no intercepts at all."""
    found = []
    for seed in range(12):
        rng = np.random.default_rng([seed, n_known])
        codes = rng.integers(0, 3, n_known)
        known = KnownScores(draw_scores(rng, codes), codes)
        found.append(find_intercepts(known, np.full(3, 1 / 3)))
    assert np.mean([each.any() for each in found]) < 0.35


@pytest.mark.parametrize("codes", [np.zeros(50, int), np.full(1, 2)])
def test_find_intercepts__one_class_is_compared_with_none(codes):
    scores = draw_scores(np.random.default_rng(2), codes, ahead=-1.0)
    assert not find_intercepts(KnownScores(scores, codes), np.full(3, 1 / 3)).any()


def test_find_intercepts__known_tasks_may_be_chosen_by_class():
    rng = np.random.default_rng(3)
    prior = np.array([0.8, 0.15, 0.05])
    # what is known of the classes is right for tasks drawn at random, and as many of each are known
    codes = np.repeat(np.arange(3), 60)
    means = np.log(prior)
    labels = rng.normal(0, 1, (codes.size, 3))
    labels[np.arange(codes.size), codes] += 1.0
    found = find_intercepts(KnownScores(labels + means, codes), prior)
    # logistic regression of these tasks alone would undo the prior: 2.8 nats between the first and the last
    assert abs(found[2] - found[0]) < 1.4


def make_block():
    """Three tasks, two workers, two classes; levels are worker * 2 + class."""
    return SparseBlock(np.array([0, 2, 4, 5]), np.array([0, 2, 1, 3, 3], np.int32))


def test_score_known__a_task_has_no_share_in_its_score():
    mass = np.array([[[3.0, 1.0], [1.0, 4.0]], [[2.0, 1.5], [0.5, 3.0]]])
    states = np.array([4.0, 2.0])
    model = CrowdModel(states, mass, 1.0, AnnotatorModel())
    found = score_known([add_votes(make_block(), 2, np.array([0, -1, -1]))], model)
    assert found.codes.tolist() == [0]
    # both workers have called the task 0, and it is 0 but for what is left: one label less in that row of each
    known = add_votes(make_block().take(np.array([0])), 2, np.array([0]))
    (share,) = score_states(known, LogWeights.from_model(model, with_votes=True))
    assert 1 - np.exp(RULED_OUT) < share[0] < 1
    expected = np.log(states / 6)
    for cells in (mass[0], mass[1]):
        cells = cells - np.array([share, [0.0, 0.0]])
        expected += digamma(cells[0]) - digamma(cells.sum(axis=0))
    np.testing.assert_allclose(found.scores[0], expected, atol=1e-9)


def test_score_known__one_in_so_many_and_none():
    mass = np.ones((2, 2, 2))
    model = CrowdModel(np.ones(2), mass, 1.0, AnnotatorModel())
    known = np.array([0, 1, 1])
    block = add_votes(make_block(), 2, known)
    assert score_known([block], model, 2).codes.tolist() == [0, 1]
    assert score_known([], model).scores.shape == (0, 2)
    nothing = add_votes(make_block(), 2)
    assert score_known([nothing, block], model).codes.tolist() == [0, 1, 1]


def test_add_intercepts__equally_probable_classes_stay_so():
    model = CrowdModel(np.ones(2), np.ones((2, 2, 2)), 1.0, AnnotatorModel(evenness=1.0))
    # those of the first class are found in place of the second
    known = KnownScores(np.tile([[0.0, 1.0], [0.0, 3.0]], (30, 1)), np.tile([0, 1], 30))
    assert add_intercepts(model, known) is model
    free = CrowdModel(np.ones(2), np.ones((2, 2, 2)), 1.0, AnnotatorModel())
    assert add_intercepts(free, KnownScores(np.zeros((0, 2)), np.zeros(0, int))) is free
    leaning = add_intercepts(free, known)
    assert leaning.intercepts[0] > 0 > leaning.intercepts[1]
    # the prior is what was found, and tasks are scored with the intercepts
    np.testing.assert_array_equal(leaning.prior, free.prior)
    np.testing.assert_allclose(leaning.take_logs()[0] - free.take_logs()[0], leaning.intercepts)


@pytest.mark.parametrize("method", ["auto", "dawid_skene", "one_coin", "balanced"])
def test_aggregate__known_tasks_of_one_class_do_little_harm(method):
    gaps = []
    for seed in range(3):
        rng = np.random.default_rng([seed, 7])
        crowd = draw_crowd(600, 40, 3, 4, rng)
        tasks = np.flatnonzero(crowd.truth == 1)[:30]
        rest = np.setdiff1d(np.arange(600), tasks)
        without, found = (
            (aggregate(crowd.log, method, known=each).codes != crowd.truth)[rest].mean()
            for each in (None, dict.fromkeys(tasks.tolist(), 1))
        )
        gaps.append(found - without)
    assert np.mean(gaps) < 0.02
