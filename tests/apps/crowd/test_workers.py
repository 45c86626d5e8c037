"""Skills of workers, and who gives cause for doubt."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd.copied_labels import find_copies
from pmflib.apps.crowd.label_counts import LabelCounts
from pmflib.apps.crowd.workers import find_guessers, find_suspicious
from pmflib.base import SparseBlock


def draw_workers(
    rng, *, n_tasks=1500, n_workers=24, n_labels=6, n_classes=3, accuracy=(0.55, 0.85)
):
    """Truth, what every worker says of every task, and who is asked."""
    truth = rng.integers(n_classes, size=n_tasks)
    skills = rng.uniform(*accuracy, n_workers)
    wrong = (truth[:, None] + rng.integers(1, n_classes, (n_tasks, n_workers))) % n_classes
    said = np.where(rng.random((n_tasks, n_workers)) < skills, truth[:, None], wrong)
    task = np.repeat(np.arange(n_tasks), n_labels)
    worker = rng.random((n_tasks, n_workers)).argsort(axis=1)[:, :n_labels].ravel()
    return said, task, worker, skills


def test_workers__skill_has_a_standard_error_that_covers_the_truth():
    scores = []
    for seed in range(3):
        said, task, worker, skills = draw_workers(np.random.default_rng(seed), n_tasks=600)
        table = pmf.crowd.aggregate(
            {"task": task, "worker": worker, "label": said[task, worker]}
        ).workers
        assert table.column_names == ["worker", "accuracy", "n_labels", "skill", "standard_error"]
        scores.append((table["skill"].to_numpy() - skills) / table["standard_error"].to_numpy())
    joined = np.concatenate(scores)
    assert np.mean(np.abs(joined) < 2) > 0.85
    assert 0.5 < joined.std() < 1.5


def test_workers__few_labels_are_less_certain():
    said, task, worker, _ = draw_workers(np.random.default_rng(4), n_tasks=400)
    kept = (worker > 0) | (np.cumsum(worker == 0) <= 5)
    table = pmf.crowd.aggregate(
        {"task": task[kept], "worker": worker[kept], "label": said[task, worker][kept]}
    ).workers
    error = table["standard_error"].to_numpy()
    assert table["n_labels"][0].as_py() == 5
    assert error[0] > 2 * error[1:].max()


def test_suspicious_workers__each_with_its_reason():
    rng = np.random.default_rng(2)
    said, task, worker, _ = draw_workers(rng)
    # worker 7 repeats what 3 says, 5 says the same of all, 9 what is wrong
    said[:, 7] = np.where(rng.random(len(said)) < 0.9, said[:, 3], said[:, 7])
    said[:, 5] = 1
    said[:, 9] = (said[:, 0] + 1) % 3
    found = pmf.crowd.aggregate({"task": task, "worker": worker, "label": said[task, worker]})
    reasons = {each["worker"]: each["reason"] for each in found.suspicious_workers}
    assert set(reasons) == {3, 5, 7, 9}
    assert reasons[3].startswith("has the mistakes of 7: ")
    assert reasons[7].startswith("has the mistakes of 3: ")
    assert reasons[5] == "always 1"
    assert reasons[9] == "worse than chance"
    assert [each for each in found.summary().notes if "of 4 workers are chance or worse" in each]


@pytest.mark.parametrize("n_guessers", [0, 16])
def test_find_guessers__are_told_from_weak_workers_and_adversaries(n_guessers):
    missed = named = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        accuracy = np.clip(rng.normal(0.7, 0.12, 40), 0.45, 0.95)
        accuracy[:n_guessers] = 1 / 3
        accuracy[-1] = 0.03
        n_labels = rng.integers(60, 100, 40)
        right = rng.binomial(n_labels, accuracy) / n_labels
        found = find_guessers(n_labels, right, np.full(40, 1 / 3))
        missed += n_guessers - found[:n_guessers].sum()
        named += found[n_guessers:].sum()
        assert not found[-1]
    assert missed <= 2 * 5
    assert named <= 5


def test_suspicious_workers__guessers_of_a_log_and_few_others():
    right, wrong = [], 0
    for seed in range(3):
        rng = np.random.default_rng([seed, 16])
        said, task, worker, _ = draw_workers(
            rng, n_tasks=600, n_workers=40, n_labels=6, accuracy=(0.6, 0.85)
        )
        said[:, :16] = rng.integers(3, size=(600, 16))
        found = pmf.crowd.aggregate({"task": task, "worker": worker, "label": said[task, worker]})
        reasons = {each["worker"]: each["reason"] for each in found.suspicious_workers}
        right.append(len(reasons.keys() & set(range(16))))
        wrong += len(reasons.keys() - set(range(16)))
    assert np.mean(right) >= 13
    assert wrong <= 3


@pytest.mark.parametrize("hard", [False, True])
def test_find_copies__none_where_none_copies(hard):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        said, task, worker, _ = draw_workers(rng, n_tasks=600)
        if hard:
            # a third of the tasks tempt everybody with the same wrong label
            tempted = (rng.random(said.shape) < 0.4) & (rng.random(len(said)) < 0.3)[:, None]
            said = np.where(tempted, rng.integers(3, size=(len(said), 1)), said)
        assert (
            pmf.crowd.aggregate(
                {"task": task, "worker": worker, "label": said[task, worker]}
            ).copies
            == []
        )


def test_find_copies__sums_do_not_depend_on_how_pairs_are_cut(monkeypatch):
    rng = np.random.default_rng(2)
    said, task, worker, _ = draw_workers(rng)
    said[:, 7] = said[:, 3]
    found = pmf.crowd.aggregate({"task": task, "worker": worker, "label": said[task, worker]})
    (pair,) = found.copies
    assert (pair.first, pair.second) == (3, 7)
    assert pair.shared > 3 * pair.expected
    confusion = found.calibration.rounds[-1].model.confusion
    monkeypatch.setattr("pmflib.apps.crowd.copied_labels.CHUNK_PAIRS", 50)
    (again,) = find_copies(found.log.block, found.posterior, confusion)
    assert again.expected == pytest.approx(pair.expected)
    # one task of three is looked at
    monkeypatch.setattr("pmflib.apps.crowd.copied_labels.MOST_LABEL_PAIRS", 1500 * 15 // 3)
    part = find_copies(found.log.block, found.posterior, confusion)
    assert all(each.shared < pair.shared for each in part)


def test_find_copies__nothing_to_compare():
    empty = SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32))
    confusion = np.full((3, 2, 2), 0.5)
    assert find_copies(empty, np.zeros((0, 2)), confusion) == []
    alone = SparseBlock(np.array([0, 1, 1]), np.array([2], np.int32))
    assert find_copies(alone, np.full((2, 2), 0.5), confusion) == []


def test_find_suspicious__worse_than_chance_by_more_than_its_error():
    given = np.array([[50, 50], [50, 50], [5, 5]])
    counts = LabelCounts(np.zeros((2, 2)), 0, 0, given, np.array([45.0, 30.0, 4.0]), 0.0)
    found = find_suspicious(counts, list("abc"), ["no", "yes"], np.array([0.5, 0.5]))
    assert [(each["worker"], each["reason"]) for each in found] == [("b", "worse than chance")]


def test_find_suspicious__contrary_and_constant_workers():
    truth = np.tile([0, 1], 20)
    given = np.stack([truth, 1 - truth, np.zeros(40, int), 1 - truth], axis=1)
    # the last one labels too few tasks
    tasks, workers = np.nonzero((np.arange(4) < 3) | (np.arange(40) < 5)[:, None])
    indptr = np.searchsorted(tasks, np.arange(41))
    labels = SparseBlock(indptr, (workers * 2 + given[tasks, workers]).astype(np.int32))
    posterior = np.where(truth[:, None] == [0, 1], 0.98, 0.02)
    counts = LabelCounts.from_labels(labels, posterior, posterior, 4)
    found = find_suspicious(counts, list("abcd"), ["no", "yes"], np.array([0.5, 0.5]))
    assert [(each["worker"], each["reason"], each["n_labels"]) for each in found] == [
        ("b", "worse than chance", 40),
        ("c", "always 'no'", 40),
    ]
    assert found[0]["right"] == pytest.approx(0.02)
    assert found[0]["by_chance"] == pytest.approx(0.5)
