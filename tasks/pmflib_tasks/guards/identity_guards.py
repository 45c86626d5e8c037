"""Guards of identity: whose the rows of a night are, whether they say anything new, and what they are usually like.

What is usual is known of the nights before: a log whose people never return, one whose every night repeats all earlier
ones, and one that grows are each compared with themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmflib.core.arrays import IntArray
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
    """Compare a night with the nights before.

    Parameters
    ----------
    night
        The night of the new files.
    history
        Earlier nights, the last one last; fewer than `LEAST_SIBLINGS` do not show what is usual.
    config
        Limits.

    Returns
    -------
    Findings, also those that passed: ``known_samples``, ``fresh_rows``, ``agreement`` and ``joint_agreement``.
    """
    known = [(each.known, each.samples) for each in [*history, night]]
    fresh = [(each.rows - each.repeated, each.rows) for each in [*history, night]]
    agreeing = [(each.agreeing, each.repeated) for each in [*history, night]]
    says_nothing = night.repeated == night.rows and night.agreeing == night.repeated
    return [
        _check_shares(
            "known_samples", "{:,} of {:,} samples of new files were there before", known, config
        ),
        _check_shares(
            "fresh_rows",
            "{:,} of {:,} rows of new files are about what no other file holds",
            fresh,
            config,
            says_nothing=says_nothing,
        ),
        _check_shares(
            "agreement",
            "{:,} of {:,} rows about what other files hold as well say the same",
            agreeing,
            config,
        ),
        _check_dependence(night, history, config),
    ]


def _check_shares(
    guard: str,
    text: str,
    counts: Sequence[tuple[int, int]],
    config: QualityConfig,
    *,
    says_nothing: bool = False,
) -> Finding:
    """Assess the share of the last night against the shares of the nights before.

    Parameters
    ----------
    guard, text
        The guard, and its sentence with places for the two counts.
    counts
        Part and total of each night, this night last.
    config
        Limits.
    says_nothing
        Whether the night repeats what was there, which is usual nowhere and needs no history.
    """
    (part, total), before = counts[-1], counts[:-1]
    said = text.format(part, total)
    if total < LEAST_COMPARED:
        return abstain(guard, "all new files", f"{said}: too few to compare")
    before = [each for each in before if each[1] >= LEAST_COMPARED]
    shares = np.array([one / whole for one, whole in before], np.float64)
    if says_nothing and shares.size < LEAST_SIBLINGS:
        shares = np.ones(LEAST_SIBLINGS)
        said += ", and all say what was there"
    if shares.size < LEAST_SIBLINGS:
        few = f"{shares.size} nights before were compared, {LEAST_SIBLINGS} say what is usual"
        return abstain(guard, "all new files", f"{said}: {few}")
    # the largest share that the counts of the night leave open
    most = 1 - bound_share(total - part, total)
    usual = float(np.median(shares))
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(shares - usual)))
    if guard == "agreement":
        # what so few rows differ by from night to night anyhow is in the bound already
        chance = usual * (1 - usual) * float(np.mean([1 / whole for _, whole in before]))
        spread = math.sqrt(max(spread**2 - chance, 0.0))
        measured = max(usual - SPREAD_FACTOR * spread - most, 0.0)
    else:
        measured = (usual - SPREAD_FACTOR * min(spread, usual / 6)) / most
    said += f", after {write_share(usual)} on {shares.size} nights before in the median"
    return assess(config, guard, "all new files", measured, said)


def _check_dependence(night: Night, history: Sequence[Night], config: QualityConfig) -> Finding:
    """Assess the dependence of new answers against the nights before."""
    guard, subject = "joint_agreement", "new samples"
    known = [each.dependence for each in history if each.dependence is not None]
    if night.dependence is None:
        return abstain(guard, subject, "too few pairs of new answers to compare")
    said = f"pairs of new answers hang together as those before by {night.dependence:.3f} nats"
    if len(known) < LEAST_NIGHTS:
        few = f"{len(known)} nights before were compared, {LEAST_NIGHTS} say what is usual"
        return abstain(guard, subject, f"{said}: {few}")
    usual = float(np.median(known[-LATEST_NIGHTS:]))
    # of differences, because a rising level is no spread
    steps = np.abs(np.diff(known[-RECENT_NIGHTS:]))
    deviation = max(float(steps.mean()) * np.sqrt(np.pi) / 2, LEAST_DEVIATION)
    measured = max((usual - night.dependence) / deviation, 0.0)
    said += f", after {usual:.3f} on the nights before, {measured:.1f} standard deviations less"
    return assess(config, guard, subject, measured, said)


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
    known = [Counter(file.forms) for file in last if file.forms]
    if not known:
        return []
    total = sum(known, Counter[str]())
    usual = 0.0
    if len(known) >= LEAST_SIBLINGS:
        usual = max(_find_strange(each, total - each)[1] for each in known)
    findings = []
    for change in changes.new:
        if not change.file.forms:
            continue
        strange, share = _find_strange(change.file.forms, total)
        n_rows = sum(change.file.forms.values())
        said = (
            f"{change.subject}: {strange.total():,} of {n_rows:,} rows have identifiers of a form that none before "
            "had"
        )
        if strange:
            shown, before = (
                ", ".join(sorted(each, key=lambda form: -each[form])[:3])
                for each in (strange, total)
            )
            said += f": {shown}; before: {before}"
        measured = max(share - usual, 0.0)
        findings.append(assess(config, "identifier_form", change.subject, measured, said))
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
            findings.append(assess(config, "same_answers", whole.name, 1, sentence))
    sentence = "no new file holds each level as often as another file"
    return findings or [assess(config, "same_answers", "all files", 0, sentence)]


def _find_chance(counts: IntArray) -> float:
    """Probability, about, that another file of as many rows of the same law has the same counts.

    Each count is near normal, and equals another one of variance 2 v with probability 1 / sqrt(4 pi v).
    """
    filled = counts[counts > 0].astype(np.float64)
    # the last level of a variable follows from the others: half of the levels is a safe number
    return float(np.exp(-0.25 * np.log(np.maximum(4 * np.pi * filled, 1.0)).sum()))
