"""Guards of identity: whose the rows of a night are, whether they say anything new, and what they are usually like.

What is usual is known of the nights before: a log whose people never return, one whose every night repeats all earlier
ones, and one that grows are each compared with themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.findings import Finding, abstain, assess, write_share
from pmflib_tasks.guards.row_guards import (
    LEAST_ROWS_OF_TWINS,
    LEAST_SIBLINGS,
    MAD_TO_DEVIATION,
    SPREAD_FACTOR,
    Changes,
    bound_share,
)

NIGHTS_KEPT = 60
"""Nights that are remembered: what is usual may change with the seasons of a log."""
LEAST_COMPARED = 10
"""Samples, or rows, of a night that a share of them is judged by, at least: bounds say what so few leave open."""
CHANCE_OF_TWINS = 1e-9
"""Probability below which two files do not hold each level equally often by chance."""
LENGTH_SLACK = 1
"""Characters by which identifiers may be longer or shorter than any before: numbers grow by a digit."""
LEAST_NIGHTS, RECENT_NIGHTS, LATEST_NIGHTS = 10, 20, 7
"""Nights before that a fall of dependence is judged by at least; those that say how much it varies from night to night,
and those that say where it is: it rises while a young log learns its pairs."""
LEAST_DEVIATION = 1e-3
"""Standard deviation of the dependence of nights, nats, at least: smaller differences do not matter."""


@dataclass(frozen=True)
class Night:
    """What the new files of one night were like.

    Parameters
    ----------
    samples, known
        Samples with rows in new files, and those of them that had rows in files before.
    rows, repeated, agreeing
        Rows of new files that were encoded; those of them about what other files hold as well; and those of these that
        say the same.
    dependence
        How far pairs of new answers hang together as those before did: see
        `pmflib_tasks.guards.drift.measure_dependence`; None where that was not measured.
    """

    samples: int = 0
    known: int = 0
    rows: int = 0
    repeated: int = 0
    agreeing: int = 0
    dependence: float | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Night:
        """Build a night from what `to_json` gives."""
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def check_night(night: Night, history: Sequence[Night], config: QualityConfig) -> list[Finding]:
    """Compare a night with those before.

    Parameters
    ----------
    night
        What its new files were like.
    history
        The same of earlier nights, the last one last; fewer than `LEAST_SIBLINGS` say nothing of what is usual.
    config
        Limits.

    Returns
    -------
    Findings, also those that passed: ``known_samples``, ``fresh_rows``, ``agreement`` and ``joint_agreement``.
    """
    return [
        _check_known(night, history, config),
        _check_fresh(night, history, config),
        _check_agreement(night, history, config),
        _check_dependence(night, history, config),
    ]


def _check_known(night: Night, history: Sequence[Night], config: QualityConfig) -> Finding:
    what = f"{night.known:,} of {night.samples:,} samples of new files were there before"
    if night.samples < LEAST_COMPARED:
        return abstain("known_samples", "all new files", f"{what}: too few to compare")
    shares = _list_shares([(each.known, each.samples) for each in history])
    factor = _find_shortfall(night.known, night.samples, shares)
    return _conclude("known_samples", what, factor, shares, config)


def _check_fresh(night: Night, history: Sequence[Night], config: QualityConfig) -> Finding:
    fresh = night.rows - night.repeated
    what = f"{fresh:,} of {night.rows:,} rows of new files are about what no other file holds"
    if night.rows < LEAST_COMPARED:
        return abstain("fresh_rows", "all new files", f"{what}: too few to compare")
    shares = _list_shares([(each.rows - each.repeated, each.rows) for each in history])
    if not fresh and night.agreeing == night.repeated and shares.size < LEAST_SIBLINGS:
        # a night that says nothing new is not usual anywhere
        shares = np.ones(LEAST_SIBLINGS)
        what += ", and all say what was there"
    return _conclude("fresh_rows", what, _find_shortfall(fresh, night.rows, shares), shares, config)


def _check_agreement(night: Night, history: Sequence[Night], config: QualityConfig) -> Finding:
    what = f"{night.agreeing:,} of {night.repeated:,} rows about what other files hold as well say the same"
    if night.repeated < LEAST_COMPARED:
        return abstain("agreement", "all new files", f"{what}: too few to compare")
    counts = [(each.agreeing, each.repeated) for each in history]
    shares = _list_shares(counts)
    lost = None
    if shares.size >= LEAST_SIBLINGS:
        most = 1 - bound_share(night.repeated - night.agreeing, night.repeated)
        usual = float(np.median(shares))
        # what so few rows differ by from night to night anyhow is in the bound already
        sizes = np.array([total for _, total in counts if total >= LEAST_COMPARED])
        chance = usual * (1 - usual) * float(np.mean(1 / sizes))
        spread = np.sqrt(max(_find_spread(shares) ** 2 - chance, 0.0))
        lost = max(usual - SPREAD_FACTOR * float(spread) - most, 0.0)
    return _conclude("agreement", what, lost, shares, config)


def _check_dependence(night: Night, history: Sequence[Night], config: QualityConfig) -> Finding:
    guard, subject = "joint_agreement", "new samples"
    known = [each.dependence for each in history if each.dependence is not None]
    if night.dependence is None:
        return abstain(guard, subject, "too few pairs of new answers to compare")
    what = f"pairs of new answers hang together as those before by {night.dependence:.3f} nats"
    if len(known) < LEAST_NIGHTS:
        return abstain(guard, subject, f"{what}: {_say_few(len(known), LEAST_NIGHTS)}")
    usual = float(np.median(known[-LATEST_NIGHTS:]))
    # of differences, for a level that rises is no spread
    steps = np.abs(np.diff(known[-RECENT_NIGHTS:]))
    deviation = max(float(steps.mean()) * np.sqrt(np.pi) / 2, LEAST_DEVIATION)
    measured = max((usual - night.dependence) / deviation, 0.0)
    sentence = (
        f"{what}, after {usual:.3f} on the nights before, {measured:.1f} standard deviations less"
    )
    return assess(guard, subject, measured, config.joint_agreement, sentence)


def _list_shares(counts: Sequence[tuple[int, int]]) -> FloatArray:
    """Shares of the nights that have enough samples or rows."""
    return np.array([part / total for part, total in counts if total >= LEAST_COMPARED], np.float64)


def _find_spread(values: FloatArray) -> float:
    """Robust standard deviation."""
    return MAD_TO_DEVIATION * float(np.median(np.abs(values - np.median(values))))


def _find_shortfall(part: int, total: int, shares: FloatArray) -> float | None:
    """Factor by which a share is less than usual, beyond chance and what nights differ by; None where that is unknown.

    The share is the largest one that its numbers leave open, what is usual the median less what nights differ by.
    """
    if shares.size < LEAST_SIBLINGS:
        return None
    most = 1 - bound_share(total - part, total)
    usual = float(
        np.median(shares) - SPREAD_FACTOR * min(_find_spread(shares), np.median(shares) / 6)
    )
    return usual / most


def _conclude(
    guard: str, what: str, measured: float | None, shares: FloatArray, config: QualityConfig
) -> Finding:
    if measured is None:
        return abstain(guard, "all new files", f"{what}: {_say_few(shares.size)}")
    sentence = f"{what}, after {write_share(float(np.median(shares)))} on {shares.size} nights before in the median"
    return assess(guard, "all new files", measured, getattr(config, guard), sentence)


def _say_few(n_nights: int, least: int = LEAST_SIBLINGS) -> str:
    return f"{n_nights} nights before were compared, {least} say what is usual"


def check_forms(
    changes: Changes, last: Sequence[FileAccount], config: QualityConfig
) -> list[Finding]:
    """Assess what identifiers of new files look like: alphabets, and lengths.

    Parameters
    ----------
    changes
        New files.
    last
        Files of the last run.
    config
        Limits.

    Returns
    -------
    Findings of the guard ``identifier_form``: for each new file the share of its rows whose identifiers are of no form
    that a file before had, as little as chance leaves open, less the largest such share of a file before. None of
    sources without identifiers.
    """
    known = [file.forms for file in last if file.forms]
    if not known:
        return []
    usual = 0.0
    if len(known) >= LEAST_SIBLINGS:
        total = sum(map(Counter, known), Counter[str]())
        usual = max(_find_strange(each, total - Counter(each))[1] for each in known)
    findings = []
    for change in changes.new:
        forms = change.file.forms
        if not forms:
            continue
        strange, share = _find_strange(forms, sum(map(Counter, known), Counter[str]()))
        shown = ", ".join(sorted(strange, key=lambda form: -strange[form])[:3])
        n_rows = sum(forms.values())
        sentence = (
            f"{change.subject}: {strange.total():,} of {n_rows:,} rows have identifiers of a form that none before had"
            + (f": {shown}; before: {_show_forms(known)}" if strange else "")
        )
        measured = max(share - usual, 0.0)
        findings.append(
            assess("identifier_form", change.subject, measured, config.identifier_form, sentence)
        )
    return findings


def _find_strange(forms: Mapping[str, int], known: Mapping[str, int]) -> tuple[Counter[str], float]:
    """Rows of forms that are not known, and the least share of the rows that they are."""
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


def _show_forms(known: Sequence[Mapping[str, int]]) -> str:
    total = sum(map(Counter, known), Counter[str]())
    return ", ".join(form for form, _ in total.most_common(3))


def check_twins(
    files: Sequence[FileAccount], changes: Changes, config: QualityConfig
) -> list[Finding]:
    """Assess whether a new file holds each level as often as another file of other bytes: the same rows once more.

    Parameters
    ----------
    files
        All files.
    changes
        New files.
    config
        Limits.

    Returns
    -------
    Findings of the guard ``same_answers``: a finding for each new file that has a twin, or one for all.
    """
    first: dict[bytes, FileAccount] = {}
    new = {change.file.name for change in changes.new}
    for file in sorted(files, key=lambda each: each.name in new):
        first.setdefault(file.level_counts.tobytes(), file)
    findings = []
    for change in changes.new:
        # a file that has grown holds more than another
        whole = next(file for file in files if file.name == change.file.name)
        twin = first[whole.level_counts.tobytes()]
        n_rows = whole.rows.rows_encoded
        if twin.digest == whole.digest or n_rows < LEAST_ROWS_OF_TWINS:
            continue
        if len(files) * _find_chance(whole.level_counts) < CHANCE_OF_TWINS:
            sentence = (
                f"{whole.name}: its {n_rows:,} rows hold each level as often as those of {twin.name}: the same rows "
                "under other identifiers, or in another order?"
            )
            findings.append(assess("same_answers", whole.name, 1, config.same_answers, sentence))
    if not findings:
        sentence = "no new file holds each level as often as another file"
        findings.append(assess("same_answers", "all files", 0, config.same_answers, sentence))
    return findings


def _find_chance(counts: Any) -> float:
    """Probability, about, that another file of as many rows of the same law has the same counts.

    Each count is near normal, and equals another one of variance 2 v with probability 1 / sqrt(4 pi v).
    """
    filled = counts[counts > 0].astype(np.float64)
    # the last level of a variable follows from the others: half of the levels is a safe number
    return float(np.exp(-0.25 * np.log(np.maximum(4 * np.pi * filled, 1.0)).sum()))
