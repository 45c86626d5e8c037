"""Drift: whether new rows have the distributions of those that the live model was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.config import QualityConfig
from pmflib.level_blocks import sum_blocks
from pmflib.quality.families import Family, list_families
from pmflib.quality.findings import Finding, abstain, judge, write_share
from pmflib.quality.homogeneity import (
    Comparison,
    compare_counts,
    estimate_correlation,
    estimate_design_effect,
)
from pmflib.quality.row_guards import LEAST_SIBLINGS, FileAccount, FileChange
from pmflib.schema import Schema

MOST_LISTED = 50
"""Drifts of one guard that are listed one by one, the largest first; the others are counted."""


@dataclass(frozen=True, eq=False)
class DriftTests:
    """DriftTests of one guard, with a name for each.

    Parameters
    ----------
    guard
        Guard that they belong to.
    name
        Function of the place of a test: what it is about, for a person.
    comparison
        Their outcome.
    """

    guard: str
    name: Callable[[int], str]
    comparison: Comparison


@dataclass(frozen=True, eq=False)
class LiveData:
    """Data that the live model was made from.

    Parameters
    ----------
    files
        Their files.
    fold_counts
        int64 of shape (n_folds, n_levels): samples of each fold that hold each level.
    """

    files: Sequence[FileAccount]
    fold_counts: IntArray
    counts: IntArray = field(init=False)
    rows: IntArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", np.stack([each.level_counts for each in self.files]))
        rows = np.array([each.rows_encoded for each in self.files], np.int64)
        object.__setattr__(self, "rows", rows)


def compare_files(
    schema: Schema, layout: str, live: LiveData, changes: Sequence[FileChange]
) -> list[DriftTests]:
    """Compare the levels of each new file, and of all new files together, with those of the live model's files.

    Parameters
    ----------
    schema
        Variables and levels of both.
    layout
        Layout of the sources: "wide" or "long".
    live
        Data of the live model.
    changes
        New files.

    Returns
    -------
    Tests, by family and file.

    Notes
    -----
    Design effects are the larger of two. Between folds: a sample that answers many variables of one scale is a cluster.
    Between files, where there are `LEAST_SIBLINGS` at least: what they have differed by so far, beyond chance.
    """
    subjects = [(change.subject, [change.file]) for change in changes if change.file.rows_encoded]
    if len(subjects) > 1:
        subjects.append((f"all {len(subjects)} new files", [f for _, (f,) in subjects]))
    tests = []
    for family in list_families(schema, layout):
        reference = family.gather(live.counts, live.rows)
        correlation = np.zeros(family.offsets.size - 1)
        if len(live.files) >= LEAST_SIBLINGS:
            correlation = estimate_correlation(reference, family.offsets)
        effect = np.ones_like(correlation)
        if family.clustered:
            folds = family.gather(live.fold_counts)
            effect = estimate_design_effect(folds, family.offsets)
        reference_effect = np.maximum(effect, _spread(reference, family.offsets, correlation))
        for subject, files in subjects:
            rows = np.array([file.rows_encoded for file in files])
            new = family.gather(np.stack([file.level_counts for file in files]), rows)
            new_effect = np.maximum(effect, _spread(new, family.offsets, correlation))
            compared = compare_counts(
                new.sum(axis=0),
                reference.sum(axis=0),
                family.offsets,
                new_effect,
                reference_effect,
            )
            tests.append(DriftTests(family.guard, _name_in(family, subject), compared))
    return tests


def control_discoveries(tests: Sequence[DriftTests], rate: float) -> list[BoolArray]:
    """Which tests reject "no drift", with an expected share ``rate`` of chance among those of all families.

    References
    ----------
    Benjamini, Hochberg (1995), "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57.
    """
    # half a second to import
    from scipy.stats import false_discovery_control

    sizes = [each.comparison.p_value.size for each in tests]
    tested = np.concatenate([each.comparison.tested for each in tests])
    p_values = np.concatenate([each.comparison.p_value for each in tests])
    rejected = np.zeros(tested.size, np.bool_)
    if tested.any():
        rejected[tested] = false_discovery_control(p_values[tested]) <= rate
    return np.split(rejected, np.cumsum(sizes)[:-1])


def judge_drift(tests: Sequence[DriftTests], config: QualityConfig) -> list[Finding]:
    """Findings of all tests: each drift that crosses a limit, and a finding per guard for all that passed.

    A drift needs both: it is no chance, by the rate of false discoveries, and its index is beyond the limit even at its
    lower bound. Chance alone never fires, nor does a large sample with a drift too small to matter.
    """
    if not tests:
        return []
    findings = []
    rejected = control_discoveries(tests, config.false_discoveries)
    for guard in dict.fromkeys(each.guard for each in tests):
        limits = getattr(config, guard)
        mine = [(t, r) for t, r in zip(tests, rejected, strict=True) if t.guard == guard]
        crossed: list[Finding] = []
        n_tested, n_passed, largest = 0, 0, 0.0
        first = min((x for x in (limits.warn, limits.stop) if x != "off"), default=np.inf)
        for each, drifted in mine:
            least = each.comparison.least_index
            n_tested += int(each.comparison.tested.sum())
            beyond = drifted & (least > first)
            for place in np.flatnonzero(beyond).tolist():
                name = each.name(place)
                sentence = _describe(name, each.comparison, place)
                crossed.append(judge(guard, name, float(least[place]), limits, sentence))
            passed = least[each.comparison.tested & ~beyond]
            n_passed += passed.size
            largest = max(largest, float(passed.max(initial=0.0)))
        crossed.sort(key=lambda finding: -(finding.measured or 0.0))
        findings += crossed[:MOST_LISTED]
        if not n_tested:
            findings.append(abstain(guard, "all tests", "too few rows to compare"))
            continue
        sentence = f"{n_passed:,} of {n_tested:,} comparisons within the limits"
        if len(crossed) > MOST_LISTED:
            sentence += f"; {len(crossed) - MOST_LISTED:,} drifts more than are listed"
        measured = min(largest, first)
        findings.append(judge(guard, "all other tests", measured, limits, sentence))
    return findings


def _spread(groups: IntArray, offsets: IntArray, correlation: FloatArray) -> FloatArray:
    """Design effect of the total over groups whose observations are correlated within them."""
    sizes = sum_blocks(groups, offsets, axis=1).astype(np.float64)
    typical = (sizes**2).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1)
    effect: FloatArray = 1 + np.maximum(typical - 1, 0) * correlation
    return effect


def _name_in(family: Family, subject: str) -> Callable[[int], str]:
    return lambda place: f"{family.names[place]} in {subject}"


def _describe(name: str, found: Comparison, place: int) -> str:
    moved = write_share(found.total_variation[place])
    n_new, n_live = int(found.n_new[place]), int(found.n_reference[place])
    return (
        f"{name}: stability index {found.stability_index[place]:.2f}, at least {found.least_index[place]:.2f} beyond "
        f"chance; {moved} of {n_new:,} moved, against {n_live:,} of the live model's data"
    )
