"""Confidence against the truth, of drawn logs with and without dependence, and of real ones."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd.confidence import CALIBRATION_PRIOR, choose_power
from pmflib.apps.crowd.left_out_labels import POWERS, LeftOutSums, add_block_sums, start_sums
from tests.apps.crowd.label_logs import draw_log, read_real_log


def measure_gap(confidence, right, n_bins=15):
    """Expected calibration error: bins of equal width."""
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, confidence - right, minlength=n_bins)
    return float(np.abs(gaps).sum() / right.size)


def draw_dependent(rng, kind, *, n_tasks=600, n_workers=30, n_labels=9):
    """Two classes, labels of every task by as many workers: independent, copied, or of tasks more and less hard."""
    truth = rng.integers(2, size=n_tasks)
    task = np.repeat(np.arange(n_tasks), n_labels)
    worker = rng.random((n_tasks, n_workers)).argsort(axis=1)[:, :n_labels].ravel()
    right = rng.uniform(0.6, 0.8, n_workers)[worker]
    if kind == "hard":
        right = np.where(rng.random(n_tasks) < 0.5, rng.uniform(0.35, 0.65, n_tasks), 0.85)[task]
    said = rng.random(task.size) < right
    if kind == "copies":
        # in cliques of ten workers each repeats what one of them has said
        shared = rng.random((n_tasks, 3)) < 0.7
        said = np.where(rng.random(task.size) < 0.7, shared[task, worker % 3], said)
    return {
        "task": task,
        "worker": worker,
        "label": np.where(said, truth[task], 1 - truth[task]),
    }, truth


def test_calibrate__power_is_about_one_where_labels_are_independent():
    powers = [
        pmf.crowd.aggregate(
            draw_dependent(np.random.default_rng(seed), "independent")[0]
        ).calibration
        for seed in range(4)
    ]
    found = np.array([each.left_out_power for each in powers])
    assert (np.abs(np.log(found)) < 0.3).all()
    assert powers[0].power == pytest.approx(CALIBRATION_PRIOR.evidence * powers[0].left_out_power)


@pytest.mark.parametrize("kind", ["hard", "copies"])
def test_calibrate__dependent_labels_count_for_less_and_confidence_is_believable(kind):
    log, truth = draw_dependent(np.random.default_rng(7), kind)
    by_default, plain = (pmf.crowd.aggregate(log, method) for method in ("auto", "dawid_skene"))
    # beside Dawid and Skene's posterior for either method: the default's own is less sure to begin with
    before = measure_gap(plain.posterior.max(axis=1), plain.codes == truth)
    for found in (by_default, plain):
        assert found.calibration.left_out_power < 0.7
        assert measure_gap(found.confidence, found.codes == truth) < 0.6 * before


def test_calibrate__ten_known_classes_of_independent_labels_make_confidence_more_believable():
    # other logs say that labels of one task err together; here they do not, and known classes say so
    table, truth = draw_dependent(np.random.default_rng(2), "independent", n_tasks=1500)
    found = pmf.crowd.aggregate(table)
    rows, gains = np.arange(truth.size), []
    before = -np.log(found.probabilities[rows, truth])
    for seed in range(5):
        some = np.random.default_rng(seed).choice(rows, 10, replace=False)
        known = np.where(np.isin(rows, some), truth, -1)
        calibration = pmf.crowd.calibrate(found.log.block, found.posterior, 30, known)
        after = -np.log(calibration.apply(found.log.block, found.posterior)[rows, truth])
        gains.append((before - after)[known < 0].mean())
    assert np.mean(gains) > 0


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_calibrate__real_logs_are_overconfident_by_half_as_much():
    before, after = [], []
    for name in ("bluebird", "dog", "labelme", "jn-product"):
        table, truth = read_real_log(name)
        by_default, plain = (
            pmf.crowd.aggregate(table, method) for method in ("auto", "dawid_skene")
        )
        # beside Dawid and Skene's posterior for either method: the default's own is less sure to begin with
        own = np.array(plain.log.classes.to_pylist())[plain.posterior.argmax(axis=1)] == truth
        before.append(measure_gap(plain.posterior.max(axis=1), own))
        after.append(
            [
                measure_gap(found.confidence, np.array(found.labels["label"].to_pylist()) == truth)
                for found in (by_default, plain)
            ]
        )
    assert (np.mean(after, axis=0) < np.mean(before) / 2).all()


def test_calibrate__the_label_is_the_most_probable_class_and_every_method_is_less_sure():
    log, _ = draw_dependent(np.random.default_rng(3), "hard", n_tasks=200)
    for method in ("auto", "dawid_skene", "balanced", "one_coin", "majority"):
        found = pmf.crowd.aggregate(log, method)
        np.testing.assert_array_equal(found.codes, found.probabilities.argmax(axis=1))
        assert (found.confidence >= 0.5).all()
        listed = pmf.crowd.CrowdAggregator().fit(log) if method == "auto" else None
        if listed is not None:
            assert (listed.probas_.idxmax(axis=1) == listed.labels_).all()
        np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
        assert found.confidence.mean() < max(found.posterior.max(axis=1).mean(), 0.9)


def test_calibrate__known_classes_choose_power_and_shared_error():
    # every tenth task looks to all like the other class: no left-out label says so
    rng = np.random.default_rng(5)
    table, truth = draw_dependent(rng, "independent", n_tasks=2000)
    truth = np.where(np.arange(truth.size) % 10 == 0, 1 - truth, truth)
    found = pmf.crowd.aggregate(table)
    known = np.where(rng.random(truth.size) < 0.2, truth, -1)
    calibration = pmf.crowd.calibrate(found.log.block, found.posterior, found.log.n_workers, known)
    assert calibration.shared_error >= 0.1 > found.calibration.shared_error
    rest = known < 0
    right = found.codes == truth
    after = calibration.apply(found.log.block, found.posterior)
    confidence = after[np.arange(truth.size), found.codes]
    plain = pmf.crowd.aggregate(table, "dawid_skene")
    before = measure_gap(plain.posterior.max(axis=1)[rest], (plain.codes == truth)[rest])
    assert measure_gap(confidence[rest], right[rest]) < 0.5 * before
    certain = calibration.apply(found.log.block, found.posterior, known)
    np.testing.assert_array_equal(certain[~rest].argmax(axis=1), truth[~rest])
    assert (certain[~rest].max(axis=1) == 1).all()


def test_calibrate__refuses_known_classes_that_do_not_fit():
    found = pmf.crowd.aggregate({"task": [1, 1, 2], "worker": list("aba"), "label": list("xyx")})
    with pytest.raises(pmf.PmfError, match=r"known has shape \(3,\), not \(2,\); pass a class"):
        pmf.crowd.calibrate(found.log.block, found.posterior, 2, np.zeros(3, np.int64))
    with pytest.raises(
        pmf.PmfError, match=r"known\[1\] is 2; pass a number in \[-1, 1\], -1 for unknown"
    ):
        pmf.crowd.calibrate(found.log.block, found.posterior, 2, np.array([-1, 2]))


def test_calibrate__small_logs():
    # a task without a label, one class only, one task of one worker
    empty = {"task": [1, 1, 2, 3], "worker": list("abab"), "label": ["x", "x", "y", None]}
    found = pmf.crowd.aggregate(empty)
    last = found.calibration.rounds[-1].model
    np.testing.assert_allclose(found.probabilities[2], last.prior)
    one_class = pmf.crowd.aggregate({"task": [1, 2], "worker": [1, 1], "label": ["x", "x"]})
    assert one_class.confidence.tolist() == [1, 1]
    single = pmf.crowd.aggregate({"task": [1], "worker": [1], "label": ["x"]}, "majority")
    assert np.isfinite(single.probabilities).all()
    log = pmf.crowd.read_labels({"task": [1], "worker": ["a"], "label": [None]}, classes=["x", "y"])
    assert np.isfinite(pmf.crowd.aggregate(log).probabilities).all()


def test_add_block_sums__parts_add_up_whatever_is_worked_on_at_a_time(monkeypatch):
    table, _ = draw_log(np.random.default_rng(1), n_tasks=90, n_workers=8, n_classes=3, n_labels=4)
    found = pmf.crowd.aggregate(table, "dawid_skene")
    labels, posterior = found.log.block, found.posterior
    rounds = found.calibration.rounds
    for some in ((), rounds[:1], (rounds[0], type(rounds[0])(rounds[1].model))):
        whole = start_sums(some, 8, 3)
        add_block_sums(labels, posterior, some, whole)
        parts = [start_sums(some, 8, 3) for _ in range(2)]
        monkeypatch.setattr("pmflib.apps.crowd.left_out_labels.CHUNK_CELLS", 40)
        add_block_sums(labels.cut(0, 41), posterior[:41], some, parts[0])
        add_block_sums(labels.cut(41, 90), posterior[41:], some, parts[1])
        monkeypatch.undo()
        merged = LeftOutSums.merge(parts)
        np.testing.assert_allclose(merged.label_mass, whole.label_mass)
        np.testing.assert_allclose(merged.class_mass, whole.class_mass)
        np.testing.assert_allclose(merged.log_probs, whole.log_probs)


def test_choose_power__between_those_that_were_tried():
    logs = np.log(POWERS)
    sharp = -1e4 * (logs - np.log(0.33)) ** 2
    assert choose_power(sharp) == pytest.approx(0.33, rel=1e-3)
    # where left-out labels say nothing, what was known before
    nothing = choose_power(np.zeros(POWERS.size))
    assert nothing == pytest.approx(CALIBRATION_PRIOR.power, rel=1e-6)
    assert choose_power(1e4 * logs) == POWERS[-1]


def test_calibrate__majority_keeps_the_order_of_the_votes_and_its_ties():
    rng = np.random.default_rng(4)
    table, _ = draw_log(rng, n_tasks=150, n_workers=12, n_classes=3, n_labels=4)
    found = pmf.crowd.aggregate(table, "majority")
    votes = np.zeros(found.posterior.shape)
    rows = np.repeat(np.arange(len(votes)), np.diff(found.log.block.indptr))
    np.add.at(votes, (rows, found.log.block.indices % 3), 1)
    np.testing.assert_array_equal(found.codes, votes.argmax(axis=1))
    more = votes[:, :, None] > votes[:, None, :]
    gaps = found.probabilities[:, :, None] - found.probabilities[:, None, :]
    assert (gaps[more] > 0).all()
    np.testing.assert_array_equal(gaps[votes[:, :, None] == votes[:, None, :]], 0)


@pytest.mark.parametrize("workers", ["many", "one"])
def test_calibrate__one_label_a_task_is_no_certainty_and_a_warning(workers):
    rng = np.random.default_rng(8)
    truth = rng.integers(2, size=400)
    label = np.where(rng.random(400) < 0.25, 1 - truth, truth)
    who = np.arange(400) % 20 if workers == "many" else np.zeros(400, int)
    table = {"task": np.arange(400), "worker": who, "label": label}
    for method in ("auto", "dawid_skene", "majority"):
        with pytest.warns(pmf.errors.IdentificationWarning, match="no task has 2 labels"):
            found = pmf.crowd.aggregate(table, method)
        np.testing.assert_array_equal(found.codes, label)
        assert 0.6 < found.confidence.mean() < 0.9
    # what is known of a few tasks says how good workers are: nothing is left to warn of
    known = {int(task): int(truth[task]) for task in range(30)}
    assert pmf.crowd.aggregate(table, known=known).confidence.mean() < 0.95
