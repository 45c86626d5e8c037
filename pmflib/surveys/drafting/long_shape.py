"""Detect long logs, whose rows are answers, and tables with several rows of a person, one for each wave."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.surveys.drafting.column_meaning import find_times, split_name

MOST_COLUMNS = 6
"""Largest number of columns of a long log: identifier, variable, value, time and a few others."""
ROWS_READ = 200_000
"""Largest number of rows that are read."""
LEAST_REPEATS = 20.0
"""Least number of repeated pairs expected by chance for their absence to be evidence."""
MOST_REPEATED = 0.2
"""Largest tolerated share of these, for answers given twice."""
LEAST_SAMPLES = 10
"""Least number of distinct samples."""
LEAST_ANSWERS = 1.5
"""Least average number of rows per sample and per variable: a column that never repeats identifies rows."""
MOST_WAVES = 30
"""Largest number of distinct waves."""
DUPLICATES = 0.1
"""Rows beyond one for each sample, relative to the samples, up to which they are duplicates, not waves; not tuned."""
WAVE_CELLS = 2_000_000
"""Number of cells that are read to find the column of waves."""
MOST_VALUES = 100
"""Largest number of distinct answers, unless there are ten times as many rows."""

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
        Columns of samples, variables and answers.
    time
        Column that orders answers; None if there is none.
    reason
        Evidence that the table is a long log.
    """

    sample: str
    variable: str
    value: str
    time: str | None
    reason: str

    @property
    def flags(self) -> str:
        """Corresponding options of `pmf infer`."""
        named = {"sample": self.sample, "variable": self.variable, "value": self.value}
        named |= {"time": self.time} if self.time else {}
        return " ".join(f"--{option} {shlex.quote(name)}" for option, name in named.items())


def find_long_log(sources: Sequence[Source], config: SourceOptions) -> LongShape | None:
    """Detect whether raw files that are read as wide tables are long logs.

    Parameters
    ----------
    sources
        The files, at least one; the first ``ROWS_READ`` rows of the first are read.
    config
        How they are read.

    Returns
    -------
    The columns of the long log. None if there are fewer than three or more than `MOST_COLUMNS` columns, no column is
    left for answers, or no two columns are repeated together less often than by chance: independent columns with
    their frequencies would give at least `LEAST_REPEATS` repeated pairs, and at most a share `MOST_REPEATED` of these
    exist.

    Raises
    ------
    SourceError
        If the first file cannot be read.
    """
    names = [name for name in read_columns(sources[0], config) if name]
    if not 3 <= len(names) <= MOST_COLUMNS:
        return None
    texts, codes = _read_distinct(sources[0], config, names)
    return _find_shape(names, texts, codes) if len(codes[0]) else None


def note_waves(
    sources: Sequence[Source], config: SourceOptions, shape: LongShape | None
) -> str | None:
    """Note that samples have several rows, and which column tells these apart.

    Parameters
    ----------
    sources, config
        Wide files, as for `find_long_log`.
    shape
        What `find_long_log` has found; its samples are taken if no column of samples was given.

    Returns
    -------
    The note, with the ways out; None if samples have one row but for duplicates, or no column of samples is known.
    """
    sample = config.sample if shape is None else shape.sample
    if sample is None:
        return None
    names = [name for name in read_columns(sources[0], config) if name]
    if sample not in names:
        return None
    (known,), (rows,) = _read_distinct(sources[0], config, [sample])
    if len(rows) <= (1 + DUPLICATES) * len(known):
        return None
    texts, codes = _read_distinct(sources[0], config, names, WAVE_CELLS // len(names))
    place = names.index(sample)
    others = [n for n, each in enumerate(texts) if n != place and 1 < len(each) <= MOST_WAVES]
    waves = [n for n in others if not _count_repeats(codes[place], codes[n])[1]]
    # a long log has one column of answers
    if shape is not None and (not waves or len(others) < 3):
        return None
    note = f"{sample}: {len(known):,} samples in {len(rows):,} rows"
    wide = ""
    if waves and len(texts[place]) < len(codes[place]):
        wave = min(waves, key=lambda n: len(texts[n]))
        note += f", whose rows {names[wave]!r} tells apart ({len(texts[wave])} values)"
        wide = f", write a column for each variable and {names[wave]} (pandas.pivot), or"
    note += (
        f"; with --sample {shlex.quote(sample)} the last row of each is kept, or the first (on_duplicate), and the "
        f"others go to quarantine; to use all rows{wide} leave --sample out: the rows of a sample then count as "
        "independent"
    )
    return note if shape is None else f"{note}; if a row is one answer: pmf infer ... {shape.flags}"


def _read_distinct(
    source: Source, config: SourceOptions, names: Sequence[str], most_rows: int = ROWS_READ
) -> tuple[list[list[str]], list[IntArray]]:
    """Read the first rows: distinct texts of each column, and their index in each row."""
    parts: list[list[list[str]]] = []
    n_rows = 0
    for raw in read_rows(source, config, names):
        columns = (raw.batch.column(name).to_pylist() for name in names)
        parts.append([[_as_key(value) for value in column] for column in columns])
        n_rows += raw.batch.num_rows
        if n_rows >= min(most_rows, ROWS_READ):
            break
    values = [[text for part in parts for text in part[index]] for index in range(len(names))]
    found = [np.unique(np.array(each, str), return_inverse=True) for each in values]
    return [each.tolist() for each, _ in found], [codes for _, codes in found]


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
    """Number of pairs of rows that agree in two columns: expected under independence, and observed."""
    n_rows = len(first)
    alike = [float(np.square(np.bincount(each) / n_rows).sum()) for each in (first, second)]
    both = first.astype(np.int64) * (int(second.max()) + 1) + second
    times = np.unique(both, return_counts=True)[1]
    return n_rows * (n_rows - 1) / 2 * alike[0] * alike[1], int((times * (times - 1) // 2).sum())


def _choose_sample(
    first: int, second: int, names: Mapping[int, str], n_first: int
) -> tuple[int, int]:
    """Decide which of two columns identifies the sample: by their names, or the first."""
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
    """Columns that may order answers: times, or seconds since 1970 in a column with any name."""
    found = list(times)
    for index, each in enumerate(texts):
        is_seconds = find_times("timestamp", dict.fromkeys(each, 1)) is not None
        if index not in times and is_seconds and len(each) > n_rows // 100:
            found.append(index)
    return found
