"""Guards of label logs, each on a log that has what it looks for, and on one that has not."""

import numpy as np
import pytest

from pmflib.apps.crowd import WorkerPairCounts
from pmflib.apps.crowd.worker_pair_counts import count_worker_pairs
from pmflib.base import SparseBlock
from pmflib.schema import Schema, Variable
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.crowd.label_guards import (
    LabelFile,
    measure_agreement,
    measure_label_files,
    measure_worker_names,
)
from pmflib_tasks.guards import assess

SCHEMA = Schema(tuple(Variable(f"w{k}", ("a", "b", "c")) for k in range(6)))
CONFIG = QualityConfig()


def make_file(name, given, newest=None):
    return LabelFile(name, name, np.asarray(given, np.int64), newest)


def find(findings, guard):
    (found,) = [each for each in findings if each.guard == guard]
    return found


def check(new, last=None, **options):
    usual = [make_file("old", np.full((6, 3), 20), 10.0)] if last is None else last
    config = QualityConfig(**options)
    return assess(measure_label_files([*usual, new], usual, SCHEMA, 3.0, config), config)


def check_agreement(new, n_tasks, before, unknown=()):
    mask = np.isin(np.arange(6), unknown)
    return assess(measure_agreement(new, n_tasks, before, SCHEMA.names, mask), CONFIG)


def test_measure_label_files__a_usual_file_passes_every_guard():
    findings = check(make_file("new", np.full((6, 3), 5), 11.0))
    assert {each.guard for each in findings} == {
        "worker_rows",
        "unknown_workers",
        "new_classes",
        "class_shares",
        "time_backwards",
    }
    assert all(each.passed for each in findings)
    assert list(measure_label_files([], [], SCHEMA, 1.0, CONFIG)) == []


def test_measure_label_files__one_worker_gives_most_of_a_file():
    given = np.full((6, 3), 5)
    given[2] = 200
    found = find(check(make_file("new", given)), "worker_rows")
    assert (found.action, found.named) == ("stop", ("w2",))
    assert "w2" not in found.sentence


def test_measure_label_files__workers_who_were_unknown():
    old = np.full((6, 3), 20)
    old[3:] = 0
    given = np.zeros((6, 3), int)
    given[3:] = 10
    last = [make_file("old", old)]
    found = find(check(make_file("new", given), last), "unknown_workers")
    assert (found.action, found.named) == ("stop", ("w3", "w4", "w5"))
    # of two labels nothing is certain
    few = np.zeros((6, 3), int)
    few[3, 0] = 2
    assert find(check(make_file("new", few), last), "unknown_workers").passed


def test_measure_label_files__classes_that_are_new_or_given_in_other_shares():
    old = np.full((6, 3), 20)
    old[:, 2] = 0
    given = np.full((6, 3), 20)
    found = find(check(make_file("new", given), [make_file("old", old)]), "new_classes")
    assert (found.action, found.measured) == ("warn", 1)
    given = np.tile([60, 5, 1], (6, 1))
    findings = [each for each in check(make_file("new", given)) if each.guard == "class_shares"]
    assert findings[0].action == "stop"


def test_measure_label_files__a_delivery_of_an_earlier_time():
    found = find(check(make_file("new", np.full((6, 3), 5), 7.5)), "time_backwards")
    assert (found.action, found.measured) == ("warn", 2.5)
    off = check(make_file("new", np.full((6, 3), 5), 7.5), time_backwards="off")
    assert find(off, "time_backwards").action == "off"


def draw_pairs(right, n_tasks=200, copier=False, seed=0):
    """Pairs of six workers, right so often; the last may give what the first does."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, (n_tasks, 1))
    codes = np.where(rng.random((n_tasks, 6)) < right, truth, rng.integers(0, 3, (n_tasks, 6)))
    if copier:
        codes[:, 5] = codes[:, 0]
    levels = (np.arange(6) * 3 + codes).astype(np.int32)
    indptr = np.arange(n_tasks + 1, dtype=np.int64) * 6
    return count_worker_pairs(SparseBlock(indptr, levels.ravel()), 6, 3)


@pytest.mark.parametrize(("right", "action"), [(0.8, "pass"), (0.6, "warn"), (0.2, "stop")])
def test_measure_agreement__labels_that_agree_less_than_they_did(right, action):
    usual = draw_pairs(0.8, seed=1)
    agreeing = int(np.trace(usual.counts, axis1=1, axis2=2).sum())
    before = {"pairs": int(usual.support.sum()), "agreeing": agreeing}
    findings = check_agreement(draw_pairs(right), 200, before)
    assert find(findings, "label_agreement").action == action
    assert find(findings, "copies").passed


def test_measure_agreement__a_worker_who_copies_another():
    pairs = draw_pairs(0.6, copier=True)
    found = find(check_agreement(pairs, 200, {}), "copies")
    assert (found.action, found.named) == ("warn", ("w0", "w5"))
    assert found.measured == pytest.approx(1 / 6)
    # where all are nearly always right, they agree without copying
    assert find(check_agreement(draw_pairs(0.99), 200, {}), "copies").passed


def test_measure_agreement__abstains_without_pairs():
    none = WorkerPairCounts.zero(6, 3)
    findings = check_agreement(none, 0, {})
    assert [each.action for each in findings] == ["off", "off", "off"]


@pytest.mark.parametrize(("n_guessers", "action"), [(0, "pass"), (1, "warn"), (3, "stop")])
def test_measure_agreement__unknown_workers_who_answer_at_random(n_guessers, action):
    # the last ones are new: those who guess are named, and those who know are not
    rng = np.random.default_rng(n_guessers)
    truth = rng.integers(0, 3, (200, 1))
    right = np.where(np.arange(6) < 6 - n_guessers, 0.8, 0.0)
    codes = np.where(rng.random((200, 6)) < right, truth, rng.integers(0, 3, (200, 6)))
    levels = (np.arange(6) * 3 + codes).astype(np.int32)
    indptr = np.arange(201, dtype=np.int64) * 6
    pairs = count_worker_pairs(SparseBlock(indptr, levels.ravel()), 6, 3)
    findings = check_agreement(
        pairs, 200, {"pairs": 3000, "agreeing": 2100}, unknown=(1, 2, 3, 4, 5)
    )
    found = find(findings, "guesses")
    assert (found.action, found.named) == (action, SCHEMA.names[6 - n_guessers :][:n_guessers])


def test_quality_config__refuses_limits_that_are_in_the_wrong_order():
    with pytest.raises(ValueError, match="label_agreement"):
        QualityConfig.model_validate({"label_agreement": {"warn": 0.3, "stop": 0.2}})


def check_names(names, *nights):
    """Findings on the names of workers of the last night, of which each gives ten labels a night."""
    files = [
        make_file(f"{n}", [[10 * (name in night)] for name in names])
        for n, night in enumerate(nights)
    ]
    measured = measure_worker_names(files, files[:-1], names)
    return {each.guard: each for each in assess(measured, CONFIG)}


def test_measure_worker_names__numbers_that_are_written_as_before_or_otherwise():
    before = ["11", "12", "13", "14"]
    new = ["15", "16", "101"]
    assert all(each.passed for each in check_names(before + new, before, new).values())
    found = check_names([*before, "11.0", "12.0"], before, ["11.0", "12.0"])
    assert {name: each.action for name, each in found.items()} == {
        "identifier_form": "stop",
        "identifier_spelling": "stop",
    }
    # names of people are in no sentence
    assert all("11" not in each.sentence for each in found.values())
    # within the first night
    (found,) = check_names(["00011", "11", "12"], ["00011", "11", "12"]).values()
    assert (found.guard, found.action) == ("identifier_spelling", "stop")
    # what was accepted once is known
    names = ["00011", "11"]
    assert check_names(names, names, ["11"])["identifier_spelling"].passed
    assert list(measure_worker_names([], [], names)) == []
