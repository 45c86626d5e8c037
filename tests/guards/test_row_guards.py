from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pmflib.ingest import Account, FileAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards import (
    assess,
    bound_share,
    find_file_changes,
    find_new_columns,
    measure_rows,
    measure_sizes,
)

CONFIG = QualityConfig()


def make_file(name, rows=100, *, digest=None, reasons=None, duplicates=0, counts=None):
    reasons = Counter(reasons or {})
    account = Account(rows, rows - reasons.total(), reasons=reasons)
    levels = np.array([account.rows_encoded, 0] if counts is None else counts)
    return FileAccount(name, digest or name, account, levels, duplicates)


def add_up(files):
    return sum((file.rows for file in files), Account())


def check(files, last=None, config=CONFIG):
    """Findings that crossed a limit, by guard: action."""
    changes = find_file_changes(files, last or [])
    last_account = None if last is None else add_up(last)
    measured = [
        *measure_rows(add_up(files), files, last_account, changes, config),
        *measure_sizes(changes, last or []),
    ]
    return {f.guard: f.action for f in assess(measured, config) if not f.passed}


def test_measure_rows__healthy():
    last = [make_file(f"{n}.csv", 100 + n, reasons={"ragged": 1}) for n in range(6)]
    assert check(last) == {}
    assert check([*last, make_file("new.csv", 104, reasons={"ragged": 2})], last) == {}


def test_measure_rows__quarantine_and_reasons():
    files = [make_file("a.csv", reasons={"unknown_level": 15, "duplicate": 60})]
    found = check(files)
    assert found == {"quarantine": "warn", "reason": "warn", "file_quarantine": "warn"}
    assert check([make_file("a.csv", reasons={"unknown_level": 21})])["quarantine"] == "stop"
    limits = QualityConfig.model_validate(
        {"reasons": {"duplicate": {"stop": 0.5}, "unknown_level": "off"}}
    )
    found = check(files, config=limits)
    assert found == {"quarantine": "warn", "reason": "stop", "file_quarantine": "warn"}


def check_columns(files, last=None, known=None):
    changes = find_file_changes(files, last or [])
    found = assess(find_new_columns(files, changes, known), CONFIG)
    return {f.subject: (f.measured, f.action) for f in found}


def test_find_new_columns__against_the_first_file_of_a_first_run():
    plain = replace(make_file("a.csv"), ignored_columns=("id",))
    more = replace(make_file("b.csv"), ignored_columns=("id", "x", "y"))
    assert check_columns([plain, more]) == {"b.csv": (2, "warn")}
    assert check_columns([more, plain]) == {"all files": (0, "pass")}
    assert check_columns([]) == {"all files": (0, "pass")}


def test_find_new_columns__against_the_last_run():
    old = replace(make_file("a.csv"), ignored_columns=("id",))
    new = replace(make_file("b.csv"), ignored_columns=("id", "x"))
    assert check_columns([old, new], [old], {"id"}) == {"b.csv": (1, "warn")}
    assert check_columns([old, new], [old], {"id", "x"}) == {"all files": (0, "pass")}
    assert check_columns([new], [new], {"id"}) == {"all files": (0, "pass")}


def test_measure_rows__undecodable_rows_stop_a_first_run():
    files = [make_file("a.csv", reasons={"undecodable": 55})]
    measured = measure_rows(add_up(files), files, None, find_file_changes(files, []), CONFIG)
    found = assess(measured, CONFIG)
    assert {f.guard for f in found if f.action == "stop"} == {
        "quarantine",
        "reason",
        "file_quarantine",
    }
    assert any("source.encoding" in f.sentence for f in found)


def test_measure_rows__one_bad_file_of_many():
    good = [make_file(f"{n}.csv") for n in range(50)]
    bad = make_file("bad.csv", reasons={"unknown_level": 100})
    assert check([*good, bad], good) == {"file_quarantine": "stop", "new_rows": "warn"}
    few = make_file("few.csv", 3, reasons={"ragged": 1})
    assert check([*good, few], good) == {"file_size": "warn"}


def test_measure_rows__rows_added_to_a_file_are_assessed_alone():
    last = [make_file("log.csv", 1000, digest="before", counts=[900, 100])]
    grown = make_file(
        "log.csv", 1100, digest="after", reasons={"unknown_level": 90}, counts=[905, 105]
    )
    assert check([grown], last) == {
        "quarantine": "warn",
        "reason": "warn",
        "file_quarantine": "stop",
    }
    (change,) = find_file_changes([grown], last).new
    assert (change.file.rows.rows_in, change.file.rows.rows_encoded) == (100, 10)
    shrunk = make_file("log.csv", 1100, digest="after", counts=[899, 201])
    assert not find_file_changes([shrunk], last).new[0].grown


def test_find_file_changes__a_renamed_file_is_none():
    last = [make_file("a.csv", digest="1"), make_file("b.csv", digest="2")]
    changes = find_file_changes(
        [make_file("c.csv", digest="1"), make_file("b.csv", digest="3")], last
    )
    assert [c.file.name for c in changes.new] == ["b.csv"]
    assert changes.missing == []


def test_measure_rows__missing_files_and_lost_rows():
    last = [make_file(f"{n}.csv") for n in range(10)]
    assert check(last[1:], last)["missing_files"] == "warn"
    assert check(last[1:], last)["rows_lost"] == "warn"
    assert check(last[3:], last)["rows_lost"] == "stop"
    expected = QualityConfig(removals_expected=True)
    assert check(last[3:], last, expected) == {"new_rows": "warn"}


def test_measure_rows__the_same_bytes_twice():
    twins = [make_file("a.csv", digest="1"), make_file("b.csv", digest="1")]
    assert check(twins)["same_bytes"] == "stop"
    small = [make_file("a.csv", 5, digest="1"), make_file("b.csv", 5, digest="1")]
    assert check(small) == {}


def test_measure_rows__rows_delivered_again():
    assert check([make_file("a.csv", duplicates=51)]) == {"duplicates": "warn"}
    assert check([make_file("a.csv", duplicates=49)]) == {}


@pytest.mark.parametrize(("rows", "action"), [(50, "warn"), (100, None), (210, "warn")])
def test_measure_sizes__half_a_file_among_its_siblings(rows, action):
    last = [make_file(f"{n}.csv", 98 + n) for n in range(5)]
    found = check([*last, make_file("new.csv", rows)], last)
    assert found.get("file_size") == action
    # sizes of four files say little, and sizes that vary say nothing
    assert "file_size" not in check([*last[1:], make_file("new.csv", rows)], last[1:])
    varied = [make_file(f"{n}.csv", 40 * 2**n) for n in range(5)]
    assert "file_size" not in check([*varied, make_file("new.csv", rows)], varied)


def test_measure_sizes__a_file_that_shrinks():
    last = [make_file("log.csv", 1000, digest="1")]
    assert check([make_file("log.csv", 400, digest="2")], last)["file_size"] == "warn"
    assert "file_size" not in check([make_file("log.csv", 900, digest="2")], last)
    assert "file_size" not in check([make_file("log.csv", 9000, digest="2")], last)


def test_bound_share__wilson():
    # the score interval of 8 of 10 at 90 %, by its defining equation
    least = bound_share(8, 10)
    assert (0.8 - least) / np.sqrt(least * (1 - least) / 10) == pytest.approx(1.645)
    assert bound_share(0, 10) == 0.0
    assert bound_share(0, 0) == 0.0
