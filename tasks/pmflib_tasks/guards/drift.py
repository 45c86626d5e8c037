"""Drift: tests of new rows, and of pairs of variables in them, against the data of the live model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, sum_blocks, sum_pairs
from pmflib.base.display.summary import percent
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
from pmflib_tasks.guards.findings import Measurement
from pmflib_tasks.guards.row_guards import LEAST_SIBLINGS, FileChange

MOST_LISTED = 50
"""Maximum number of drifts per guard that are listed, the largest first; the rest is counted."""
MOST_TAKEN = 0.1
"""Maximum number of removed pairs, as a share of the added pairs, for which these are compared."""
MOST_LEVELS = 4096
"""Maximum number of levels of a schema whose pairs are compared, which takes four tables of 128 MiB. In wider schemas
hardly any pair has enough new samples."""


@dataclass(frozen=True, eq=False)
class Family:
    """A family of tests: the mapping of level counts to cells.

    Parameters
    ----------
    guard
        Guard of the tests.
    names
        Subject of each test, for people.
    cells
        int64 of shape (n_levels,): cell in which a level is counted, -1 for none.
    offsets
        int64 of shape (n_tests + 1,): cells of each test.
    unanswered
        int64 of shape (n_tests,): cells of the rows without an answer; None if these are not counted.
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
        """Sum level counts into cells.

        Parameters
        ----------
        level_counts
            int64 of shape (n_groups, n_levels).
        n_rows
            int64 of shape (n_groups,): number of rows; required if unanswered rows are counted.

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
    """List the families of tests of level counts.

    Parameters
    ----------
    schema
        Variables and levels.
    layout
        "wide": rows that do not answer a variable are a cell of it. "long": rows are answers, and the variables that
        they answer are compared as well.
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
    """Pool variables with the same levels into scales; None if no two variables share their levels."""
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
    """Tests of one guard, with a subject for each.

    Parameters
    ----------
    guard
        Name of the guard.
    name
        Function from the index of a test to its subject, for people.
    comparison
        Outcome of the tests.
    """

    guard: str
    name: Callable[[int], str]
    comparison: HomogeneityTests


@dataclass(frozen=True, eq=False)
class LiveData:
    """The data of the live model.

    Parameters
    ----------
    files
        The files.
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
    """Test the levels of each new file, and of all new files together, against those of the live model's files.

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
    Each design effect is the larger of two estimates: between folds, because a sample that answers many variables of a
    scale is a cluster; and, from `LEAST_SIBLINGS` files on, between files, which may differ beyond chance.
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
                new.sum(axis=0), reference.sum(axis=0), family.offsets, new_effect, reference_effect
            )
            tests.append(DriftTests(family.guard, _name_in(family, subject), compared))
    return tests


def find_added(changes: IntArray) -> IntArray | None:
    """Compute the pair counts that were added, cell by cell.

    If an answer replaces another, only the new one counts, so that logs whose samples return and change their answers
    are compared as well.

    Parameters
    ----------
    changes
        int64 of shape (n_levels, n_levels), upper triangle: pair counts minus the earlier ones.

    Returns
    -------
    The cells above 0; None if the removed counts exceed ``MOST_TAKEN`` of them. Where samples were replaced by others,
    cells that grew by chance would look like a drift.
    """
    added: IntArray = np.maximum(changes, 0)
    taken = int((added - changes).sum())
    return None if taken > MOST_TAKEN * int(added.sum()) else added


def find_pair_drift(
    schema: Schema, new: IntArray, reference: IntArray, *, tile_cells: int = TILE_CELLS
) -> list[DriftTests]:
    """Test every pair of variables that has enough samples on both sides.

    Parameters
    ----------
    schema
        Variables and levels of both.
    new, reference
        int64 of shape (n_levels, n_levels), upper triangles: pair counts of new samples, and of earlier ones.
    tile_cells
        Cells in a batch, which bounds the memory; results do not depend on it.

    Returns
    -------
    Tests of the guards ``pair_drift`` and ``dependence_drift``.

    Notes
    -----
    A sample counts once in a pair, so there is no design effect. If two columns of one scale are swapped, their
    distributions may stay the same, but the dependence of each on the other variables changes.
    """
    offsets = schema.offsets
    enough = np.minimum(sum_pairs(new, offsets), sum_pairs(reference, offsets)) >= LEAST_COUNTED
    tests: list[DriftTests] = []
    for tile in iterate_pairs(offsets, (new, reference), selected=enough, tile_cells=tile_cells):
        counts, earlier = tile.counts
        edges = np.arange(len(counts) + 1) * counts[0].size
        name = _name_pairs(schema, tile)
        joint = compare_counts(counts.ravel(), earlier.ravel(), edges)
        tests.append(DriftTests("pair_drift", name, joint))
        expected = carry_dependence(earlier, counts)
        n_reference = earlier.sum(axis=(1, 2))
        compared = compare_dependence(counts, expected, n_reference)
        tests.append(DriftTests("dependence_drift", name, compared))
    return tests


def measure_dependence(
    schema: Schema, new: IntArray, reference: IntArray, *, tile_cells: int = TILE_CELLS
) -> float | None:
    """Measure the dependence of pairs of new answers by that of a reference, nats; None if there are too few pairs.

    The measure is the mean, over all pairs of new answers, of their pointwise mutual information in the reference
    (Church and Hanks 1990). Its expectation is the mutual information if new samples resemble earlier ones. It falls to
    0 or below if a column was shifted against its rows or rows belong to other samples, even if each pair of variables
    has too few new samples for a test.

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
    """Find the tests that reject "no drift" at a false discovery rate, over all families.

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
    """Adjust p-values for the false discovery rate; importing `scipy.stats` would take a second."""
    order = np.argsort(p_values)[::-1]
    raised = p_values[order] * (order.size / np.arange(order.size, 0, -1))
    adjusted = np.empty_like(raised)
    adjusted[order] = np.minimum.accumulate(raised)
    return np.minimum(adjusted, 1.0)


def measure_drift(tests: Sequence[DriftTests], config: QualityConfig) -> Iterator[Measurement]:
    """Measure the drifts that cross a limit, and per guard the largest index of all other tests.

    A drift must be significant at the false discovery rate, and the lower bound of its index must exceed the limit. So
    neither chance alone nor a negligible drift of a large sample is reported.
    """
    if not tests:
        return
    rejected = control_discoveries(tests, config.false_discoveries)
    for guard in dict.fromkeys(each.guard for each in tests):
        limits = getattr(config, guard)
        mine = [(t, r) for t, r in zip(tests, rejected, strict=True) if t.guard == guard]
        crossed: list[Measurement] = []
        n_tested, n_within, largest = 0, 0, 0.0
        first = min((x for x in (limits.warn, limits.stop) if x != "off"), default=np.inf)
        for each, drifted in mine:
            least = each.comparison.least_index
            n_tested += int(each.comparison.tested.sum())
            beyond = drifted & (least > first)
            for index in np.flatnonzero(beyond).tolist():
                name = each.name(index)
                sentence = _describe(name, each.comparison, index)
                crossed.append(Measurement(guard, name, float(least[index]), sentence))
            within = least[each.comparison.tested & ~beyond]
            n_within += within.size
            largest = max(largest, float(within.max(initial=0.0)))
        crossed.sort(key=lambda drift: -(drift.value or 0.0))
        yield from crossed[:MOST_LISTED]
        if not n_tested:
            yield Measurement(guard, "all tests", None, "too few rows to compare")
            continue
        sentence = f"{n_within:,} of {n_tested:,} comparisons within the limits"
        if len(crossed) > MOST_LISTED:
            sentence += f"; {len(crossed) - MOST_LISTED:,} more drifts are not listed"
        measured = min(largest, first)
        yield Measurement(guard, "all other tests", measured, sentence)


def _spread(groups: IntArray, offsets: IntArray, correlation: FloatArray) -> FloatArray:
    """Compute the design effect of a total over groups with an intraclass correlation."""
    sizes = sum_blocks(groups, offsets, axis=1).astype(np.float64)
    typical = (sizes**2).sum(axis=0) / np.maximum(sizes.sum(axis=0), 1)
    effect: FloatArray = 1 + np.maximum(typical - 1, 0) * correlation
    return effect


def _name_in(family: Family, subject: str) -> Callable[[int], str]:
    return lambda index: f"{family.names[index]} in {subject}"


def _describe(name: str, found: HomogeneityTests, index: int) -> str:
    moved = percent(found.total_variation[index])
    n_new, n_live = int(found.n_new[index]), int(found.n_reference[index])
    return (
        f"{name}: stability index {found.stability_index[index]:.2f}, at least {found.least_index[index]:.2f} beyond "
        f"chance; {moved} of {n_new:,} answers moved, against {n_live:,} in the live model's data"
    )
