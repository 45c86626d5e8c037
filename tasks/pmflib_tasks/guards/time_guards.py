"""Guards of times: times ahead of the clock, or far from those of other files.

An impossible time does lasting damage: where the last row by time wins, it supersedes every later correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from pmflib.base.display.summary import percent
from pmflib.ingest.dataset.accounts import TimeSpan
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.guards.findings import Measurement
from pmflib_tasks.guards.row_guards import LEAST_SIBLINGS, FileChange

UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""Units of numbers that are times since 1970: how many make a second."""
FIRST_YEAR, LAST_YEAR = 1990, 2100
"""Years within which numbers, in one of these units, are taken as times since 1970."""
FAR = 100.0
"""Multiple of the span of all other files beyond which a time of a log without a clock is impossible."""


@dataclass(frozen=True)
class Clock:
    """The current time, and the end of the last run.

    Parameters
    ----------
    now
        Time of the clock of this machine.
    last
        End of the last run; None if there was none.
    """

    now: datetime
    last: datetime | None = None

    @property
    def latest(self) -> datetime:
        """The later of the two: after a clock was set back, earlier nights do not lie in the future."""
        return self.now if self.last is None else max(self.now, self.last)

    @property
    def hours_behind(self) -> float:
        """Hours by which the clock is behind the end of the last run, at least 0."""
        return (self.latest - self.now) / timedelta(hours=1)


CountLater = Callable[[str, float], int]
"""Counts the encoded rows of a file whose time is after a given time."""


def measure_times(
    files: Sequence[FileAccount],
    new: Sequence[FileChange],
    clock: Clock,
    count_later: CountLater,
    future_hours: float,
) -> Iterator[Measurement]:
    """Measure the times of new files: guards ``clock``, ``future_rows`` and ``stray_times``.

    Parameters
    ----------
    files
        All files.
    new
        New files.
    clock
        The current time.
    count_later
        Counts rows; called only for files with impossible times.
    future_hours
        Hours by which times may be ahead of the clock.

    Yields
    ------
    Measurements; none for sources without times. Those that pass do not depend on the clock.
    """
    spans = {
        file.name: file.times for file in files if file.times and file.times.newest is not None
    }
    if not spans:
        return
    behind = clock.hours_behind
    sentence = "the clock of this machine is not behind the end of the last run"
    if behind > 0:
        sentence = (
            f"the clock of this machine says {clock.now:%Y-%m-%d %H:%M} UTC, and the last run ended at "
            f"{clock.latest:%Y-%m-%d %H:%M}, {behind:,.1f} hours later"
        )
    yield Measurement("clock", "this machine", behind, sentence)
    for change in new:
        times, name = change.file.times, change.file.name
        if times is None or times.newest is None or times.oldest is None:
            continue
        others = [each for other, each in spans.items() if other != name]
        yield _measure_future(change, times, others, clock, count_later, future_hours)
        yield _measure_stray(name, times, others)


def _measure_future(
    change: FileChange,
    times: TimeSpan,
    others: Sequence[TimeSpan],
    clock: Clock,
    count_later: CountLater,
    future_hours: float,
) -> Measurement:
    per_second = find_unit(times, others)
    if per_second is not None:
        limit = (clock.latest + timedelta(hours=future_hours)).timestamp() * per_second
        bound = f"more than {future_hours:g} hours ahead of the clock"
    elif len(others) >= LEAST_SIBLINGS:
        first, last = _span(others)
        limit = last + FAR * (last - first)
        bound = f"later than all other files by {FAR:g} times their span"
    else:
        reason = f"{change.file.name}: its times are not on a known clock"
        return Measurement("future_rows", change.file.name, None, reason)
    assert times.newest is not None
    n_rows = change.file.rows.rows_encoded
    if times.newest <= limit:
        # a measurement that passes must not depend on the clock
        return Measurement("future_rows", change.file.name, 0.0, f"no time is {bound}")
    later = count_later(change.file.name, limit)
    share = min(later / max(n_rows, 1), 1.0)
    sentence = (
        f"{change.file.name}: {later:,} rows ({percent(share)}) have a time {bound}; the latest is "
        f"{_show(times.newest, per_second)}"
    )
    return Measurement("future_rows", change.file.name, share, sentence)


def _measure_stray(name: str, times: TimeSpan, others: Sequence[TimeSpan]) -> Measurement:
    if len(others) < LEAST_SIBLINGS:
        reason = (
            f"{name}: {len(others)} other files have times, at least {LEAST_SIBLINGS} are needed"
        )
        return Measurement("stray_times", name, None, reason)
    first, last = _span(others)
    assert times.newest is not None
    assert times.oldest is not None
    away = max(times.newest - last, first - times.oldest, 0.0)
    measured = away / (last - first) if last > first else 0.0
    per_second = find_unit(times, others)
    sentence = (
        f"{name}: its times, from {_show(times.oldest, per_second)} to {_show(times.newest, per_second)}, are "
        f"{measured:.2g} spans away from those of the other files ({_show(first, per_second)} to "
        f"{_show(last, per_second)})"
    )
    return Measurement("stray_times", name, measured, sentence)


def find_unit(times: TimeSpan, others: Sequence[TimeSpan]) -> float | None:
    """Infer the unit of times, in units per second, from the other files; None if they are on no clock."""
    if times.format == "instant":
        return 1e6
    newest = [each.newest for each in others if each.newest is not None]
    if not newest:
        return None
    first, last = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (FIRST_YEAR, LAST_YEAR))
    typical = median(newest)
    return next((u for u in UNITS.values() if first <= typical / u <= last), None)


def _span(others: Sequence[TimeSpan]) -> tuple[float, float]:
    """Find the first and the last time of some files."""
    oldest = [each.oldest for each in others if each.oldest is not None]
    newest = [each.newest for each in others if each.newest is not None]
    return min(oldest), max(newest)


def _show(time: float, per_second: float | None) -> str:
    """Format a time as a date, or as a number if it is not a date."""
    if per_second is not None:
        try:
            moment = datetime(1970, 1, 1) + timedelta(seconds=time / per_second)
            return f"{moment:%Y-%m-%d %H:%M}"
        except OverflowError:
            pass
    return f"{time:.15g}"
