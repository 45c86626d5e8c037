"""Which task to have labelled again, and by whom."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd.questions import measure_label_gains, measure_uncertainty


def entropy(shares):
    return -sum(one * np.log(one) for one in shares if one > 0)


def test_measure_gains__is_the_expected_reduction_of_the_entropy():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 4)
    confusion = rng.dirichlet(np.ones(3), (2, 3)).transpose(0, 2, 1)
    found = measure_label_gains(probabilities, confusion)
    for task, worker in np.ndindex(4, 2):
        before = entropy(probabilities[task])
        after = 0.0
        for label in range(3):
            joint = probabilities[task] * confusion[worker, label]
            after += joint.sum() * entropy(joint / joint.sum())
        assert found[task, worker] == pytest.approx(before - after, abs=1e-12)
    np.testing.assert_allclose(
        measure_uncertainty(probabilities), [entropy(each) for each in probabilities]
    )


def test_measure_gains__nothing_from_who_guesses_or_of_what_is_known(monkeypatch):
    confusion = np.stack([np.full((2, 2), 0.5), np.eye(2), np.array([[1.0, 1.0], [0.0, 0.0]])])
    monkeypatch.setattr("pmflib.apps.crowd.questions.MOST_CELLS", 1)
    gains = measure_label_gains(np.array([[0.5, 0.5], [1.0, 0.0]]), confusion)
    np.testing.assert_allclose(gains, [[0, np.log(2), 0], [0, 0, 0]], atol=1e-12)


def spend(seed, how, *, n_tasks=200, n_workers=16, n_rounds=3, each=60):
    """Share of wrong labels after some rounds of more labels, asked for in one of two ways."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_tasks)
    wrong = (truth[:, None] + rng.integers(1, 3, (n_tasks, n_workers))) % 3
    is_right = rng.random((n_tasks, n_workers)) < rng.uniform(0.45, 0.95, n_workers)
    said = np.where(is_right, truth[:, None], wrong)
    given = rng.random((n_tasks, n_workers)).argsort(axis=1) < 2
    for left in range(n_rounds, -1, -1):
        task, worker = np.nonzero(given)
        found = pmf.crowd.aggregate(
            {"task": task, "worker": worker, "label": said[task, worker]}, tol=1e-3
        )
        if not left:
            return float((found.codes != truth).mean())
        if how == "random":
            rows = rng.choice(n_tasks, each, replace=False)
            who = [rng.choice(np.flatnonzero(~given[row])) for row in rows]
        else:
            asked = found.ask_again(each)
            rows, who = asked["task"].to_numpy(), asked["worker"].to_numpy()
        assert not given[rows, who].any()
        assert np.unique(rows).size == each
        given[rows, who] = True


def test_ask_again__beats_as_many_labels_at_random():
    errors = {how: np.mean([spend(seed, how) for seed in range(3)]) for how in ("random", "asked")}
    assert errors["asked"] < 0.7 * errors["random"]


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.IdentificationWarning")
def test_ask_again__nobody_is_left_and_nobody_there():
    everybody = {"task": [1, 1, 2, 2], "worker": [1, 2, 1, 2], "label": list("xyxx")}
    asked = pmf.crowd.aggregate(everybody).ask_again(5)
    assert sorted(asked["task"].to_pylist()) == [1, 2]
    assert asked["worker"].to_pylist() == [None, None]
    assert asked["gain"].to_pylist() == [0, 0]
    nothing = pmf.crowd.aggregate({"task": [], "worker": [], "label": []}, classes=["x", "y"])
    assert nothing.ask_again(3).num_rows == 0
    # a task without a label is worth asking
    empty = {"task": [1, 2, 3], "worker": [1, 2, 1], "label": ["x", "y", None]}
    assert 3 in pmf.crowd.aggregate(empty).ask_again(3)["task"].to_pylist()
