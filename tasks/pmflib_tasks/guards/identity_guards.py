"""Guards of identity: whether samples return, rows are new, and answers agree as on earlier nights.

Each log is compared with its own past, whether its samples never return, every night repeats all earlier ones, or it
grows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.display.summary import percent
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.guards.findings import Measurement
from pmflib_tasks.guards.row_guards import (
    LEAST_ROWS_OF_TWINS,
    LEAST_SIBLINGS,
    MAD_TO_DEVIATION,
    SPREAD_FACTOR,
    Changes,
    bound_share,
)

NIGHTS_KEPT = 60
"""Number of earlier nights that are kept: usual values may change with the seasons."""
LEAST_COMPARED = 10
"""Minimum number of samples or rows of a night behind a share."""
CHANCE_OF_TWINS = 1e-9
"""Probability below which two files do not have equal level counts by chance."""
LENGTH_SLACK = 1
"""Characters by which identifiers may be longer or shorter than any earlier one: numbers grow by a digit."""
LEAST_NIGHTS, RECENT_NIGHTS, LATEST_NIGHTS = 10, 20, 7
"""Earlier nights behind a comparison of dependence: the minimum number, those that estimate its variation between
nights, and those that estimate its level, which rises while a log is young."""
YOUNG_NIGHTS, YOUNG_SPREAD = 2, 0.1
"""Minimum number of earlier nights of a young pipeline behind the comparison of a share, and the difference of shares
that counts as variation between its nights."""
LEAST_DEVIATION = 1e-3
"""Lower bound of the standard deviation of the dependence between nights, nats: smaller differences do not matter."""


@dataclass(frozen=True)
class Night:
    """Statistics of the new files of one night.

    Parameters
    ----------
    samples, known
        Samples with rows in new files, and the number of them with rows in earlier files.
    rows, repeated, agreeing
        Encoded rows of new files; the number of them that other files repeat; and the number of these that agree.
    dependence
        Dependence of pairs of new answers, from `pmflib_tasks.guards.drift.measure_dependence`; None if it was not
        measured.
    """

    samples: int = 0
    known: int = 0
    rows: int = 0
    repeated: int = 0
    agreeing: int = 0
    dependence: float | None = None


def is_young(history: Sequence[Night]) -> bool:
    """Whether earlier nights are too few to know how the dependence of answers varies between nights."""
    return sum(each.dependence is not None for each in history) < LEAST_NIGHTS


def measure_night(night: Night, history: Sequence[Night]) -> list[Measurement]:
    """Compare a night with earlier nights: ``known_samples``, ``fresh_rows``, ``agreement``, ``joint_agreement``.

    Parameters
    ----------
    night
        The night of the new files.
    history
        Earlier nights in order; fewer than `LEAST_SIBLINGS` cannot be compared with.
    """
    known = [(each.known, each.samples) for each in [*history, night]]
    fresh = [(each.rows - each.repeated, each.rows) for each in [*history, night]]
    agreeing = [(each.agreeing, each.repeated) for each in [*history, night]]
    says_nothing = night.repeated == night.rows and night.agreeing == night.repeated
    return [
        _measure_shares("known_samples", "{:,} of {:,} samples of new files are known", known),
        _measure_shares(
            "fresh_rows",
            "{:,} of {:,} rows of new files are repeated by no other file",
            fresh,
            says_nothing=says_nothing,
        ),
        _measure_shares(
            "agreement", "{:,} of {:,} rows that other files repeat agree with them", agreeing
        ),
        _compare_dependence(night, history),
    ]


def _measure_shares(
    guard: str, text: str, counts: Sequence[tuple[int, int]], *, says_nothing: bool = False
) -> Measurement:
    """Compare the share of the last night with the shares of earlier nights.

    Parameters
    ----------
    guard, text
        The guard, and its sentence with placeholders for the two counts.
    counts
        Part and total of each night, this night last.
    says_nothing
        Whether the night only repeats earlier rows, which is unusual whatever the history.
    """
    (part, total), before = counts[-1], counts[:-1]
    said = text.format(part, total)
    if total < LEAST_COMPARED:
        return Measurement(guard, "all new files", None, f"{said}: too few to compare")
    before = [each for each in before if each[1] >= LEAST_COMPARED]
    shares = np.array([one / whole for one, whole in before], np.float64)
    if says_nothing and shares.size < LEAST_SIBLINGS:
        shares = np.ones(LEAST_SIBLINGS)
        said += ", and all agree with earlier rows"
    if shares.size < YOUNG_NIGHTS:
        few = f"{shares.size} earlier nights, at least {YOUNG_NIGHTS} are needed"
        return Measurement(guard, "all new files", None, f"{said}: {few}")
    # upper confidence bound of the share of the night
    most = 1 - bound_share(total - part, total)
    if shares.size < LEAST_SIBLINGS:
        # the spread of a few nights is hardly known: the night is compared with the lowest of them
        usual = float(shares.min())
        measured = usual / most
        if guard == "agreement":
            measured = max(usual - YOUNG_SPREAD - most, 0.0)
        said += f", against at least {percent(usual)} in {shares.size} earlier nights"
        return Measurement(guard, "all new files", measured, said)
    usual = float(np.median(shares))
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(shares - usual)))
    if guard == "agreement":
        # the bound accounts for sampling error already
        chance = usual * (1 - usual) * float(np.mean([1 / whole for _, whole in before]))
        spread = math.sqrt(max(spread**2 - chance, 0.0))
        measured = max(usual - SPREAD_FACTOR * spread - most, 0.0)
    else:
        measured = (usual - SPREAD_FACTOR * min(spread, usual / 6)) / most
    said += f", against {percent(usual)} in the median of {shares.size} earlier nights"
    return Measurement(guard, "all new files", measured, said)


def _compare_dependence(night: Night, history: Sequence[Night]) -> Measurement:
    """Compare the dependence of new answers with that of earlier nights."""
    guard, subject = "joint_agreement", "new samples"
    known = [each.dependence for each in history if each.dependence is not None]
    if night.dependence is None:
        return Measurement(guard, subject, None, "too few pairs of new answers to compare")
    said = f"pairs of new answers have a mean mutual information of {night.dependence:.3f} nats"
    if len(known) < LEAST_NIGHTS:
        few = f"{len(known)} earlier nights, at least {LEAST_NIGHTS} are needed"
        return Measurement(guard, subject, None, f"{said}: {few}")
    usual = float(np.median(known[-LATEST_NIGHTS:]))
    # from differences, because a trend is no variation
    steps = np.abs(np.diff(known[-RECENT_NIGHTS:]))
    deviation = max(float(steps.mean()) * np.sqrt(np.pi) / 2, LEAST_DEVIATION)
    measured = max((usual - night.dependence) / deviation, 0.0)
    said += f", {measured:.1f} standard deviations below {usual:.3f} on earlier nights"
    return Measurement(guard, subject, measured, said)


def measure_forms(changes: Changes, last: Sequence[FileAccount]) -> Iterator[Measurement]:
    """Compare the forms of the identifiers of new files with those of files of the last run: see `compare_forms`."""
    new = {change.subject: change.file.forms for change in changes.new}
    return compare_forms(new, [file.forms for file in last])


def compare_forms(
    new: Mapping[str, Mapping[str, int]], last: Sequence[Mapping[str, int]]
) -> Iterator[Measurement]:
    """Measure how many identifiers of new files have an alphabet or a length that no earlier file had.

    Parameters
    ----------
    new
        For each subject, rows by form of their identifier: see `pmflib.ingest.dataset.identifiers.count_forms`.
    last
        The same for each earlier file; empty for sources without identifiers.

    Yields
    ------
    Measurements of the guard ``identifier_form``: for each subject the lower bound of the share of its rows whose
    identifiers have a new form, minus the largest such share of an earlier file. None for sources without identifiers.
    """
    known = [Counter(forms) for forms in last if forms]
    if not known:
        return
    total = sum(known, Counter[str]())
    usual = 0.0
    if len(known) >= LEAST_SIBLINGS:
        usual = max(_find_strange(each, total - each)[1] for each in known)
    for subject, forms in new.items():
        if not forms:
            continue
        strange, share = _find_strange(forms, total)
        n_rows = sum(forms.values())
        said = f"{subject}: {strange.total():,} of {n_rows:,} rows have identifiers of a new form"
        if strange:
            shown, before = (
                ", ".join(sorted(each, key=lambda form: -each[form])[:3])
                for each in (strange, total)
            )
            said += f": {shown}; earlier forms: {before}"
        yield Measurement("identifier_form", subject, max(share - usual, 0.0), said)


def measure_respelled(found: Sequence[Sequence[str]], total: int, subject: str) -> Measurement:
    """Measure the share of identifiers that others equal as numbers: guard ``identifier_spelling``.

    Parameters
    ----------
    found
        Spellings of each number, from `pmflib.ingest.dataset.identifiers.find_respelled`. A finding shows their
        pattern, as it must not name people.
    total
        Number of distinct identifiers.
    subject
        The identifiers.
    """
    n_alike = sum(map(len, found))
    said = f"{n_alike:,} {subject} are numbers that others spell differently"
    if found:
        digits = min(len(each.partition(".")[0]) for each in found[0])
        one, other = sorted(_mask(each, digits) for each in found[0])[:2]
        said += f", such as {one!r} and {other!r} (9 for any digit)"
    return Measurement("identifier_spelling", subject, n_alike / max(total, 1), said)


def _mask(text: str, n_digits: int) -> str:
    whole, point, rest = text.partition(".")
    return whole[:-n_digits] + "9" * n_digits + point + rest


def _find_strange(forms: Mapping[str, int], known: Mapping[str, int]) -> tuple[Counter[str], float]:
    """Find the rows with unknown forms, and the lower bound of their share."""
    lengths: dict[str, tuple[int, int]] = {}
    for form in known:
        alphabet, _, length = form.rpartition(" ")
        least, most = lengths.get(alphabet, (int(length), int(length)))
        lengths[alphabet] = min(least, int(length)), max(most, int(length))
    strange: Counter[str] = Counter()
    for form, count in forms.items():
        alphabet, _, length = form.rpartition(" ")
        least, most = lengths.get(alphabet, (0, -LENGTH_SLACK - 1))
        if not least - LENGTH_SLACK <= int(length) <= most + LENGTH_SLACK:
            strange[form] = count
    return strange, bound_share(strange.total(), sum(forms.values()))


def find_twins(files: Sequence[FileAccount], changes: Changes) -> list[Measurement]:
    """Find new files with the level counts of another file that has other bytes: the same rows once more.

    Parameters
    ----------
    files
        All files.
    changes
        New files.

    Returns
    -------
    Measurements of the guard ``same_answers``: one for each new file that has a twin, or one for all files.
    """
    first: dict[bytes, FileAccount] = {}
    new = {change.file.name for change in changes.new}
    for file in sorted(files, key=lambda each: each.name in new):
        first.setdefault(file.level_counts.tobytes(), file)
    found = []
    for change in changes.new:
        # the account of a file that has grown covers the added rows only
        whole = next(file for file in files if file.name == change.file.name)
        twin = first[whole.level_counts.tobytes()]
        n_rows = whole.rows.rows_encoded
        if twin.digest == whole.digest or n_rows < LEAST_ROWS_OF_TWINS:
            continue
        if len(files) * _find_chance(whole.level_counts) < CHANCE_OF_TWINS:
            sentence = (
                f"{whole.name}: its {n_rows:,} rows have the same level counts as those of {twin.name}: the same rows "
                "under other identifiers, or in another order?"
            )
            found.append(Measurement("same_answers", whole.name, 1, sentence))
    sentence = "no new file has the level counts of another file"
    return found or [Measurement("same_answers", "all files", 0, sentence)]


def _find_chance(counts: IntArray) -> float:
    """Approximate the probability that another file with as many rows from the same distribution has the same counts.

    Counts are nearly normal; two of variance v are equal with probability 1 / sqrt(4 pi v).
    """
    filled = counts[counts > 0].astype(np.float64)
    # the last level of a variable follows from the others: counting half of the levels is conservative
    return float(np.exp(-0.25 * np.log(np.maximum(4 * np.pi * filled, 1.0)).sum()))
