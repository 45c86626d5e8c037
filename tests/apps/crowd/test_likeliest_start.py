from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import pmflib as pmf
from benchmarks.crowd.planted_crowds import draw_published_crowd
from pmflib.apps.crowd import CrowdModel, LabelsInMemory, fit_crowd_model, fitting, plan_passes
from pmflib.apps.crowd.dawid_skene import fit_crowd
from pmflib.apps.crowd.e_step import LogWeights
from pmflib.apps.crowd.fitting import find_likeliest_start, fit_labels
from pmflib.apps.crowd.pairs.annotator_model import MAXIMUM_LIKELIHOOD
from pmflib.base import IdentificationWarning, Limits
from pmflib.em import State
from tests.apps.crowd.label_logs import CountedLabels, draw_log

TEN = Limits(10, 0.0)


def draw_rare(seed, n_tasks=1000):
    crowd = draw_published_crowd(n_tasks, np.random.default_rng([seed, n_tasks]), version="text")
    return crowd, pmf.crowd.read_labels(crowd.log, classes=range(3))


# rightly found: workers who are often wrong give these classes four times as many labels as they have tasks
@pytest.mark.filterwarnings("ignore::pmflib.base.errors.IdentificationWarning")
@pytest.mark.parametrize("method", ["robust", "designated"])
def test_find_likeliest_start__splitting_and_merging_leaves_where_the_frequent_class_is_split(
    method,
):
    # classes of 86, 7 and 7 %: from pairs and from votes alike, passes end 35 nats and more below those from the truth
    crowd, log = draw_rare(105)
    truth = CrowdModel.from_probabilities(crowd.prior, crowd.confusion)
    ends = {}
    for name, start in (("truth", truth), ("votes", MAXIMUM_LIKELIHOOD), ("pairs", None)):
        if name == "pairs":
            alone = pmf.crowd.aggregate(log, method, em=False)
            start = CrowdModel.from_probabilities(alone.prior, alone.confusion)
        fit, _ = fit_crowd_model(log, start, max_passes=1000, tol=1e-6)
        ends[name] = 1000 * fit.log_likelihoods[-1]
    assert max(ends["votes"], ends["pairs"]) < ends["truth"] - 20
    found = pmf.crowd.aggregate(log, method, max_passes=1000, tol=1e-6)
    best = crowd.measure(*estimate(log, truth))
    assert crowd.measure(found.prior, found.confusion) <= 1.05 * best


@pytest.mark.parametrize("seed", [14, 37])
def test_find_likeliest_start__a_start_that_climbs_late_is_found(seed, monkeypatch):
    # a class of 5 %: after ten passes, the split that ends highest is not yet ahead; at least 10 of 12 runs missed it
    # the search alone: votes here contradict the truth
    monkeypatch.setattr(fitting, "SCREENING", replace(fitting.SCREENING, vote_cost=0.0))
    crowd, log = draw_rare(seed)
    source = CountedLabels.from_log(log)
    alone = pmf.crowd.aggregate(log, "robust", em=False)
    ends = {
        name: CrowdModel.from_probabilities(one.prior, one.confusion)
        for name, one in (("truth", crowd), ("pairs", alone))
    }
    limits = Limits(1000, 1e-6)
    highest = climb(log, ends["truth"])
    found = [
        find_likeliest_start(source, ends["pairs"], np.random.default_rng(draw), limits=limits)
        for draw in range(12)
    ]
    reached = np.array([climb(log, start) for start in found])
    assert (reached > highest - 1).sum() >= 9


def climb(log, start):
    """Log-likelihood of all labels where passes end, nats."""
    fit, _ = fit_crowd_model(log, start, max_passes=1000, tol=1e-6)
    return log.n_tasks * fit.log_likelihoods[-1]


def estimate(log, start):
    fit, _ = fit_crowd_model(log, start, max_passes=1000, tol=1e-6)
    return fit.parameters.prior, fit.parameters.confusion


def test_find_likeliest_start__start_is_kept_unless_others_are_clearly_likelier():
    crowd, log = draw_rare(100, 2000)
    source = CountedLabels.from_log(log)
    start = CrowdModel.from_probabilities(crowd.prior, crowd.confusion)
    found = find_likeliest_start(source, start, np.random.default_rng(0), limits=TEN)
    plain = fit_crowd(source, State(start), limits=TEN)
    np.testing.assert_array_equal(found.parameters.mass, plain.parameters.mass)
    assert found.log_likelihoods == plain.log_likelihoods
    # workers who are all alike say nothing of the classes: the votes are likelier
    even = CrowdModel.from_probabilities(np.ones(3), np.full((25, 3, 3), 1 / 3))
    found = find_likeliest_start(source, even, np.random.default_rng(0), limits=TEN)
    votes = fit_crowd(source, MAXIMUM_LIKELIHOOD, limits=TEN)
    assert found.log_likelihoods[-1] >= votes.log_likelihoods[-1]


def test_find_likeliest_start__classes_split_and_merged_are_named_by_the_labels():
    # a start that hardly distinguishes classes: the halves of the one that is split may be any two, but for their names
    for seed in (105, 158):
        _, log = draw_rare(seed)
        source = CountedLabels.from_log(log)
        start = CrowdModel.from_probabilities(
            np.ones(3), np.tile(0.3 + 0.1 * np.eye(3), (25, 1, 1))
        )
        known = find_likeliest_start(source, start, np.random.default_rng(0)).parameters
        gains = np.einsum("mac,m->ac", known.confusion, known.mass.sum(axis=(1, 2)))
        np.testing.assert_array_equal(linear_sum_assignment(-gains)[1], range(3))


def test_find_likeliest_start__two_classes_cannot_be_split():
    rng = np.random.default_rng(5)
    task, worker = np.divmod(np.arange(400), 4)
    log = pmf.crowd.read_labels(
        {"task": task, "worker": worker, "label": rng.integers(2, size=400)}, classes=range(2)
    )
    source = CountedLabels.from_log(log)
    start = CrowdModel.from_probabilities(np.ones(2), rng.random((4, 2, 2)))
    found = find_likeliest_start(source, start, rng, limits=TEN)
    assert found.n_passes == 10
    # ten passes from each of two starts, one for the shares of the votes, and the votes of both and of the longer run
    assert source.n_passes == 24


def test_find_likeliest_start__no_task_one_class_one_pass():
    log = pmf.crowd.read_labels({"task": [], "worker": [], "label": []}, classes=range(3))
    source = CountedLabels.from_log(log)
    start = CrowdModel.from_probabilities(np.ones(3), np.ones((0, 3, 3)))
    assert find_likeliest_start(source, start, np.random.default_rng(0)).converged
    log = pmf.crowd.read_labels({"task": [1, 1], "worker": [1, 2], "label": ["x", "x"]})
    source = CountedLabels.from_log(log)
    start = CrowdModel.from_probabilities(np.ones(1), np.ones((2, 1, 1)))
    assert find_likeliest_start(source, start, np.random.default_rng(0)).parameters.prior == [1.0]
    crowd, log = draw_rare(101)
    source = CountedLabels.from_log(log)
    start = CrowdModel.from_probabilities(crowd.prior, crowd.confusion)
    found = find_likeliest_start(source, start, np.random.default_rng(0), limits=Limits(1))
    assert found.n_passes == 1


@pytest.mark.parametrize("is_collapsed", [False, True])
def test_fit_labels__a_start_that_contradicts_the_votes_is_refused(is_collapsed):
    table, truth = draw_log(
        np.random.default_rng(8), n_tasks=200, n_workers=8, n_classes=3, n_labels=4
    )
    source = LabelsInMemory.from_log(pmf.crowd.read_labels(table))
    plan = plan_passes("dawid_skene", 10, 1e-3)
    confusion = np.tile(0.7 * np.eye(3) + 0.1, (8, 1, 1))
    prior = np.ones(3)
    if is_collapsed:
        # nobody ever gives the first class, and all tasks are of it
        confusion[:, :, 0], prior = [0.02, 0.49, 0.49], np.array([1e9, 1.0, 1.0])
    start = CrowdModel.from_probabilities(prior, confusion)
    rng = np.random.default_rng(0)
    if not is_collapsed:
        assert fit_labels(source, plan, start, rng=rng, em=False)[0].parameters is start
        return
    with pytest.warns(IdentificationWarning, match="em"):
        fit, reason = fit_labels(source, plan, start, rng=rng, em=False)
    assert reason
    weights = LogWeights.from_model(fit.parameters, with_votes=False)
    assert (source.find_posteriors(weights).argmax(axis=1) == truth).mean() > 0.7


@pytest.mark.parametrize(("gain", "informed", "taken"), [(4, 3, 0), (8, 3, 1), (4, 0, 1)])
def test_take_likeliest__a_task_that_contradicts_informed_votes_costs_half_a_nat(
    gain, informed, taken
):
    # 10 of 50 tasks are of the second class, by the votes of three workers
    task, worker = np.divmod(np.arange(150), 3)
    log = pmf.crowd.read_labels({"task": task, "worker": worker, "label": (task >= 40).astype(int)})
    source = LabelsInMemory.from_log(log)
    named, blind = np.array([[0.9, 0.1], [0.1, 0.9]]), np.full((2, 2), 0.5)
    fits = []
    for confusion, log_likelihood in ((named, -100.0), (blind, -100.0 + gain)):
        model = CrowdModel.from_probabilities(
            np.array([40.0, 10.0]), np.repeat(confusion[None], 3, axis=0)
        )
        fits.append(State(model, log_likelihoods=(log_likelihood / 50,)))
    kept = fitting._take_likeliest(source, np.arange(3) < informed, fits)
    assert kept is fits[taken]


@pytest.mark.filterwarnings("ignore:no task has:pmflib.base.errors.IdentificationWarning")
@pytest.mark.parametrize("n_labels", [1, 3])
def test_aggregate__too_few_labels_for_free_matrices_use_the_default(n_labels):
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 3, 600)
    task = np.repeat(np.arange(600), n_labels)
    worker = np.concatenate([rng.choice(150, n_labels, replace=False) for _ in range(600)])
    label = np.where(rng.random(task.size) < 0.6, truth[task], rng.integers(0, 3, task.size))
    log = pmf.crowd.read_labels({"task": task, "worker": worker, "label": label})
    with pytest.warns(IdentificationWarning, match="too few labels"):
        found = pmf.crowd.aggregate(log, "robust")
    np.testing.assert_array_equal(found.posterior, pmf.crowd.aggregate(log).posterior)
    assert "too few labels" in found.reason
