import inspect
import re
from dataclasses import fields

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd import (
    CROWD_METHODS,
    AnnotatorModel,
    CrowdMethod,
    CrowdModel,
    CrowdOptions,
    CrowdPassPlan,
    aggregate,
    fit_crowd_model,
)
from tests.apps.crowd.label_logs import draw_log, read_real_log

SINGLE = pytest.mark.filterwarnings("ignore::pmflib.base.errors.IdentificationWarning")


def count_wrong(found, truth):
    labels = np.array(found.labels["label"].to_pylist())
    return int((labels != truth).sum())


def count_wrong_by_posterior(found, truth):
    """Wrong labels by the method's own posterior: what is published."""
    labels = np.array(found.log.classes.to_pylist())[found.posterior.argmax(axis=1)]
    return int((labels != truth).sum())


@pytest.mark.parametrize(
    ("name", "busiest", "method", "n_wrong"),
    [
        ("bluebird", None, "majority", 26),
        ("bluebird", None, "mv_em", 12),
        ("dog", 52, "mv_em", 128),
    ],
)
def test_aggregate__published_anchor(name, busiest, method, n_wrong):
    log, truth = read_real_log(name, busiest)
    assert count_wrong_by_posterior(pmf.crowd.aggregate(log, method), truth) == n_wrong


def test_aggregate__majority_of_dog_counts_ties_in_part():
    log, truth = read_real_log("dog", 52)
    found = pmf.crowd.aggregate(log, "majority")
    top = found.posterior >= found.posterior.max(axis=1, keepdims=True) - 1e-9
    right = top[np.arange(truth.size), truth - 1] / top.sum(axis=1)
    assert 1 - right.mean() == pytest.approx(0.179058, abs=5e-7)


@pytest.mark.parametrize("name", ["bluebird", "dog", "labelme", "jn-product"])
@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_aggregate__auto_is_better_than_majority_on_real_logs(name):
    log, truth = read_real_log(name)
    votes = count_wrong(pmf.crowd.aggregate(log, "majority"), truth)
    assert count_wrong(pmf.crowd.aggregate(log), truth) < votes


def em_in_a_loop(log, truth_shares, n_passes):
    """Dawid-Skene by hand: maximum likelihood, from the shares of the votes."""
    n_workers, n_classes = log["worker"].max() + 1, truth_shares.shape[1]
    posterior = truth_shares
    for _ in range(n_passes):
        confusion = np.zeros((n_workers, n_classes, n_classes))
        np.add.at(confusion, (log["worker"], log["label"]), posterior[log["task"]])
        confusion /= confusion.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
        logs = np.log(np.maximum(confusion, 1e-300))
        scores = np.zeros_like(posterior) + np.log(prior)
        np.add.at(scores, log["task"], logs[log["worker"], log["label"]])
        posterior = np.exp(scores - scores.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
    return posterior


def test_aggregate__dawid_skene_is_the_textbook_loop():
    rng = np.random.default_rng(3)
    log, _ = draw_log(rng, n_tasks=60, n_workers=6, n_classes=3, n_labels=4)
    shares = pmf.crowd.aggregate(log, "majority").posterior
    found = pmf.crowd.aggregate(log, "dawid_skene", max_passes=7, tol=0)
    # the posterior comes one update after the last pass
    np.testing.assert_allclose(found.posterior, em_in_a_loop(log, shares, 8), atol=1e-9)


@pytest.mark.parametrize("method", ["auto", "dawid_skene", "one_coin", "balanced"])
def test_aggregate__good_workers_are_recovered(method):
    rng = np.random.default_rng(5)
    sizes = {"n_tasks": 1500, "n_workers": 12, "n_classes": 3, "n_labels": 6}
    log, truth = draw_log(rng, **sizes, accuracy=(0.4, 0.9))
    found = pmf.crowd.aggregate(log, method, max_passes=300)
    votes = pmf.crowd.aggregate(log, "majority")
    assert count_wrong(found, truth) < count_wrong(votes, truth)
    right = log["label"] == truth[log["task"]]
    actual = np.bincount(log["worker"], right) / np.bincount(log["worker"])
    np.testing.assert_allclose(found.accuracy, actual, atol=0.06)
    np.testing.assert_allclose(found.prior, 1 / 3, atol=0.03)


def test_aggregate__order_and_names_of_rows_do_not_matter():
    rng = np.random.default_rng(8)
    log, _ = draw_log(rng, n_tasks=80, n_workers=9, n_classes=2, n_labels=3)
    order = rng.permutation(log["task"].size)
    shuffled = {name: column[order] for name, column in log.items()}
    first, second = pmf.crowd.aggregate(log), pmf.crowd.aggregate(shuffled)
    np.testing.assert_array_equal(first.posterior, second.posterior)
    named = {**log, "task": [f"t{task:03}" for task in log["task"]]}
    np.testing.assert_array_equal(first.posterior, pmf.crowd.aggregate(named).posterior)


def test_aggregate__sure_workers_outvote_the_many_without_hanging_on_votes():
    # nine who guess, three who know: votes are at a loss, the model is not
    rng = np.random.default_rng(11)
    truth = rng.integers(2, size=400)
    guesses, known = rng.integers(2, size=(400, 9)), np.tile(truth[:, None], (1, 3))
    label = np.concatenate([guesses, known], axis=1)
    task, worker = np.divmod(np.arange(label.size), 12)
    log = {"task": task, "worker": worker, "label": label.ravel()}
    assert count_wrong(pmf.crowd.aggregate(log, "majority"), truth) > 40
    assert count_wrong(pmf.crowd.aggregate(log), truth) == 0


@pytest.mark.parametrize("n_subclasses", [1, 2])
def test_fit_crowd_model__posteriors_go_by_the_labels_alone(n_subclasses):
    rng = np.random.default_rng(12)
    table, _ = draw_log(rng, n_tasks=40, n_workers=6, n_classes=3, n_labels=4)
    log = pmf.crowd.read_labels(table)
    fit, posterior = fit_crowd_model(
        log, AnnotatorModel(n_subclasses=n_subclasses), max_passes=5, tol=0
    )
    assert fit.parameters.vote_weight > 0.75
    log_prior, weights = fit.parameters.take_logs()
    indices = np.split(log.block.indices, log.block.indptr[1:-1])
    logs = np.array([log_prior + weights[mine].sum(axis=0) for mine in indices])
    expected = np.exp(logs).reshape(40, n_subclasses, 3).sum(axis=1)
    np.testing.assert_allclose(posterior, expected / expected.sum(axis=1, keepdims=True))


def test_aggregate__passes_that_do_not_settle_are_reported():
    rng = np.random.default_rng(3)
    log, _ = draw_log(rng, n_tasks=60, n_workers=6, n_classes=3, n_labels=4)
    with pytest.warns(pmf.errors.ConvergenceWarning, match="max_passes = 1"):
        found = pmf.crowd.aggregate(log, max_passes=1)
    assert (found.n_passes, found.converged) == (1, False)


@SINGLE
def test_aggregate__task_without_a_label_has_the_prior():
    log = {"task": ["a", "b", "c"], "worker": [1, 1, 2], "label": ["x", "x", None]}
    found = pmf.crowd.aggregate(log, classes=["x", "y"])
    np.testing.assert_allclose(found.posterior[2], found.prior)
    assert found.labels["n_labels"].to_pylist() == [1, 1, 0]


@pytest.mark.parametrize("method", ["auto", "majority", "dawid_skene"])
def test_aggregate__odd_logs(method):
    one = pmf.crowd.aggregate({"task": [1], "worker": [1], "label": ["x"]}, method)
    assert one.labels["label"].to_pylist() == ["x"]
    assert one.confidence.tolist() == [1.0]
    nothing = pmf.crowd.aggregate(
        {"task": [], "worker": [], "label": []}, method, classes=["x", "y"]
    )
    assert nothing.labels.num_rows == 0
    assert nothing.prior.tolist() == [0.5, 0.5]


def test_aggregate__result_is_a_table_by_task_and_by_worker():
    log = {"task": [7, 7, 8], "worker": ["u", "v", "u"], "label": ["x", "x", "y"]}
    found = pmf.crowd.aggregate(log, "majority")
    assert found.labels.drop("confidence").to_pylist() == [
        {"task": 7, "label": "x", "n_labels": 2, "known": False},
        {"task": 8, "label": "y", "n_labels": 1, "known": False},
    ]
    first, second = found.labels["confidence"].to_pylist()
    assert 1 > first > second > 0.5
    assert found.workers["worker"].to_pylist() == ["u", "v"]
    assert found.workers["n_labels"].to_pylist() == [2, 1]


def test_ask_again__where_a_label_is_worth_most_by_who_gave_none():
    log = {"task": [1, 1, 1, 2, 2, 3], "worker": [1, 2, 3, 1, 2, 1], "label": list("xxyxyx")}
    found = pmf.crowd.aggregate(log, "majority")
    asked = found.ask_again(3)
    who = dict(zip(asked["task"].to_pylist(), asked["worker"].to_pylist(), strict=True))
    # of task 1 everybody has given a label
    assert (who[1], who[2]) == (None, 3)
    assert asked["task"][2].as_py() == 1
    first, second, third = asked["gain"].to_pylist()
    assert first >= second > third == 0
    with pytest.raises(pmf.PmfError, match="n_tasks is -1"):
        found.ask_again(-1)


def test_aggregate__refuses_unknown_methods_and_limits():
    log = {"task": [1], "worker": [1], "label": ["x"]}
    with pytest.raises(pmf.PmfError, match="method is 'best'; did you mean"):
        pmf.crowd.aggregate(log, "best")
    with pytest.raises(pmf.PmfError, match="max_passes is 0"):
        pmf.crowd.aggregate(log, max_passes=0)


def test_fit_crowd_model__goes_on_from_a_start():
    rng = np.random.default_rng(2)
    table, _ = draw_log(rng, n_tasks=300, n_workers=15, n_classes=3, n_labels=5)
    log = pmf.crowd.read_labels(table)
    whole, expected = fit_crowd_model(log, AnnotatorModel(pseudo_count=4.0), max_passes=10, tol=0)
    earlier, _ = fit_crowd_model(log, AnnotatorModel(pseudo_count=4.0), max_passes=6, tol=0)
    _, posterior = fit_crowd_model(log, earlier.parameters, max_passes=4, tol=0)
    assert whole.n_passes == 10
    np.testing.assert_array_equal(posterior, expected)


def plan_toy(max_passes, tol):
    """Passes as a user would add them: a module with one function, and one entry of the table."""
    return CrowdPassPlan(AnnotatorModel(pseudo_count=50.0, one_coin=True), min(max_passes, 3), 0.0)


def fit_toy(data):
    """Everybody is right nine times of ten."""
    n_classes = data.pairs.n_classes
    one = 0.9 * np.eye(n_classes) + 0.1 / n_classes
    confusion = np.tile(one, (data.pairs.n_workers, 1, 1))
    return CrowdModel.from_probabilities(np.ones(n_classes), confusion)


def test_aggregate__a_new_method_is_one_entry_and_one_function(monkeypatch):
    for family, function in (("passes", plan_toy), ("pairs", fit_toy)):
        entry = CrowdMethod(f"toy {family}", family, f"{__name__}:{function.__name__}", "a toy")
        monkeypatch.setitem(CROWD_METHODS, entry.name, entry)
    name = "tests.apps.crowd.weighted_votes:weigh_votes"
    monkeypatch.setitem(
        CROWD_METHODS, "weighted votes", CrowdMethod("weighted votes", "votes", name, "a toy")
    )
    log, truth = draw_log(
        np.random.default_rng(0), n_tasks=100, n_workers=9, n_classes=3, n_labels=5
    )
    assert pmf.crowd.aggregate(log, "toy passes").n_passes == 3
    alike = pmf.crowd.aggregate(log, "toy pairs", em=False)
    np.testing.assert_allclose(alike.accuracy, 0.9 + 0.1 / 3)
    votes = pmf.crowd.aggregate(log, "majority")
    by_weight = pmf.crowd.aggregate(log, "weighted votes")
    assert by_weight.converged
    assert count_wrong(by_weight, truth) <= count_wrong(votes, truth)
    assert count_wrong_by_posterior(alike, truth) <= count_wrong_by_posterior(votes, truth)


def test_crowd_options__are_the_keywords_of_aggregate():
    keywords = [*inspect.signature(aggregate).parameters][1:]
    assert sorted(each.name for each in fields(CrowdOptions)) == sorted(keywords)
    rows = {"task": [1, 1, 2, 2], "worker": list("abab"), "label": list("xyxx")}
    options = CrowdOptions(method="one_coin", classes=("y", "x"), max_passes=3, tol=0.0)
    found = aggregate(rows, **options.list_given())
    assert (found.method, found.n_passes) == ("one_coin", 3)
    assert found.log.classes.to_pylist() == ["y", "x"]


def test_aggregate__labels_outside_the_classes_are_named_and_leave_tasks_blank():
    log = {
        "task": [n // 3 for n in range(30)],
        "worker": ["u", "v", "w"] * 10,
        "label": ["b"] * 3 + ["a", "a", "b"] * 8 + ["b"] * 3,
    }
    with pytest.warns(pmf.errors.SchemaWarning, match=r"14 of 30 labels, as 'b' of row 0"):
        found = pmf.crowd.aggregate(log, classes=["a"])
    assert found.labels["label"].to_pylist() == [None] + ["a"] * 8 + [None]
    assert found.labels["confidence"].to_pylist() == [None] + [1.0] * 8 + [None]
    assert found.summary().tables[0].rows[0][1] == "8"


def test_summary__says_how_sure_one_may_be_and_known_labels_narrow_it():
    table, truth = draw_log(
        np.random.default_rng(2), n_tasks=150, n_workers=12, n_classes=3, n_labels=5
    )
    known = dict(enumerate(truth[:50].tolist()))
    gaps = []
    for found in (pmf.crowd.aggregate(table), pmf.crowd.aggregate(table, known=known)):
        words = dict(found.summary().facts)["confidence"]
        assert words.startswith(f"{100 * found.confidence.mean():.0f} %")
        gaps.append(float(re.findall(r"take (\d+) points", words)[0]))
    # worth 25 known tasks: 50 more divide it by the root of three
    assert gaps == [9, 5]
    empty = pmf.crowd.aggregate({"task": [], "worker": [], "label": []}, classes=["a", "b"])
    assert "confidence" not in dict(empty.summary().facts)
    assert empty.suspicious_workers == []
