"""Whether a table is a long log, a row for each answer: two of its columns come together once at most."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.schema.drafting.column_meaning import find_times, split_name

MOST_COLUMNS = 6
"""Columns of a long log, at most: identifier, variable, value, time, and what is passed over."""
ROWS_READ = 200_000
"""Rows that are looked at, at most."""
LEAST_REPEATS = 20.0
"""Pairs of rows alike in two columns that chance would make, from which it says something that there are few."""
MOST_REPEATED = 0.2
"""Share of those that there may be: answers given twice."""
LEAST_SAMPLES = 10
"""Distinct values of the column that identifies the samples, at least."""
LEAST_ANSWERS = 1.5
"""Rows for each sample and for each variable, on average, at least: what never repeats identifies rows."""
MOST_VALUES = 100
"""Distinct values of the column of answers, at most, where they are not less than one in ten rows."""

_SAMPLE_WORDS = frozenset(
    "user users person patient student pupil respondent customer client subject session household member voter "
    "task item document tweet image".split()
)
_VARIABLE_WORDS = frozenset(
    "item movie product question variable code test lab exam worker rater coder attribute feature".split()
)


@dataclass(frozen=True)
class LongShape:
    """Columns of a long log.

    Parameters
    ----------
    sample, variable, value
        Column that identifies the sample, that names the variable, and that holds the answer.
    time
        Column that orders answers; None where there is none.
    reason
        Why the table looks like one.
    """

    sample: str
    variable: str
    value: str
    time: str | None
    reason: str

    @property
    def flags(self) -> str:
        """Options of `pmf infer`."""
        named = {"sample": self.sample, "variable": self.variable, "value": self.value}
        named |= {"time": self.time} if self.time else {}
        return " ".join(f"--{option} {shlex.quote(name)}" for option, name in named.items())


def find_long_log(sources: Sequence[Source], config: SourceOptions) -> LongShape | None:
    """Find out whether raw files that are read as a wide table are a long log.

    Parameters
    ----------
    sources
        The files, at least one; the first ``ROWS_READ`` rows of the first are looked at.
    config
        How they are read.

    Returns
    -------
    The columns; None where there are fewer than three or more than `MOST_COLUMNS`, where none is left for answers, or
    where no two columns come together more rarely than by chance: independent columns with these frequencies would
    make `LEAST_REPEATS` pairs of rows alike in both or more, and there are at most `MOST_REPEATED` of these.

    Raises
    ------
    SourceError
        If the first file cannot be read.
    """
    names = read_columns(sources[0], config)
    if not 3 <= len(names) <= MOST_COLUMNS:
        return None
    parts: list[list[list[str]]] = []
    n_rows = 0
    for raw in read_rows(sources[0], config, names):
        columns = (raw.batch.column(name).to_pylist() for name in names)
        parts.append([[_as_key(value) for value in column] for column in columns])
        n_rows += raw.batch.num_rows
        if n_rows >= ROWS_READ:
            break
    if not n_rows:
        return None
    values = [[text for part in parts for text in part[index]] for index in range(len(names))]
    texts, codes = zip(*(np.unique(column, return_inverse=True) for column in values), strict=True)
    return _find_shape(names, [each.tolist() for each in texts], list(codes))


def _as_key(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _find_shape(
    names: Sequence[str], texts: Sequence[Sequence[str]], codes: Sequence[IntArray]
) -> LongShape | None:
    n_rows = len(codes[0])
    times = {
        index: found
        for index, (name, each) in enumerate(zip(names, texts, strict=True))
        if (found := find_times(name, dict.fromkeys(each, 1))) is not None
    }
    best: tuple[float, int, int] = (0.0, -1, -1)
    for first, second in combinations([n for n in range(len(names)) if n not in times], 2):
        sizes = len(texts[first]), len(texts[second])
        if max(sizes) < LEAST_SAMPLES or LEAST_ANSWERS * max(sizes) > n_rows:
            continue
        expected, repeated = _count_repeats(codes[first], codes[second])
        if expected >= LEAST_REPEATS and repeated <= MOST_REPEATED * expected:
            best = max(best, (expected, first, second))
    expected, first, second = best
    left = [
        index
        for index in range(len(names))
        if index not in (first, second, *times)
        and 2 <= len(texts[index]) <= max(MOST_VALUES, n_rows // 10)
    ]
    if first < 0 or not left:
        return None
    value = min(left, key=lambda index: len(texts[index]))
    sample, variable = _choose_sample(first, second, dict(enumerate(names)), len(texts[first]))
    taken = (first, second, value)
    guessed = _guess_times(texts, n_rows, times)
    time = next((index for index in guessed if index not in taken), None)
    return LongShape(
        names[sample],
        names[variable],
        names[value],
        None if time is None else names[time],
        f"it looks like a long log: {names[sample]} and {names[variable]} repeat, but hardly ever together, where "
        f"chance would make {expected:,.0f} pairs of rows alike in both",
    )


def _count_repeats(first: IntArray, second: IntArray) -> tuple[float, int]:
    """Pairs of rows alike in two columns: how many chance would make if the columns were independent, and there are."""
    n_rows = len(first)
    alike = [float(np.square(np.bincount(each) / n_rows).sum()) for each in (first, second)]
    both = first.astype(np.int64) * (int(second.max()) + 1) + second
    times = np.unique(both, return_counts=True)[1]
    return n_rows * (n_rows - 1) / 2 * alike[0] * alike[1], int((times * (times - 1) // 2).sum())


def _choose_sample(
    first: int, second: int, names: Mapping[int, str], n_first: int
) -> tuple[int, int]:
    """Which of two columns identifies the sample: by their names, else the first one."""
    words = {index: set(split_name(names[index])) for index in (first, second)}
    points = {
        index: 2 * bool(words[index] & _SAMPLE_WORDS) - bool(words[index] & _VARIABLE_WORDS)
        for index in (first, second)
    }
    if points[second] > points[first] or n_first < LEAST_SAMPLES:
        return second, first
    return first, second


def _guess_times(
    texts: Sequence[Sequence[str]], n_rows: int, times: Mapping[int, object]
) -> list[int]:
    """Columns that may order answers: times, and seconds since 1970 in a column without a name."""
    found = list(times)
    for index, each in enumerate(texts):
        is_seconds = find_times("timestamp", dict.fromkeys(each, 1)) is not None
        if index not in times and is_seconds and len(each) > n_rows // 100:
            found.append(index)
    return found
