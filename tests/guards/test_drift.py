import numpy as np
import pytest
import scipy.stats

import pmflib as pmf
from pmflib.base import assign_folds
from pmflib.counts import count_pairs
from pmflib.ingest import Account, FileAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards import (
    FileChange,
    LiveData,
    assess,
    control_discoveries,
    find_added,
    find_file_drift,
    find_pair_drift,
    list_families,
    measure_dependence,
    measure_drift,
)
from tests.pipelines import draw_codes, make_schema

CONFIG = QualityConfig()
SCALE = pmf.Schema(tuple(pmf.Variable(f"q{index}", ("1", "2", "3", "4")) for index in range(6)))


def draw(n_rows, seed, *, seen=1.0, person=0.0):
    """Codes of six questions that hang together, high levels likelier; people differ by ``person``."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, 2, (n_rows, 1))
    mean = 1.5 + np.where(state == 1, 0.9, -0.9) * np.array([1, 1, 0.6, 0.3, 0, -1])
    mean = mean + person * rng.standard_normal((n_rows, 1))
    codes = np.clip(np.rint(mean + 0.6 * rng.standard_normal((n_rows, 6)) + 0.4), 0, 3)
    return pmf.Codes(np.where(rng.random(codes.shape) < seen, codes, -1).astype(np.int64))


def account_for(codes, name, layout="wide"):
    levels = pmf.count_pairs(pmf.Codes(codes), SCALE, n_folds=1).count_levels()
    rows = len(codes) if layout == "wide" else int(levels.sum())
    return FileAccount(name, name, Account(rows, rows), levels)


def find(live, new, layout="wide", config=CONFIG):
    """Findings that crossed a limit of new files, each an array of codes, against the live ones."""
    whole = pmf.Codes(np.concatenate(live))
    folds = assign_folds(np.arange(len(whole)), 16)
    by_fold = [
        pmf.count_pairs(whole[folds == f], SCALE, n_folds=1).count_levels() for f in range(16)
    ]
    files = [account_for(codes, f"{n}.csv", layout) for n, codes in enumerate(live)]
    data = LiveData(files, np.stack(by_fold))
    changes = [FileChange(account_for(codes, f"new{n}.csv", layout)) for n, codes in enumerate(new)]
    tests = find_file_drift(SCALE, layout, data, changes)
    joined = pmf.Codes(np.concatenate(new))
    counted = [pmf.count_pairs(c, SCALE, n_folds=1).tables[0] for c in (joined, whole)]
    tests += find_pair_drift(SCALE, *counted)
    return [f for f in assess(measure_drift(tests, config), config) if not f.passed]


def actions(findings):
    found = {f.guard: f.action for f in findings if f.action == "warn"}
    return found | {f.guard: "stop" for f in findings if f.action == "stop"}


LIVE = [draw(400, seed) for seed in range(6)]


def test_measure_drift__healthy():
    assert find(LIVE, [draw(400, 100), draw(50, 101)]) == []
    assert find(LIVE, [draw(20, 102)]) == []


def test_measure_drift__large_samples_with_harmless_drift():
    live = [draw(40_000, seed) for seed in range(5)]
    new = draw(40_000, 100)
    slightly = np.where(
        (new > 0) & (np.random.default_rng(0).random(new.shape) < 0.03), new - 1, new
    )
    assert find(live, [slightly]) == []
    # it is no chance, however
    guards = ("variable_drift", "scale_drift")
    none = QualityConfig.model_validate({guard: {"warn": 0} for guard in guards})
    assert find(live, [slightly], config=none) != []


def test_measure_drift__a_reversed_scale():
    found = find(LIVE, [3 - draw(400, 100)])
    assert actions(found)["scale_drift"] == "stop"
    assert actions(found)["variable_drift"] == "stop"
    (scale,) = [f for f in found if f.guard == "scale_drift"]
    assert "new0.csv" in scale.subject
    assert scale.measured is not None
    assert scale.measured > 0.25


def test_measure_drift__one_bad_file_does_not_hide_among_good_ones():
    found = find(LIVE, [draw(400, 100), 3 - draw(400, 101), draw(400, 102)])
    subjects = {f.subject for f in found if f.guard == "variable_drift" and f.action == "stop"}
    assert any("new1.csv" in subject for subject in subjects)
    assert not any("new0.csv" in subject or "new2.csv" in subject for subject in subjects)


def test_measure_drift__an_empty_column():
    codes = draw(400, 100)
    codes[:, 3] = -1
    (found, *_) = find(LIVE, [codes])
    assert (found.guard, found.action) == ("variable_drift", "stop")
    assert found.subject.startswith("q3")


def test_measure_drift__swapped_columns_whose_margins_agree():
    new = draw(400, 100)
    # q0 and q5 have mirrored shares; q1 goes with q0, and not with q5
    live = [np.where(np.arange(6) == 5, 3 - codes, codes) for codes in LIVE]
    new = np.where(np.arange(6) == 5, 3 - new, new)
    assert find(live, [new]) == []
    swapped = new[:, [4, 1, 2, 3, 0, 5]]
    found = actions(find(live, [swapped]))
    assert found["dependence_drift"] == "stop"
    assert "scale_drift" not in found


def test_compare_files__people_are_clusters_of_a_scale():
    live = [draw(150, seed, seen=0.9, person=1.5) for seed in range(4)]
    nights = [[draw(60, 100 + seed, seen=0.9, person=1.5)] for seed in range(40)]
    assert [find(live, night, "long") for night in nights] == [[]] * 40


def test_compare_files__a_variable_that_nobody_answers_in_a_long_log():
    codes = draw(400, 100)
    codes[:, 3] = -1
    assert actions(find(LIVE, [codes], "long")) == {"answer_drift": "stop"}


def test_compare_files__files_that_always_differed_may_differ_again():
    shift = np.array([0.0, 1.2, -1.2, 0.8, -0.8, 1.0, -1.0])

    def draw_day(day, seed):
        codes = draw(400, seed).astype(float)
        return np.clip(np.rint(codes + shift[day % 7]), 0, 3).astype(np.int64)

    live = [draw_day(day, day) for day in range(14)]
    off = QualityConfig.model_validate({"pair_drift": "off", "dependence_drift": "off"})
    assert "scale_drift" not in actions(find(live, [draw_day(1, 100)], config=off))
    # the same day after a week of like ones
    assert actions(find(LIVE, [draw_day(1, 100)], config=off))["scale_drift"] in ("warn", "stop")


def test_compare_pairs__tiles_change_nothing():
    tables = [pmf.count_pairs(draw(n, n), SCALE, n_folds=1).tables[0] for n in (300, 2000)]
    whole, tiled = find_pair_drift(SCALE, *tables), find_pair_drift(SCALE, *tables, tile_cells=16)
    for guard in ("pair_drift", "dependence_drift"):
        values = [
            np.concatenate([t.comparison.p_value for t in tests if t.guard == guard])
            for tests in (whole, tiled)
        ]
        assert values[0].tolist() == values[1].tolist()
        assert values[0].size == 15


def test_find_added__is_what_there_is_more_of():
    assert find_added(np.array([[16, 0, -1]])).tolist() == [[16, 0, 0]]
    # of samples that were exchanged, what grew by chance is not what came
    assert find_added(np.array([[3, 0, -2]])) is None
    assert not find_added(np.zeros((2, 2), np.int64)).any()


def test_measure_dependence__is_the_mutual_information_of_samples_as_before_and_none_of_others():
    schema = make_schema(3, 3, 3)
    codes = draw_codes(4000, schema.cardinalities)
    reference, new = (
        count_pairs(part, schema, n_folds=2).tables.sum(axis=0)
        for part in (codes[:3000], codes[3000:])
    )
    whole = measure_dependence(schema, new, reference)
    assert whole == measure_dependence(schema, new, reference, tile_cells=9)
    joint = reference[:3, 3:6] / reference[:3, 3:6].sum()
    margins = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    assert whole == pytest.approx((joint * np.log(joint / margins)).sum(), rel=0.15)
    shifted = codes[3000:].copy()
    shifted[:, 0] = np.roll(shifted[:, 0], 1)
    shifted[:, 1] = np.roll(shifted[:, 1], 2)
    new = count_pairs(shifted, schema, n_folds=2).tables.sum(axis=0)
    found = measure_dependence(schema, new, reference)
    assert found is not None
    assert found < 0
    assert measure_dependence(schema, np.zeros_like(new), reference) is None


def test_control_discoveries__holds_the_rate_over_all_families():
    rng = np.random.default_rng(0)
    files = [
        FileAccount(str(n), str(n), Account(999, 999), rng.multinomial(99, np.full(24, 1 / 24)))
        for n in range(3)
    ]
    data = LiveData(files, np.stack([file.level_counts for file in files]))
    tests = find_file_drift(SCALE, "long", data, [FileChange(files[0])])
    for each in tests:
        each.comparison.p_value[:] = 0.02
    assert not any(rejected.any() for rejected in control_discoveries(tests, 0.01))
    assert all(
        r[t.comparison.tested].all()
        for t, r in zip(tests, control_discoveries(tests, 0.03), strict=True)
    )


def test_control_discoveries__rejects_what_the_published_procedure_does():
    rng = np.random.default_rng(1)
    file = FileAccount("a", "a", Account(999, 999), rng.multinomial(99, np.full(24, 1 / 24)))
    data = LiveData([file], file.level_counts[None])
    tests = find_file_drift(SCALE, "long", data, [FileChange(file)])
    for each in tests:
        each.comparison.p_value[:] = np.round(
            rng.uniform(size=each.comparison.p_value.size) ** 4, 3
        )
    tested = np.concatenate([each.comparison.tested for each in tests])
    p_values = np.concatenate([each.comparison.p_value for each in tests])[tested]
    for rate in (0.01, 0.05, 0.2):
        found = np.concatenate(control_discoveries(tests, rate))
        expected = scipy.stats.false_discovery_control(p_values) <= rate
        np.testing.assert_array_equal(found[tested], expected)
        assert not found[~tested].any()


def test_list_families__unanswered_rows_of_wide_files_are_a_level():
    variables, scale = list_families(SCALE, "wide")
    cells = variables.gather(np.arange(24)[None], np.array([100]))
    assert cells[0, :5].tolist() == [0, 1, 2, 3, 94]
    assert scale.gather(np.arange(24)[None]).tolist() == [[60, 66, 72, 78]]


def test_list_families__a_scale_is_shared():
    schema = pmf.Schema(
        (
            pmf.Variable("a", ("x", "y")),
            pmf.Variable("b", ("u", "v")),
            pmf.Variable("c", ("x", "y")),
        )
    )
    scale = list_families(schema, "long")[1]
    assert scale.cells.tolist() == [0, 1, -1, -1, 0, 1]
    assert len(scale.names) == 1
    alone = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("u", "v"))))
    assert [q.guard for q in list_families(alone, "wide")] == ["variable_drift"]


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_measure_drift__nothing_tested_is_said(layout):
    data = LiveData([account_for(draw(10, 0), "a", layout)], np.zeros((2, 24), np.int64))
    tests = find_file_drift(SCALE, layout, data, [FileChange(account_for(draw(4, 1), "b", layout))])
    found = assess(measure_drift(tests, CONFIG), CONFIG)
    assert {f.action for f in found if f.guard == "variable_drift"} == {"off"}
    assert all(f.passed for f in found)
