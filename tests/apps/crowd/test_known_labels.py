from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import pmflib as pmf
from benchmarks.crowd.scenarios import draw_crowd
from pmflib.apps.crowd import (
    AnnotatorModel,
    LabelsInMemory,
    aggregate,
    fit_crowd_model,
    read_labels,
)
from pmflib.apps.crowd.e_step import RULED_OUT, LogWeights
from pmflib.apps.crowd.known_labels import check_known_rows, find_known
from pmflib.base import SchemaError, SchemaWarning

TASKS, CLASSES = pa.array([3, 5, 7]), pa.array(["cat", "dog"])


def measure_error(found, truth, tasks):
    """Share of wrong labels among some tasks, per cent."""
    labels = np.array(found.log.classes.to_pylist())[found.codes]
    numbers = found.log.tasks.to_numpy()
    return 100 * (labels != truth[numbers])[np.isin(numbers, tasks)].mean()


def draw(seed, n_tasks=400, n_workers=60, n_classes=3, n_labels=3, scenario="plain"):
    rng = np.random.default_rng([seed, *scenario.encode()])
    crowd = draw_crowd(n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario)
    return crowd.log, crowd.truth, rng.permutation(n_tasks)[: n_tasks // 20]


@pytest.mark.parametrize(
    "known",
    [
        {3: "dog", 7: "cat"},
        {"task": [3, 7], "label": ["dog", "cat"]},
        {"task": ["3", "7"], "label": ["dog", "cat"], "by": ["me", "you"]},
        {"task": [3.0, 7.0], "label": ["dog", "cat"]},
    ],
)
def test_find_known__takes_mappings_and_tables(known):
    found = find_known(known, TASKS, CLASSES)
    assert found.codes.tolist() == [1, -1, 0]
    assert found.is_known.tolist() == [True, False, True]
    assert found.quarantine.num_rows == 0


def test_check_rows__every_row_is_used_or_set_aside():
    rows = [
        (0, "3", "dog"),
        (1, None, "dog"),
        (2, "5", None),
        (3, "5", "zebra"),
        (4, "7", "cat"),
        (5, "7", "dog"),
        (6, "3", "dog"),
        (7, "8", "cat"),
    ]
    found = check_known_rows(rows, ["cat", "dog"])
    assert found.classes == {"3": 1, "8": 0}
    table = found.set_aside(["3", "5", "7"], ["cat", "dog"]).to_pydict()
    assert dict(zip(table["row"], table["reason"], strict=True)) == {
        1: "no_task",
        2: "no_label",
        3: "unknown_label",
        4: "contradictory",
        5: "contradictory",
        6: "repeated",
        7: "unknown_task",
    }
    assert table["row"] == sorted(table["row"])


def test_find_known__nothing_is_known_of_no_rows():
    found = find_known({}, TASKS, CLASSES)
    assert found.codes.tolist() == [-1, -1, -1]


def test_find_known__refuses_what_belongs_to_something_else():
    with pytest.raises(
        SchemaError, match="none of its 2 rows gives the label of a task of the log"
    ):
        find_known({3: "zebra", 9: "cat"}, TASKS, CLASSES)
    with pytest.raises(SchemaError, match=r"known.*\['task'\]"):
        find_known(pa.table({"item": [3], "label": ["cat"]}), TASKS, CLASSES)
    with pytest.raises(SchemaError, match=r"known.*'item'"):
        find_known({"item": [3], "label": ["cat"]}, TASKS, CLASSES)


@pytest.mark.filterwarnings("ignore:workers gave too few labels")
@pytest.mark.parametrize("method", ["auto", "dawid_skene", "one_coin", "majority", "robust"])
def test_aggregate__known_labels_are_certain_and_named(method):
    log, truth, tasks = draw(1)
    # what all workers have said otherwise
    wrong = {int(task): int((truth[task] + 1) % 3) for task in tasks}
    found = aggregate(log, method, known=wrong)
    rows = {row["task"]: row for row in found.labels.to_pylist()}
    for task, label in wrong.items():
        assert (rows[task]["label"], rows[task]["known"]) == (label, True)
        assert rows[task]["confidence"] == pytest.approx(1, abs=1e-12)
    assert sum(row["known"] for row in rows.values()) == len(wrong)
    assert not set(found.ask_again(400)["task"].to_pylist()) & {*wrong}
    assert found.ask_again(400).num_rows == 400 - len(wrong)
    assert found.tally.n_labelled == 400 - len(wrong)


def test_aggregate__without_known_labels_nothing_is_known():
    log, *_ = draw(1)
    plain, empty = aggregate(log), aggregate(log, known={})
    np.testing.assert_array_equal(plain.posterior, empty.posterior)
    assert not any(plain.labels["known"].to_pylist())
    assert plain.known_quarantine.num_rows == 0


def test_aggregate__rows_that_do_not_fit_are_set_aside():
    log, truth, _ = draw(1)
    with pytest.warns(SchemaWarning, match="known .* '9'"):
        found = aggregate(log, known={5: int(truth[5]), 4000: 1, 6: 9})
    assert found.log.is_known.nonzero()[0].tolist() == [5]
    assert found.known_quarantine.to_pylist() == [
        {"row": 1, "task": "4000", "label": "1", "reason": "unknown_task"},
        {"row": 2, "task": "6", "label": "9", "reason": "unknown_label"},
    ]


def test_aggregate__a_task_that_all_workers_mistake_is_known_and_says_little_of_them():
    # ten tasks, of which all workers call the last what it is not known to be
    tasks, workers = np.repeat(np.arange(10), 4), np.tile(np.arange(4), 10)
    log = {"task": tasks, "worker": workers, "label": tasks % 2}
    found = aggregate(log, "dawid_skene", known={**{task: task % 2 for task in range(9)}, 9: 0})
    assert found.codes.tolist() == [*[task % 2 for task in range(9)], 0]
    np.testing.assert_array_equal(found.probabilities[9], [1.0, 0.0])
    # were it certain, four of five labels "1" would be right
    assert found.confusion[:, 1, 0].max() < 0.02


def test_fit_crowd_model__all_known_is_what_is_counted():
    # all workers call the classes by each other's names
    log, truth, _ = draw(2, n_workers=12, n_classes=2)
    swapped = dict(enumerate((1 - truth).tolist()))
    read = read_labels(log)
    found = aggregate(read, "dawid_skene", known=swapped)
    counts = np.zeros((read.n_workers, 2, 2))
    np.add.at(counts, (log["worker"], log["label"], 1 - truth[log["task"]]), 1)
    given = counts.sum(axis=1) > 0
    expected = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for worker, label in zip(*np.nonzero(given), strict=True):
        np.testing.assert_allclose(
            # the passes all but rule out what is known to be wrong
            found.confusion[worker, :, label],
            expected[worker, :, label],
            atol=np.exp(RULED_OUT),
        )
    assert found.accuracy.mean() < 0.5


def test_fit_crowd_model__of_a_known_task_the_subclass_is_free():
    log, truth, tasks = draw(3)
    known = find_known(
        {int(t): int(truth[t]) for t in tasks}, pa.array(range(400)), pa.array(range(3))
    )
    read = read_labels(log)
    object.__setattr__(read, "known", known)
    fit, posterior = fit_crowd_model(read, AnnotatorModel(n_subclasses=2), max_passes=30, tol=0)
    np.testing.assert_allclose(posterior[tasks, truth[tasks]], 1)
    assert fit.parameters.states.size == 6


def test_evaluate__ignored_known_tasks_are_scored_as_others():
    log, truth, tasks = draw(3)
    read = read_labels(log)
    known = find_known({int(t): int(truth[t]) for t in tasks}, read.tasks, read.classes)
    model = fit_crowd_model(read, AnnotatorModel(n_subclasses=2), max_passes=3)[0].parameters
    weights = LogWeights.from_model(model, with_votes=True)
    plain = LabelsInMemory.from_log(read).evaluate(weights)
    source = LabelsInMemory.from_log(replace(read, known=known))
    certain = source.evaluate(weights)
    ignored = source.evaluate(replace(weights, with_known=False))
    np.testing.assert_allclose(ignored.level_mass, plain.level_mass, atol=1e-9)
    assert ignored.log_likelihood == pytest.approx(plain.log_likelihood)
    assert np.abs(certain.level_mass - plain.level_mass).max() > 0.1


def test_aggregate__passes_before_labels_are_known_are_counted():
    log, truth, tasks = draw(3)
    known = {int(task): int(truth[task]) for task in tasks}
    with pytest.warns(pmf.errors.ConvergenceWarning):
        found = aggregate(log, "balanced", known=known, max_passes=2)
    assert found.n_passes == 4
    assert aggregate(log, "mv_em", known=known).n_passes == 10


# without known labels, a class that spammers choose has far more labels than tasks
@pytest.mark.filterwarnings("ignore::pmflib.base.errors.IdentificationWarning")
@pytest.mark.parametrize("method", [pytest.param("auto", marks=pytest.mark.slow), "dawid_skene"])
def test_aggregate__one_in_twenty_known_labels_help_with_the_others(method):
    gains = []
    for scenario in ("plain", "bias", "adversary", "types", "spam"):
        for seed in range(5):
            log, truth, tasks = draw(seed, 1000, 20, 4, scenario=scenario)
            rest = np.setdiff1d(np.arange(1000), tasks)
            known = {int(task): int(truth[task]) for task in tasks}
            without, found = (
                aggregate(log, method, max_passes=1000, known=each) for each in (None, known)
            )
            gains.append(measure_error(without, truth, rest) - measure_error(found, truth, rest))
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / len(gains) ** 0.5


def test_aggregate__without_passes_known_labels_leave_the_others_as_they_are():
    log, truth, tasks = draw(2)
    known = dict(zip(tasks.tolist(), truth[tasks].tolist(), strict=True))
    assert len({*known.values()}) > 1
    free, led = (aggregate(log, "robust", em=False, known=each) for each in (None, known))
    others = np.setdiff1d(np.arange(len(truth)), tasks)
    np.testing.assert_array_equal(led.posterior[others], free.posterior[others])
    np.testing.assert_array_equal(led.codes[tasks], truth[tasks])
