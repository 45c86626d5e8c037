from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from pmflib.crowd import aggregate, read_answers
from pmflib.crowd.aggregation import RULES, fit_annotators
from pmflib.crowd.likeliest_start import begin_passes
from pmflib.crowd.passes import evaluate_blocks, run_passes
from pmflib.crowd.votes import add_votes
from pmflib.solvers.crowd.annotator_model import Annotators
from pmflib.synthetic.label_logs import draw_published_crowd

RULE = RULES["dawid_skene"]


def evaluate_on(answers):
    """Statistics of all tasks, and a list that grows by one with each time that they are taken."""
    block, seen = add_votes(answers.block, answers.n_classes), []

    def evaluate(*weights):
        seen.append(1)
        return evaluate_blocks([block], *weights)

    return evaluate, seen


def draw_rare(seed, n_tasks=1000):
    crowd = draw_published_crowd(n_tasks, np.random.default_rng([seed, n_tasks]), version="text")
    return crowd, read_answers(crowd.answers, classes=range(3))


@pytest.mark.parametrize("method", ["robust", "designated"])
def test_begin_passes__cutting_anew_leaves_where_the_frequent_class_is_split(method):
    # classes of 86, 7 and 7 %: from pairs and from votes alike, passes end 35 nats and more below those from the truth
    crowd, answers = draw_rare(105)
    truth = Annotators(crowd.prior, crowd.confusion, 0.0, RULE)
    ends = {}
    for name, start in (("truth", truth), ("votes", None), ("pairs", None)):
        if name == "pairs":
            alone = aggregate(answers, method, em=False)
            start = Annotators(alone.prior, alone.confusion, 0.0, RULE)
        fit, _ = fit_annotators(answers, RULE, start=start, max_passes=1000, tol=1e-6)
        ends[name] = 1000 * fit.log_likelihoods[-1]
    assert max(ends["votes"], ends["pairs"]) < ends["truth"] - 20
    found = aggregate(answers, method, max_passes=1000, tol=1e-6)
    best = crowd.measure(*estimate(answers, truth))
    assert crowd.measure(found.prior, found.confusion) <= 1.05 * best


@pytest.mark.parametrize("seed", [14, 37])
def test_begin_passes__a_start_that_climbs_late_is_found(seed):
    # a class of 5 %: after ten passes, the cut that ends highest is not yet ahead; at least 10 of 12 runs missed it
    crowd, answers = draw_rare(seed)
    evaluate, _ = evaluate_on(answers)
    alone = aggregate(answers, "robust", em=False)
    ends = {
        name: Annotators(one.prior, one.confusion, 0.0, RULE)
        for name, one in (("truth", crowd), ("pairs", alone))
    }
    limits: dict[str, Any] = {"max_passes": 1000, "tol": 1e-6}
    highest = climb(answers, ends["truth"])
    begun = [
        begin_passes(evaluate, ends["pairs"], np.random.default_rng(draw), **limits)
        for draw in range(12)
    ]
    found = np.array([climb(answers, start) for start in begun])
    assert (found > highest - 1).sum() >= 9


def climb(answers, start):
    """Log-likelihood of all answers where passes end, nats."""
    fit, _ = fit_annotators(answers, RULE, start=start, max_passes=1000, tol=1e-6)
    return answers.n_tasks * fit.log_likelihoods[-1]


def estimate(answers, start):
    fit, _ = fit_annotators(answers, RULE, start=start, max_passes=1000, tol=1e-6)
    return fit.annotators.prior, fit.annotators.confusion


def test_begin_passes__start_is_kept_unless_others_are_clearly_likelier():
    crowd, answers = draw_rare(100, 2000)
    evaluate, _ = evaluate_on(answers)
    start = Annotators(crowd.prior, crowd.confusion, 0.0, RULE)
    begun = begin_passes(evaluate, start, np.random.default_rng(0), max_passes=10, tol=0)
    plain = run_passes(evaluate, 25, RULE, n_classes=3, start=start, max_passes=10, tol=0)
    np.testing.assert_array_equal(begun.annotators.mass, plain.annotators.mass)
    assert begun.moved == plain.moved
    # annotators who are all alike say nothing of the classes: the votes are likelier
    even = Annotators(np.ones(3), np.full((25, 3, 3), 1 / 3), 0.0, RULE)
    begun = begin_passes(evaluate, even, np.random.default_rng(0), max_passes=10, tol=0)
    votes = run_passes(evaluate, 25, RULE, n_classes=3, max_passes=10, tol=0)
    assert begun.log_likelihoods[-1] >= votes.log_likelihoods[-1]


def test_begin_passes__classes_cut_anew_are_named_by_the_answers():
    # a start that hardly tells classes apart: the halves of the class that is split may be any two, but for their names
    for seed in (105, 158):
        _, answers = draw_rare(seed)
        evaluate, _ = evaluate_on(answers)
        start = Annotators(np.ones(3), np.tile(0.3 + 0.1 * np.eye(3), (25, 1, 1)), 0.0, RULE)
        known = begin_passes(evaluate, start, np.random.default_rng(0)).annotators
        gains = np.einsum("mac,m->ac", known.confusion, known.mass.sum(axis=(1, 2)))
        np.testing.assert_array_equal(linear_sum_assignment(-gains)[1], range(3))


def test_begin_passes__two_classes_cannot_be_cut():
    rng = np.random.default_rng(5)
    task, worker = np.divmod(np.arange(400), 4)
    answers = read_answers(
        {"task": task, "worker": worker, "label": rng.integers(2, size=400)}, classes=range(2)
    )
    evaluate, seen = evaluate_on(answers)
    start = Annotators(np.ones(2), rng.random((4, 2, 2)), 0.0, RULE)
    begun = begin_passes(evaluate, start, rng, max_passes=10, tol=0)
    assert len(begun.moved) == 10
    # ten passes from each of two starts, and one for the shares of the votes
    assert len(seen) == 21


def test_begin_passes__no_task_one_class_one_pass():
    answers = read_answers({"task": [], "worker": [], "label": []}, classes=range(3))
    evaluate, _ = evaluate_on(answers)
    start = Annotators(np.ones(3), np.ones((0, 3, 3)), 0.0, RULE)
    assert begin_passes(evaluate, start, np.random.default_rng(0)).converged
    answers = read_answers({"task": [1, 1], "worker": [1, 2], "label": ["x", "x"]})
    evaluate, _ = evaluate_on(answers)
    start = Annotators(np.ones(1), np.ones((2, 1, 1)), 0.0, RULE)
    assert begin_passes(evaluate, start, np.random.default_rng(0)).annotators.prior == [1.0]
    crowd, answers = draw_rare(101)
    evaluate, _ = evaluate_on(answers)
    start = Annotators(crowd.prior, crowd.confusion, 0.0, RULE)
    begun = begin_passes(evaluate, start, np.random.default_rng(0), max_passes=1)
    assert len(begun.moved) == 1
