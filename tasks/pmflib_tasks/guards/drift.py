"""Drift: whether new rows, and pairs of variables in them, are distributed as those of the live model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, sum_blocks, sum_pairs
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib.schema import Schema
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.counts import (
    HALF,
    LEAST_COUNTED,
    TILE_CELLS,
    HomogeneityTests,
    PairTables,
    carry_dependence,
    compare_counts,
    compare_dependence,
    estimate_correlation,
    estimate_design_effect,
    iterate_pairs,
)
from pmflib_tasks.guards.findings import Finding, abstain, assess, write_share
from pmflib_tasks.guards.row_guards import LEAST_SIBLINGS, FileChange

MOST_LISTED = 50
"""Drifts of one guard that are listed one by one, the largest first; the others are counted."""
MOST_TAKEN = 0.1
"""Pairs that were taken away, as a share of those that came, up to which what came is compared."""
MOST_LEVELS = 4096
"""Levels of the widest schema whose pairs are compared: four tables of 128 MiB are kept. In wider ones hardly a pair
has enough new samples."""


@dataclass(frozen=True, eq=False)
class Family:
    """A family of tests: how counts of levels become cells.

    Parameters
    ----------
    guard
        Guard that the tests belong to.
    names
        What each test is about, for a person.
    cells
        int64 of shape (n_levels,): cell that a level is counted in, -1 for none.
    offsets
        int64 of shape (n_tests + 1,): cells of each test.
    unanswered
        int64 of shape (n_tests,): cells for the rows that answer nothing; None where these are not counted.
    clustered
        Whether a sample may count several times in one test.
    """

    guard: str
    names: tuple[str, ...]
    cells: IntArray
    offsets: IntArray
    unanswered: IntArray | None = None
    clustered: bool = False

    def gather(self, level_counts: IntArray, n_rows: IntArray | None = None) -> IntArray:
        """Cells of counts.

        Parameters
        ----------
        level_counts
            int64 of shape (n_groups, n_levels).
        n_rows
            int64 of shape (n_groups,): rows counted; needed where unanswered rows are.

        Returns
        -------
        int64 of shape (n_groups, n_cells).
        """
        gathered = np.zeros((len(level_counts), int(self.offsets[-1])), np.int64)
        used = np.flatnonzero(self.cells >= 0)
        np.add.at(gathered.T, self.cells[used], level_counts[:, used].T)
        if self.unanswered is not None and n_rows is not None:
            answered = np.add.reduceat(gathered, self.offsets[:-1], axis=1)
            gathered[:, self.unanswered] = np.maximum(n_rows[:, None] - answered, 0)
        return gathered


def list_families(schema: Schema, layout: str) -> list[Family]:
    """Everything that level counts are compared in.

    Parameters
    ----------
    schema
        Variables and levels.
    layout
        "wide": a row that does not answer a variable is a cell of it. "long": rows are answers, and which variables
        they answer is compared as well.
    """
    owners = np.repeat(np.arange(schema.n_variables), schema.cardinalities)
    levels = np.arange(schema.n_levels)
    if layout == "wide":
        offsets = schema.offsets + np.arange(schema.n_variables + 1)
        variables = Family(
            "variable_drift", schema.names, levels + owners, offsets, offsets[1:] - 1
        )
    else:
        variables = Family("variable_drift", schema.names, levels, schema.offsets)
    families = [variables]
    if (scales := _join_scales(schema, owners)) is not None:
        families.append(scales)
    if layout == "long" and schema.n_variables > 1:
        whole = np.array([0, schema.n_variables])
        families.append(Family("answer_drift", ("answers",), owners, whole, clustered=True))
    return families


def _join_scales(schema: Schema, owners: IntArray) -> Family | None:
    """Variables with the same levels are one scale; a variable alone is none."""
    members: dict[tuple[str, ...], list[int]] = {}
    for index, variable in enumerate(schema.variables):
        members.setdefault(variable.levels, []).append(index)
    scales = [each for each in members.items() if len(each[1]) > 1 and len(each[0]) > 1]
    if not scales:
        return None
    names, cells, offsets = [], np.full(schema.n_levels, -1), [0]
    for labels, variables in scales:
        inside = np.isin(owners, variables)
        cells[inside] = (
            offsets[-1] + np.arange(schema.n_levels)[inside] - schema.offsets[owners[inside]]
        )
        offsets.append(offsets[-1] + len(labels))
        names.append(f"scale {labels[0]} to {labels[-1]} of {len(variables)} variables")
    return Family("scale_drift", tuple(names), cells, np.array(offsets), clustered=True)


@dataclass(frozen=True, eq=False)
class DriftTests:
    """Tests of one guard, with a name for each.

    Parameters
    ----------
    guard
        Guard that they belong to.
    name
        Function of the index of a test: what it is about, for a person.
    comparison
        Their outcome.
    """

    guard: str
    name: Callable[[int], str]
    comparison: HomogeneityTests


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
        rows = np.array([each.rows.rows_encoded for each in self.files], np.int64)
        object.__setattr__(self, "rows", rows)


def find_file_drift(
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
    subjects = [
        (change.subject, [change.file]) for change in changes if change.file.rows.rows_encoded
    ]
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
            rows = np.array([file.rows.rows_encoded for file in files])
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


def find_added(changes: IntArray) -> IntArray | None:
    """Pair counts of what was added: cell by cell, what there is more of than before.

    Of an answer that took the place of another, the new one shows: a log whose people return and change their minds is
    still compared by what came.

    Parameters
    ----------
    changes
        int64 of shape (n_levels, n_levels), upper triangle: pair counts less those of before.

    Returns
    -------
    Their cells above 0; None where more than ``MOST_TAKEN`` of these was taken away elsewhere. Of samples that were
    exchanged for others, the cells that grew by chance would look like a drift.
    """
    added: IntArray = np.maximum(changes, 0)
    taken = int((added - changes).sum())
    return None if taken > MOST_TAKEN * int(added.sum()) else added


def find_pair_drift(
    schema: Schema, new: IntArray, reference: IntArray, *, tile_cells: int = TILE_CELLS
) -> list[DriftTests]:
    """Compare every pair of variables that has enough samples on both sides.

    Parameters
    ----------
    schema
        Variables and levels of both.
    new, reference
        int64 of shape (n_levels, n_levels), upper triangles: pair counts of new samples, and of earlier ones.
    tile_cells
        Cells compared at a time, which bounds the memory; results do not depend on it.

    Returns
    -------
    Tests of the guards ``pair_drift`` and ``dependence_drift``.

    Notes
    -----
    A sample counts once in a pair, so that there is no design effect. Two columns of one scale that were swapped leave
    both distributions as they are; each then depends on the other variables as its neighbour did.
    """
    offsets = schema.offsets
    enough = np.minimum(sum_pairs(new, offsets), sum_pairs(reference, offsets)) >= LEAST_COUNTED
    tests: list[DriftTests] = []
    for tile in iterate_pairs(offsets, (new, reference), selected=enough, tile_cells=tile_cells):
        counts, earlier = tile.counts
        n_pairs, *shape = counts.shape
        edges = np.arange(n_pairs + 1) * (shape[0] * shape[1])
        name = _name_pairs(schema, tile)
        joint = compare_counts(counts.ravel(), earlier.ravel(), edges)
        tests.append(DriftTests("pair_drift", name, joint))
        expected = carry_dependence(earlier, counts)
        n_reference = earlier.sum(axis=(1, 2))
        compared = compare_dependence(counts, expected, n_reference, (shape[0], shape[1]))
        tests.append(DriftTests("dependence_drift", name, compared))
    return tests


def measure_dependence(
    schema: Schema, new: IntArray, reference: IntArray, *, tile_cells: int = TILE_CELLS
) -> float | None:
    """How far pairs of new answers hang together as those of a reference do, nats; None of too few to say.

    It is the mean over all pairs of new answers of the pointwise mutual information that the reference gives their
    levels (Church and Hanks 1990). On average it is the mutual information where new samples are as those before, and
    falls to 0 and below where a column was shifted against its rows, or rows are of other samples: each pair of
    variables may have too few new samples for a test of its own.

    Parameters
    ----------
    schema, new, reference, tile_cells
        As for `find_pair_drift`.

    References
    ----------
    Church, Hanks (1990), "Word association norms, mutual information, and lexicography", Computational Linguistics 16.
    """
    offsets, total, n_pairs = schema.offsets, 0.0, 0
    some = sum_pairs(new, offsets) > 0
    for tile in iterate_pairs(offsets, (new, reference), selected=some, tile_cells=tile_cells):
        counts, earlier = tile.counts
        known = earlier + HALF
        margins = known.sum(axis=1, keepdims=True) * known.sum(axis=2, keepdims=True)
        information = np.log(known * known.sum(axis=(1, 2), keepdims=True) / margins)
        total += float((counts * information).sum())
        n_pairs += int(counts.sum())
    return total / n_pairs if n_pairs >= LEAST_COUNTED else None


def _name_pairs(schema: Schema, tile: PairTables) -> Callable[[int], str]:
    names = schema.names
    return lambda index: (
        f"{names[int(tile.first[index])]} with {names[int(tile.second[index])]} in new samples"
    )


def control_discoveries(tests: Sequence[DriftTests], rate: float) -> list[BoolArray]:
    """Which tests reject "no drift", with an expected share ``rate`` of chance among those of all families.

    References
    ----------
    Benjamini, Hochberg (1995), "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57.
    """
    sizes = [each.comparison.p_value.size for each in tests]
    tested = np.concatenate([each.comparison.tested for each in tests])
    p_values = np.concatenate([each.comparison.p_value for each in tests])
    rejected = np.zeros(tested.size, np.bool_)
    if tested.any():
        rejected[tested] = _adjust(p_values[tested]) <= rate
    return np.split(rejected, np.cumsum(sizes)[:-1])


def _adjust(p_values: FloatArray) -> FloatArray:
    """Least rate of false discoveries at which each test rejects; `scipy.stats` would take a second to import."""
    order = np.argsort(p_values)[::-1]
    raised = p_values[order] * (order.size / np.arange(order.size, 0, -1))
    adjusted = np.empty_like(raised)
    adjusted[order] = np.minimum.accumulate(raised)
    return np.minimum(adjusted, 1.0)


def assess_drift(tests: Sequence[DriftTests], config: QualityConfig) -> list[Finding]:
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
        n_tested, n_within, largest = 0, 0, 0.0
        first = min((x for x in (limits.warn, limits.stop) if x != "off"), default=np.inf)
        for each, drifted in mine:
            least = each.comparison.least_index
            n_tested += int(each.comparison.tested.sum())
            beyond = drifted & (least > first)
            for index in np.flatnonzero(beyond).tolist():
                name = each.name(index)
                sentence = _describe(name, each.comparison, index)
                crossed.append(assess(config, guard, name, float(least[index]), sentence))
            within = least[each.comparison.tested & ~beyond]
            n_within += within.size
            largest = max(largest, float(within.max(initial=0.0)))
        crossed.sort(key=lambda finding: -(finding.measured or 0.0))
        findings += crossed[:MOST_LISTED]
        if not n_tested:
            findings.append(abstain(guard, "all tests", "too few rows to compare"))
            continue
        sentence = f"{n_within:,} of {n_tested:,} comparisons within the limits"
        if len(crossed) > MOST_LISTED:
            sentence += f"; {len(crossed) - MOST_LISTED:,} drifts more than are listed"
        measured = min(largest, first)
        findings.append(assess(config, guard, "all other tests", measured, sentence))
    return findings


def _spread(groups: IntArray, offsets: IntArray, correlation: FloatArray) -> FloatArray:
    """Design effect of the total over groups whose observations are correlated within them."""
    sizes = sum_blocks(groups, offsets, axis=1).astype(np.float64)
    typical = (sizes**2).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1)
    effect: FloatArray = 1 + np.maximum(typical - 1, 0) * correlation
    return effect


def _name_in(family: Family, subject: str) -> Callable[[int], str]:
    return lambda index: f"{family.names[index]} in {subject}"


def _describe(name: str, found: HomogeneityTests, index: int) -> str:
    moved = write_share(found.total_variation[index])
    n_new, n_live = int(found.n_new[index]), int(found.n_reference[index])
    return (
        f"{name}: stability index {found.stability_index[index]:.2f}, at least {found.least_index[index]:.2f} beyond "
        f"chance; {moved} of {n_new:,} moved, against {n_live:,} of the live model's data"
    )
