from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from pmflib.ingest import Account, FileAccount, TimeSpan
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards import Clock, FileChange, assess, measure_times

CONFIG = QualityConfig()
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = 86_400.0


def make_file(name, oldest, newest=None, *, written="number"):
    times = TimeSpan(oldest, oldest if newest is None else newest, written)
    return FileAccount(name, name, Account(100, 100), np.array([100]), times=times)


def make_log(*, unit=1.0, start=NOW, n_files=6, written="number"):
    """Files of the nights before a date."""
    ends = [(start - timedelta(days=n)).timestamp() * unit for n in range(n_files, 0, -1)]
    return [
        make_file(f"{n}.csv", end - DAY * unit / 2, end, written=written)
        for n, end in enumerate(ends)
    ]


def check(log, new, *, clock=None, later=100, config=CONFIG):
    clock = clock or Clock(NOW)
    found = find([*log, new], [new], clock, later, config)
    return {f.guard: f.action for f in found if not f.passed}


def find(files, new, clock, later=100, config=CONFIG):
    changes = [FileChange(file) for file in new]
    measured = measure_times(files, changes, clock, lambda *_: later, config.future_hours)
    return assess(measured, config)


def at(days, unit=1.0):
    return (NOW + timedelta(days=days)).timestamp() * unit


@pytest.mark.parametrize(
    ("unit", "written"), [(1.0, "number"), (1e3, "number"), (1e6, "instant"), (1e9, "number")]
)
def test_measure_times__what_is_ahead_of_the_clock_is_held_back(unit, written):
    log = make_log(unit=unit, written=written)
    assert check(log, make_file("new.csv", at(0, unit), written=written)) == {}
    # a zone that is not written
    assert check(log, make_file("new.csv", at(0.6, unit), written=written)) == {}
    late = make_file("new.csv", at(2, unit), written=written)
    assert check(log, late) == {"future_rows": "stop"}
    assert check(log, late, later=1) == {"future_rows": "warn"}
    assert check(log, late, config=QualityConfig(future_hours=72)) == {}


def test_measure_times__milliseconds_among_seconds_and_seconds_among_milliseconds():
    log = make_log()
    assert check(log, make_file("new.csv", at(0, 1e3)))["future_rows"] == "stop"
    assert check(make_log(unit=1e3), make_file("new.csv", at(0))) == {"stray_times": "warn"}


def test_measure_times__other_files_of_the_same_night_say_what_unit_is_meant():
    files = [make_file("a.csv", at(-1)), make_file("b.csv", at(0)), make_file("c.csv", at(0, 1e3))]
    found = find(files, files, Clock(NOW))
    assert [f.subject for f in found if f.action == "stop"] == ["c.csv"]


def test_measure_times__decades_behind_are_warned_of_and_a_pause_is_not():
    log = make_log(start=NOW - timedelta(days=20))
    assert check(log, make_file("new.csv", at(-7300))) == {"stray_times": "warn"}
    assert check(log, make_file("new.csv", at(0))) == {}


def test_measure_times__numbers_on_no_clock_are_compared_with_each_other():
    log = [make_file(f"{n}.csv", 1000.0 * n) for n in range(1, 7)]
    assert check(log, make_file("new.csv", 7000.0)) == {}
    stray = check(log, make_file("new.csv", 7_000_000.0))
    assert stray == {"future_rows": "stop", "stray_times": "warn"}
    # fewer files say nothing
    assert check(log[:3], make_file("new.csv", 7_000_000.0)) == {}
    # files that are all of one moment span nothing
    assert check([make_file(f"{n}.csv", 1e3) for n in range(6)], make_file("new.csv", 1e3)) == {}


def test_measure_times__a_clock_that_goes_back_is_named_and_holds_nothing_back():
    log, new = make_log(), make_file("new.csv", at(0))
    put_back = Clock(NOW - timedelta(days=400), NOW - timedelta(hours=20))
    assert put_back.hours_behind == pytest.approx(400 * 24 - 20)
    assert check(log, new, clock=put_back) == {"clock": "warn"}
    assert check(log, make_file("new.csv", at(30)), clock=put_back)["future_rows"] == "stop"
    assert check(log, new, clock=Clock(NOW, NOW - timedelta(days=1))) == {}


def test_measure_times__what_passes_does_not_depend_on_the_clock():
    log, new = make_log(), make_file("new.csv", at(0))
    clocks = [Clock(NOW + timedelta(days=n)) for n in (0, 50)]
    first, second = (find([*log, new], [new], clock, later=0) for clock in clocks)
    assert first == second


def test_measure_times__sources_without_times():
    plain = FileAccount("a", "a", Account(9, 9), np.array([9]))
    assert find([plain], [plain], Clock(NOW)) == []
    empty = FileAccount("b", "b", Account(), np.array([0]), times=TimeSpan(None, None, None))
    assert check(make_log(), empty) == {}


def test_measure_times__dates_beyond_all_calendars_are_shown_as_numbers():
    new = make_file("new.csv", 1e30)
    found = find([*make_log(), new], [new], Clock(NOW))
    assert any("1e+30" in f.sentence for f in found if f.action == "stop")
