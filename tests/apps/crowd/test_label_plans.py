import numpy as np
import pytest

import pmflib as pmf
from benchmarks.crowd.planted_crowds import draw_labels
from pmflib.base import MemoryPlanError, PmfError

PRIOR = np.array([0.5, 0.3, 0.2])
SKILLS = np.linspace(0.45, 0.85, 12)
CONFUSION = SKILLS[:, None, None] * np.eye(3) + (1 - SKILLS[:, None, None]) / 3


def draw_log(n_tasks, per_task, seed):
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, n_tasks, p=PRIOR)
    task, worker = np.nonzero(rng.random((n_tasks, 12)) < per_task / 12)
    return {
        "task": task,
        "worker": worker,
        "label": draw_labels(CONFUSION[worker, :, truth[task]], rng),
    }


def test_plan__fits_have_the_error_that_is_foretold():
    plan = pmf.crowd.aggregate(draw_log(800, 5, 0), method="dawid_skene").plan(0.06)
    rows = plan.table.to_pylist()
    assert [row["labels_per_task"] for row in rows] == [2, 3, 4, 5, 7, 10]
    assert all(row["labels"] == row["labels_per_task"] * row["tasks"] for row in rows)
    # more labels of a task tell more of its class, so that fewer are needed in all
    assert rows[0]["labels"] > 1.3 * rows[-1]["labels"]
    (row,) = [row for row in rows if row["labels_per_task"] == 5]
    squares = []
    for seed in range(1, 7):
        found = pmf.crowd.aggregate(draw_log(row["tasks"], 5, seed), method="dawid_skene")
        order = np.argsort(found.log.workers.to_pylist())
        squares.append(np.mean((found.confusion[order] - CONFUSION) ** 2))
    assert 1 / 1.5 < np.mean(squares) / 0.06**2 < 1.5


def test_plan__pairs_that_share_too_few_tasks():
    log = draw_log(1000, 6, 0)
    # worker 3 has tasks of his own alone
    mine = log["worker"] == 3
    log["task"] = np.where(mine, log["task"] + 10_000, log["task"])
    plan = pmf.crowd.aggregate(log, method="dawid_skene").plan(0.05)
    assert {row["worker"] for row in plan.pairs.to_pylist()} == {3}
    assert [row["other"] for row in plan.pairs.to_pylist()] == list(plan.anchors)
    assert [row["shared"] for row in plan.pairs.to_pylist()] == [0, 0]
    # shares of nine pairs of labels, each of about 1/9
    assert 20 < min(row["missing"] for row in plan.pairs.to_pylist()) < 45


def test_plan__too_many_classes_are_no_lack_of_labels():
    rng = np.random.default_rng(0)
    log = {
        "task": np.repeat(np.arange(200), 4),
        "worker": np.tile(np.arange(4), 200),
        "label": rng.integers(0, 30, 800),
    }
    with pytest.raises(MemoryPlanError, match="entries"):
        pmf.crowd.aggregate(log, method="majority").plan(0.05)


def test_plan__refusals():
    two = pmf.crowd.aggregate({"task": [0, 0, 1], "worker": [0, 1, 0], "label": ["a", "b", "b"]})
    with pytest.raises(PmfError, match="workers"):
        two.plan(0.05)
    with pytest.raises(PmfError, match="accuracy"):
        pmf.crowd.aggregate(draw_log(50, 5, 0)).plan(0)
