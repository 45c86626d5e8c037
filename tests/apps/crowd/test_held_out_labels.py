"""Whether a label log has a second subclass of tasks, and starts that bought votes do not lead."""

import numpy as np
import pytest

import pmflib as pmf
from benchmarks.crowd import regimes
from pmflib.apps.crowd import EVENNESS, AnnotatorModel, LabelsInMemory, assign_folds, choose_model
from pmflib.apps.crowd.fitting import EXCHANGED
from pmflib.apps.crowd.m_step import measure_agreement
from pmflib.apps.crowd.model_choice import N_FOLDS
from pmflib.apps.crowd.pairs.annotator_model import MAXIMUM_LIKELIHOOD
from tests.apps.crowd.label_logs import draw_log, read_real_table


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


def test_choose_model__a_second_subclass_needs_labels_that_change():
    rng = np.random.default_rng(0)
    # labels are far better predicted, and hardly any task changes its class
    found = choose(plant_hard_tasks(rng)[0])
    assert found.annotator_model.n_subclasses == 1
    alike, _ = draw_log(rng, n_tasks=1500, n_workers=25, n_classes=2, n_labels=9)
    assert choose(alike).annotator_model.n_subclasses == 1


@pytest.mark.parametrize(("name", "n_subclasses"), [("zencrowd-us", 2), ("mre-treat", 1)])
def test_choose_model__second_subclass_of_real_logs(name, n_subclasses):
    assert choose(read_real_table(name)).annotator_model.n_subclasses == n_subclasses


@pytest.mark.parametrize(("prior", "evenness"), [([0.5, 0.5], EVENNESS), ([0.95, 0.05], 0.0)])
def test_choose_model__classes_are_nearly_equal_unless_labels_say_otherwise(prior, evenness):
    rng = np.random.default_rng(3)
    sizes = {"n_tasks": 1500, "n_workers": 40, "n_classes": 2, "n_labels": 3}
    table, _ = draw_log(rng, **sizes, accuracy=(0.6, 0.8), prior=prior)
    assert choose(table).annotator_model.evenness == evenness


@pytest.mark.parametrize(("share", "is_free"), [(0.6, True), (0.0, False)])
def test_choose_model__where_most_workers_give_one_label_is_maximum_likelihood(share, is_free):
    sizes = {"n_tasks": 600, "n_workers": 40, "n_classes": 2, "n_labels": 7}
    table, _ = draw_log(np.random.default_rng(0), **sizes, accuracy=(0.6, 0.95))
    table["label"] = np.where(table["worker"] < 40 * share, 0, table["label"])
    assert (choose(table).annotator_model == MAXIMUM_LIKELIHOOD) is is_free


# rightly found: a third of the labels are wrongly of the rare class
@pytest.mark.filterwarnings("ignore::pmflib.base.errors.IdentificationWarning")
def test_aggregate__states_that_passes_exchanged_are_the_classes_that_workers_name():
    # few labels of one frequent class: without votes as evidence, passes may end with it as the rare one
    log, truth = regimes.draw_log("unbalanced, few labels", 31)
    found = pmf.crowd.aggregate(log)
    assert EXCHANGED in found.reason
    assert (found.posterior.argmax(axis=1) != truth).mean() < 0.05


def test_choose_model__of_ordered_classes_keeps_their_order():
    many, _ = draw_log(np.random.default_rng(1), n_tasks=800, n_workers=15, n_classes=3, n_labels=9)
    assert choose(many, ordinal=True).annotator_model.ordinal


def test_choose_model__without_tasks_of_several_labels_is_shrunk():
    found = choose({"task": [0, 1, 2], "worker": [0, 1, 0], "label": ["a", "b", "b"]})
    assert (found.annotator_model, found.reason) == (AnnotatorModel(), "few tasks have 3 labels")


def test_choose_model__does_not_depend_on_the_order_of_tasks():
    rng = np.random.default_rng(1)
    table, _ = plant_hard_tasks(rng, 300)
    order = rng.permutation(300)
    assert choose({**table, "task": order[table["task"]]}).reason == choose(table).reason


def test_assign_folds__equal_tasks_do_not_hold_out_the_same_label():
    log = pmf.crowd.read_labels(
        {"task": np.repeat(np.arange(500), 3), "worker": [0, 1, 2] * 500, "label": [0, 0, 1] * 500}
    )
    folds = assign_folds(log.block)
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
    assert found.reason.startswith(("nearly equal classes: ", "a learnt class prior: "))
    assert found.reason in found.summary().to_text(200)
    assert not pmf.crowd.aggregate(table, "dawid_skene").reason
