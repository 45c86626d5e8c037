from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pmflib.ingest import Account, FileAccount, count_forms
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards import (
    Night,
    assess,
    find_file_changes,
    find_twins,
    measure_forms,
    measure_night,
)

CONFIG = QualityConfig()
RNG_SEED = 3


def find(night, history):
    """Actions by guard, of those that crossed a limit."""
    return {
        f.guard: f.action for f in assess(measure_night(night, history), CONFIG) if not f.passed
    }


def draw_history(n_nights=12, *, known=0.6, fresh=0.9, same=0.8, dependence=0.05):
    """Nights of a log that do not change but by chance."""
    rng = np.random.default_rng(RNG_SEED)
    nights = []
    for _ in range(n_nights):
        repeated = int(rng.binomial(800, 1 - fresh))
        agreeing = int(rng.binomial(repeated, same))
        mean = dependence + 0.005 * float(rng.standard_normal())
        nights.append(Night(200, int(rng.binomial(200, known)), 800, repeated, agreeing, mean))
    return nights


def test_measure_night__nights_of_one_log_pass():
    for kwargs in ({}, {"known": 0.0}, {"known": 1.0, "fresh": 0.02}, {"dependence": -0.3}):
        nights = draw_history(40, **kwargs)
        for n in range(40):
            assert find(nights[n], nights[:n]) == {}


def test_measure_night__too_few_nights_say_nothing_and_the_sentence_says_so():
    night = replace(draw_history(1)[0], known=0)
    found = assess(measure_night(night, draw_history(1)), CONFIG)
    assert {f.action for f in found} == {"off"}
    assert all("1" in f.sentence for f in found)
    assert find(night, draw_history(2))["known_samples"] == "stop"


def test_measure_night__samples_under_other_identifiers():
    history = draw_history()
    night = history[-1]
    assert find(replace(night, known=0), history) == {"known_samples": "stop"}
    assert find(replace(night, known=15), history) == {"known_samples": "warn"}
    # a campaign: four times as many new people
    assert find(replace(night, samples=440, known=120), history) == {}
    # a log whose people never return
    assert find(replace(night, known=0), draw_history(known=0.0)) == {}


def test_measure_night__nothing_new():
    history = draw_history()
    night = replace(history[-1], repeated=800, agreeing=800)
    assert find(night, history) == {"fresh_rows": "stop"}
    # also where it is not known yet what is usual
    assert find(night, []) == {"fresh_rows": "stop"}
    assert find(replace(night, agreeing=700), []) == {}
    # a log whose every night repeats all earlier ones
    usual = draw_history(fresh=0.02, same=1.0)
    assert find(replace(usual[-1], repeated=790, agreeing=790), usual) == {}


def test_measure_night__answers_that_do_not_agree_with_what_is_stored():
    history = draw_history()
    night = replace(history[-1], repeated=80, agreeing=20)
    assert find(night, history) == {"agreement": "stop"}
    assert find(replace(night, agreeing=36), history) == {"agreement": "warn"}
    assert find(replace(night, repeated=9, agreeing=0), history) == {}


def test_measure_night__of_few_answers_given_again_what_chance_varies_by_is_counted_once():
    shares = [(11, 11), (13, 13), (20, 20), (22, 19), (15, 14), (29, 25), (15, 14), (16, 15)]
    history = [Night(100, 50, 500, repeated, agreeing) for repeated, agreeing in shares]
    night = Night(100, 50, 500, 25, 7)
    assert find(night, history) == {"agreement": "stop"}
    for usual in history:
        assert find(usual, history) == {}


def test_measure_night__pairs_that_do_not_hang_together_as_they_did():
    history = draw_history()
    assert find(replace(history[-1], dependence=-0.05), history) == {"joint_agreement": "stop"}
    assert find(replace(history[-1], dependence=0.012), history) == {"joint_agreement": "warn"}
    assert find(replace(history[-1], dependence=0.2), history) == {}
    assert find(replace(history[-1], dependence=None), history) == {}
    assert find(replace(history[-1], dependence=-0.1), history[:9]) == {}
    # a young log learns its pairs: what rises is no spread
    rising = [replace(each, dependence=-0.5 / (1 + n)) for n, each in enumerate(history)]
    assert find(replace(history[-1], dependence=-0.3), rising) == {"joint_agreement": "stop"}
    # nights that are all the same do not make a small difference a large one
    equal = [replace(each, dependence=0.05) for each in history]
    assert find(replace(history[-1], dependence=0.047), equal) == {}


def test_count_forms():
    names = ["7", "42", "0042", "0", "u7", "U7", "a-1", "é", "x" * 99]
    forms = count_forms(pa.array([name.encode() for name in names], pa.binary()))
    assert forms == {
        "digits 1": 2,
        "digits 2": 1,
        "zero digits 4": 1,
        "digits lower 2": 1,
        "digits upper 2": 1,
        "digits lower other 3": 1,
        "not ASCII 2": 1,
        "lower 64": 1,
    }
    sliced = pa.array([name.encode() for name in names], pa.binary()).slice(2, 2)
    assert count_forms(sliced) == {"zero digits 4": 1, "digits 1": 1}
    assert count_forms(pa.array([], pa.binary())) == {}


def make_file(name, identifiers=(), counts=(60, 40), digest=None):
    rows = int(sum(counts))
    forms = count_forms(pa.array([str(each).encode() for each in identifiers], pa.binary()))
    levels = np.array(counts, np.int64)
    return FileAccount(name, digest or name, Account(rows, rows), levels, forms=forms)


@pytest.fixture
def log():
    """Files of a log whose people are numbered as they come."""
    return [make_file(f"{n}.csv", range(1, 30 + 40 * n)) for n in range(7)]


def check_new(log, identifiers):
    new = make_file("new.csv", identifiers)
    changes = find_file_changes([*log, new], log)
    found = assess(measure_forms(changes, log), CONFIG)
    return {f.guard: f.action for f in found if not f.passed}


def test_measure_forms__numbers_may_grow_by_a_digit(log):
    assert check_new(log, range(1, 900)) == {}
    assert check_new(log, range(900, 1400)) == {}


@pytest.mark.parametrize(
    ("write", "action"),
    [
        (lambda n: f"{n:08}", "stop"),
        (lambda n: f"staging-{n}", "stop"),
        (lambda n: f"{n}" if n % 5 else f"test{n}", "warn"),
        (lambda n: f"{10_000_000 + n}", "stop"),
    ],
)
def test_measure_forms__identifiers_of_another_form(log, write, action):
    assert check_new(log, [write(n) for n in range(300)]) == {"identifier_form": action}


def test_measure_forms__names_of_all_forms_are_usual_where_they_were(log):
    rng = np.random.default_rng(RNG_SEED)
    letters = np.array(list("aB3-"))

    def draw(n_names):
        return ["".join(rng.choice(letters, rng.integers(3, 20))) for _ in range(n_names)]

    files = [make_file(f"{n}.csv", draw(60)) for n in range(6)]
    assert check_new(files, draw(60)) == {}


def test_measure_forms__sources_without_identifiers():
    files = [make_file("a.csv")]
    new = make_file("b.csv")
    changes = find_file_changes([*files, new], files)
    assert list(measure_forms(changes, files)) == []


def check_copy(counts, others, digest="new"):
    new = make_file("new.csv", counts=counts, digest=digest)
    changes = find_file_changes([*others, new], others)
    found = assess(find_twins([*others, new], changes), CONFIG)
    return {f.guard: f.action for f in found if not f.passed}


def test_find_twins__the_same_rows_under_other_identifiers():
    rng = np.random.default_rng(RNG_SEED)
    shares = np.full(30, 1 / 30)
    others = [make_file(f"{n}.csv", counts=rng.multinomial(900, shares)) for n in range(5)]
    assert check_copy(others[2].level_counts, others) == {"same_answers": "stop"}
    # by name or by bytes the same file is no other
    assert check_copy(others[2].level_counts, others, digest="2.csv") == {}
    assert check_copy(rng.multinomial(900, shares), others) == {}
    # two levels are often held equally often by chance
    few = [make_file(f"{n}.csv", counts=(60, 40)) for n in range(5)]
    assert check_copy((60, 40), few) == {}


def test_find_twins__hardly_ever_of_unrelated_files():
    rng = np.random.default_rng(RNG_SEED)
    found = Counter()
    for _ in range(200):
        others = [
            make_file(f"{n}.csv", counts=rng.multinomial(25, [0.5, 0.3, 0.2])) for n in (1, 2)
        ]
        found.update(check_copy(rng.multinomial(25, [0.5, 0.3, 0.2]), others).values())
    assert found == {}
