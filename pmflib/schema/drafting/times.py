"""Columns of dates and times: found by how they are written, and what may be made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from pmflib.schema.drafting.column_meaning import split_name

LEAST_SHARE = 0.95
"""Share of a column's values that must read as times in one way."""
MOST_READ = 2000
"""Distinct values that are read; of more, the first ones speak for all."""
FIRST_YEAR, LAST_YEAR = 1800, 2200
"""Years of eight digits that are a date."""
FIRST_EPOCH, LAST_EPOCH = 10**8, 5 * 10**9
"""Seconds since 1970 that are a time: 1973 to 2128."""

_CLOCK = r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,]\d+)?)?"
_AFTER = rf"(?:[T ]{_CLOCK}\s*(?:Z|UTC|[+-]\d\d:?\d\d)?)?"
_YEAR, _MONTH, _DAY = (
    r"(?P<year>\d{4})",
    r"(?P<month>0?[1-9]|1[0-2])",
    r"(?P<day>0?[1-9]|[12]\d|3[01])",
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}(?P<sign>[-/.]){_MONTH}(?P=sign){_DAY}{_AFTER}",
        rf"{_DAY}(?P<sign>[-/.]){_MONTH}(?P=sign){_YEAR}{_AFTER}",
        rf"{_MONTH}(?P<sign>[-/.]){_DAY}(?P=sign){_YEAR}{_AFTER}",
        rf"{_YEAR}-{_MONTH}",
        _CLOCK,
    )
)
"""Ways to write a time, of which the first one that fits nearly all values is taken."""
_EIGHT = re.compile(r"(?P<year>\d{4})(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])")
_TIME_WORDS = frozenset(
    "time times timestamp timestamps ts date dates datetime epoch unix created updated modified zeit datum".split()
)


@dataclass(frozen=True)
class Times:
    """Times of a column.

    Parameters
    ----------
    ordered
        Texts in the order of time; those that are no times stand behind.
    reason
        What they are, and from when to when.
    offer
        What a person may make of them.
    """

    ordered: tuple[str, ...]
    reason: str
    offer: str


def find_times(name: str, counts: Mapping[str, int]) -> Times | None:
    """Find out whether a column holds dates or times.

    Parameters
    ----------
    name
        Name of the column.
    counts
        How often each of its texts was seen.

    Returns
    -------
    The times; None where fewer than `LEAST_SHARE` of the values are written as some in one way. Whole numbers are times
    only where they are written as 20240131, or count the seconds since 1970 in a column that is named after a time.
    """
    texts = list(counts)[:MOST_READ]
    first = next(iter(texts), "")
    if not first[:1].isdigit():
        return None
    for read in _list_readers(name, texts):
        read_texts = {text: moment for text in texts if (moment := read(text)) is not None}
        n_read = sum(counts[text] for text in read_texts)
        if read_texts and n_read >= LEAST_SHARE * sum(counts[text] for text in texts):
            rest = [text for text in counts if text not in read_texts]
            every = {**read_texts, **{text: m for text in rest if (m := read(text)) is not None}}
            return _describe(every, [text for text in rest if text not in every])
    return None


def _list_readers(name: str, texts: Collection[str]) -> list[Callable[[str], datetime | None]]:
    """Ways to read the texts; numbers are read where all of them are in range."""
    if all(text.isascii() and text.isdecimal() for text in texts):
        is_named = bool(_TIME_WORDS.intersection(split_name(name)))
        return [_read_eight, *([_read_epoch] if is_named else [])]
    return [lambda text, form=form: _read_form(form, text) for form in _FORMS]  # type: ignore[misc]


def _read_form(form: re.Pattern[str], text: str) -> datetime | None:
    match = form.fullmatch(text)
    if match is None:
        return None
    parts = {key: int(value) for key, value in match.groupdict().items() if value and key != "sign"}
    try:
        return datetime(
            parts.get("year", 1), parts.get("month", 1), parts.get("day", 1),
            parts.get("hour", 0), parts.get("minute", 0), parts.get("second", 0), tzinfo=UTC,
        )  # fmt: skip
    except ValueError:
        return None


def _read_eight(text: str) -> datetime | None:
    found = _read_form(_EIGHT, text)
    return found if found is not None and FIRST_YEAR <= found.year <= LAST_YEAR else None


def _read_epoch(text: str) -> datetime | None:
    seconds = int(text) / 1000 if len(text) in (12, 13) else int(text)
    if not FIRST_EPOCH <= seconds <= LAST_EPOCH:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _describe(moments: Mapping[str, datetime], rest: Iterable[str]) -> Times:
    ordered = sorted(moments, key=lambda text: (moments[text], text))
    first, last = moments[ordered[0]], moments[ordered[-1]]
    days = {moment.date() for moment in moments.values()}
    clocks = {moment.time() for moment in moments.values()}
    if days == {date(1, 1, 1)}:
        what, shown = "times of the day", f"{first:%H:%M} to {last:%H:%M}"
        parts = {"hour": len({clock.hour for clock in clocks})}
    else:
        has_clock = clocks != {time(0)}
        what = "dates with times" if has_clock else "dates"
        shown = f"{first.date().isoformat()} to {last.date().isoformat()}"
        parts = {
            "year": len({day.year for day in days}),
            "month": len({day.month for day in days}),
            "weekday": len({day.weekday() for day in days}),
        }
        if has_clock:
            parts["hour"] = len({clock.hour for clock in clocks})
    made = ", ".join(f"{part} ({n} of them)" for part, n in parts.items() if n > 1) or "a part"
    return Times(
        (*ordered, *rest),
        f"{what}, {shown}, {len(ordered)} distinct",
        f"to use a part of them, write it into a column of its own: {made}",
    )
