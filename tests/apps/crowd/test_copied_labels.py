"""Workers who repeat each other's labels: found where they are, not where they are not, and counted once."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd.copied_labels import drop_repeated, find_copied_groups, weigh_group
from tests.apps.crowd.label_logs import draw_log, read_real_log


def plant_group(rng, n_copiers, *, n_tasks=600, share=1.0, n_classes=2, accuracy=(0.6, 0.9)):
    """Labels of all tasks by twenty workers, of whom the first few repeat the first one, and the truth."""
    truth = rng.integers(n_classes, size=n_tasks)
    wrong = (truth[:, None] + rng.integers(1, n_classes, (n_tasks, 20))) % n_classes
    right = rng.random((n_tasks, 20)) < rng.uniform(*accuracy, 20)
    said = np.where(right, truth[:, None], wrong)
    for each in range(1, n_copiers):
        said[:, each] = np.where(rng.random(n_tasks) < share, said[:, 0], said[:, each])
    task, worker = np.divmod(np.arange(said.size), 20)
    return {"task": task, "worker": worker, "label": said.ravel()}, truth


def find(table):
    log = pmf.crowd.read_labels(table)
    return [each.workers for each in find_copied_groups(log.block, log.n_workers, log.n_classes)]


@pytest.mark.parametrize("share", [0.9, 1.0])
@pytest.mark.parametrize("n_copiers", [2, 4, 9])
def test_find_copied_groups__two_four_and_nine_of_twenty(n_copiers, share):
    rng = np.random.default_rng([n_copiers, 1])
    table, _ = plant_group(rng, n_copiers, share=share)
    assert find(table) == [tuple(range(n_copiers))]


@pytest.mark.parametrize("seed", range(3))
def test_find_copied_groups__none_of_independent_workers_however_good_some_are(seed):
    rng = np.random.default_rng(seed)
    table, truth = plant_group(rng, 1, accuracy=(0.55, 0.7))
    # nine experts agree with each other nearly always
    expert = (table["worker"] < 9) & (rng.random(truth.size * 20) < 0.97)
    assert find({**table, "label": np.where(expert, truth[table["task"]], table["label"])}) == []


@pytest.mark.parametrize("name", ["bluebird", "dog", "labelme", "jn-product"])
def test_find_copied_groups__none_in_real_logs(name):
    assert find(read_real_log(name)[0]) == []


def test_find_copied_groups__nothing_to_compare():
    assert find({"task": [0, 1], "worker": [0, 0], "label": ["a", "b"]}) == []
    assert find({"task": [0, 0, 1, 1], "worker": [0, 1] * 2, "label": ["a"] * 4}) == []


def test_drop_repeated__keeps_the_first_label_of_a_group_for_a_task():
    log = pmf.crowd.read_labels(
        {"task": [0, 0, 0, 1, 1, 2], "worker": [0, 1, 2, 1, 2, 2], "label": list("aabbba")}
    )
    kept = drop_repeated(log.block, [(1, 2)], log.n_classes)
    assert kept.indptr.tolist() == [0, 2, 3, 4]
    assert (kept.indices // 2).tolist() == [0, 1, 1, 2]
    # worker 1 is one of two on both of its tasks, worker 2 alone on one of three
    assert dict(weigh_group(log.block, (1, 2), 2)) == pytest.approx({1: 0.5, 2: 2 / 3})


@pytest.mark.parametrize("n_copiers", [4, 9])
def test_aggregate__counts_copies_once(n_copiers):
    table, truth = plant_group(np.random.default_rng([n_copiers, 2]), n_copiers)
    found = pmf.crowd.aggregate(table)
    alone = pmf.crowd.aggregate(
        {name: column[table["worker"] >= n_copiers - 1] for name, column in table.items()}
    )
    wrong, without = ((each.codes != truth).mean() for each in (found, alone))
    assert wrong < without + 0.01
    assert wrong < 0.5 * (pmf.crowd.aggregate(table, "dawid_skene").codes != truth).mean()
    assert found.copied_groups == (tuple(range(n_copiers)),)
    assert f"groups of {n_copiers} workers repeat each other" in found.reason
    named = {each["worker"] for each in found.suspicious_workers}
    assert named == set(range(n_copiers))
    assert all(f"one of {n_copiers}" in each["reason"] for each in found.suspicious_workers)


def test_aggregate__copies_do_not_make_probabilities_sure():
    table, truth = plant_group(np.random.default_rng(5), 9)
    found = pmf.crowd.aggregate(table)
    right = found.codes == truth
    assert abs(found.confidence.mean() - right.mean()) < 0.06


def test_aggregate__without_copies_has_no_groups():
    log, _ = draw_log(np.random.default_rng(0), n_tasks=400, n_workers=20, n_classes=3, n_labels=6)
    found = pmf.crowd.aggregate(log)
    assert found.copied_groups == ()
    assert "repeat" not in found.reason


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_copiers", [0, 12, 20])
def test_find_copied_groups__pairs_with_few_common_tasks_are_pooled(n_copiers, n_classes):
    # five labels a task by 40 workers: two workers have eight tasks in common
    for seed in range(5):
        rng = np.random.default_rng([seed, 77])
        truth, right = rng.integers(n_classes, size=600), rng.uniform(0.55, 0.9, 40)
        right[0] = 0.65
        worker = np.argsort(rng.random((600, 40)), axis=1)[:, :5].ravel()
        task = np.repeat(np.arange(600), 5)

        def say(chance, size, actual, rng=rng):
            wrong = (actual + rng.integers(1, n_classes, size)) % n_classes
            return np.where(rng.random(size) < chance, actual, wrong)

        copied = say(right[0], 600, truth)[task]
        label = np.where(worker < n_copiers, copied, say(right[worker], task.size, truth[task]))
        log = pmf.crowd.read_labels({"task": task, "worker": worker, "label": label})
        found = find_copied_groups(log.block, 40, n_classes)
        expected = [tuple(range(n_copiers))] if n_copiers else []
        assert [group.workers for group in found] == expected
