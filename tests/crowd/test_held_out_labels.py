"""Whether a label log has a second subclass of tasks, and starts that bought votes do not lead."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.crowd.e_step import LabelsInMemory
from pmflib.crowd.fitting import N_FOLDS, _assign_folds, choose_model
from pmflib.solvers.crowd.annotator_model import MAXIMUM_LIKELIHOOD, AnnotatorModel
from pmflib.solvers.crowd.shrinkage import measure_agreement
from tests.crowd.label_logs import draw_log


def choose(table, *, ordinal=False):
    log = pmf.crowd.read_labels(table)
    largest = AnnotatorModel(n_subclasses=2, ordinal=ordinal)
    return choose_model(LabelsInMemory.from_log(log), largest)


def plant_hard_tasks(rng, n_tasks=1500):
    """Labels of two classes, of which two fifths of the tasks are guessed by all workers."""
    log, truth = draw_log(
        rng, n_tasks=n_tasks, n_workers=25, n_classes=2, n_labels=9, accuracy=(0.9, 0.98)
    )
    is_hard = rng.random(n_tasks) < 0.4
    guesses = rng.integers(0, 2, log["label"].size)
    return {**log, "label": np.where(is_hard[log["task"]], guesses, log["label"])}, truth


def test_choose_model__two_subclasses_where_tasks_are_easy_and_hard_and_less_where_they_are_alike():
    rng = np.random.default_rng(0)
    found = choose(plant_hard_tasks(rng)[0])
    assert found.annotator_model.n_subclasses == 2
    assert found.comparison.chosen is found.comparison.best
    assert found.reason.startswith("model two subclasses: best held-out log-likelihood per task")
    alike, _ = draw_log(rng, n_tasks=1500, n_workers=25, n_classes=2, n_labels=9)
    found = choose(alike)
    assert found.annotator_model.n_subclasses == 1
    assert found.comparison.chosen.is_within_error


def test_choose_model__maximum_likelihood_of_many_labels_and_shrunk_of_few():
    rng = np.random.default_rng(1)
    many, _ = draw_log(rng, n_tasks=1500, n_workers=15, n_classes=2, n_labels=9)
    assert choose(many).annotator_model == MAXIMUM_LIKELIHOOD
    few, _ = draw_log(rng, n_tasks=300, n_workers=100, n_classes=4, n_labels=4)
    assert choose(few).annotator_model.pseudo_count is None


def test_choose_model__of_ordered_classes_is_shrunk():
    many, _ = draw_log(np.random.default_rng(1), n_tasks=800, n_workers=15, n_classes=3, n_labels=9)
    found = choose(many, ordinal=True)
    assert found.annotator_model.ordinal
    assert [point.settings["model"] for point in found.comparison.points] == [
        "one subclass",
        "two subclasses",
    ]


def test_choose_model__without_tasks_of_several_labels_is_shrunk():
    found = choose({"task": [0, 1, 2], "worker": [0, 1, 0], "label": ["a", "b", "b"]})
    assert (found.annotator_model, found.comparison) == (AnnotatorModel(), None)
    assert found.reason == "few tasks have 3 labels"


def test_choose_model__does_not_depend_on_the_order_of_tasks():
    rng = np.random.default_rng(1)
    table, _ = plant_hard_tasks(rng, 300)
    order = rng.permutation(300)
    moved = {**table, "task": order[table["task"]]}
    one, other = choose(table).comparison, choose(moved).comparison
    for mine, theirs in zip(one.points, other.points, strict=True):
        assert theirs.score == pytest.approx(mine.score, rel=1e-6)


def test_assign_folds__equal_tasks_do_not_hold_out_the_same_label():
    log = pmf.crowd.read_labels(
        {"task": np.repeat(np.arange(500), 3), "worker": [0, 1, 2] * 500, "label": [0, 0, 1] * 500}
    )
    folds = _assign_folds(log.block)
    for worker in range(3):
        counts = np.bincount(folds[log.block.indices // 2 == worker], minlength=N_FOLDS)
        # a fifth of 500: four standard errors
        assert np.abs(counts - 100).max() < 36


def test_measure_agreement__of_one_constant_label_is_none():
    labels = np.zeros((2, 2, 3))
    # classes by labels: the last worker says the same of everything, though it is right of most
    labels[0, :, :2] = [[900, 850], [0, 50]]
    labels[1, :, :2] = [[0, 50], [100, 50]]
    labels[:, 0, 2] = labels[0, 0, 2] = [900, 100][0]
    labels[1, 0, 2] = 100
    found = measure_agreement(labels.transpose(1, 0, 2))
    assert found[0] > 0.95
    assert 0.3 < found[1] < 0.6
    assert found[2] < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_aggregate__workers_of_one_label_do_not_lead(seed):
    """Sixty of a hundred workers give the first label to everything: the others find the classes."""
    rng = np.random.default_rng(seed)
    table, truth = draw_log(
        rng, n_tasks=800, n_workers=40, n_classes=2, n_labels=10, accuracy=(0.7, 0.95)
    )
    label = np.where(table["worker"] < 24, 0, table["label"])
    found = pmf.crowd.aggregate({**table, "label": label})
    wrong = float((found.codes != truth).mean())
    votes = pmf.crowd.aggregate({**table, "label": label}, "majority")
    assert wrong < 0.1
    assert wrong < 0.4 * float((votes.codes != truth).mean())


def test_aggregate__says_what_the_log_has_chosen():
    table, _ = plant_hard_tasks(np.random.default_rng(2), 600)
    found = pmf.crowd.aggregate(table)
    assert found.reason.startswith("model ")
    assert found.reason in found.summary().to_text(200)
    assert not pmf.crowd.aggregate(table, "dawid_skene").reason
