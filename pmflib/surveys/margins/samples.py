"""Rake weights of samples to known margins, with errors by replicates that are raked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, check_row_order, find_row_names
from pmflib.base.constraints import check_rows
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.machine import find_memory_limit
from pmflib.base.replicate_weights import ReplicateWeights
from pmflib.base.variance import MOST_REPLICATES, Variance, check_replicates
from pmflib.base.weights import read_weights
from pmflib.cluster.memory import MemoryPlan
from pmflib.schema import Schema
from pmflib.surveys.margins.factors import ACCEPTED, Raked, check_bounds, find_levels, rake_cells
from pmflib.surveys.margins.margins import Margin, MarginTables, read_margins


class RakedDesign(Variance):
    """Variance of raked samples: taken wherever a `pmflib.surveys.SurveyDesign` is.

    Attributes
    ----------
    weight
        Raked weights, float64 of shape (n_rows,). They sum to the population if a margin was given in totals, and to
        the sum of the given weights otherwise.
    factors
        Factor of the share of each row, float64 of shape (n_rows,): 1 on average over the given weights.
    """

    def __init__(
        self,
        drawn: Variance,
        factors: FloatArray,
        replicates: FloatArray,
        record: ReplicateWeights,
        total: float,
    ) -> None:
        weight = drawn.weights.units * factors
        self.factors = factors
        self.weight: FloatArray = weight * (total / weight.sum())
        weights = read_weights(self.weight, drawn.n_rows)
        before, after = drawn.weights.n_effective, weights.n_effective
        notes = (
            *record.notes,
            f"raked: {before:,.0f} effective samples (Kish) became {after:,.0f}; factors from {factors.min():.3g} to "
            f"{factors.max():.3g}",
        )
        method = f"raked {record.method}"
        raked = ReplicateWeights(record.refit_factors, record.degrees, method, None, notes)
        # held-out folds have whole units of each stratum
        known = drawn.units, drawn.strata, check_replicates(replicates), drawn.row_names
        super().__init__(weights, raked, *known)


def rake(
    samples: object,
    margins: MarginTables,
    *,
    weight: object | Variance | None = None,
    schema: Schema | None = None,
    bounds: tuple[float, float] | None = None,
) -> RakedDesign:
    """Rake the weights of samples to known margins of the population.

    Parameters
    ----------
    samples
        Table with the columns of the margins, or codes of a schema.
    margins
        Number of each level of some variables, or of each pair of levels of two variables; or CSV files:
        `pmflib.surveys.margins.margins.read_margins`. Numbers are shares, per cent or totals.
    weight
        Weights to start from, numbers above 0 of shape (n_rows,), or a `pmflib.surveys.SurveyDesign`; None is 1 each.
    schema
        Variables of the margins; None takes the levels that the margins name.
    bounds
        Smallest and largest factor of a weight, relative to the mean factor, such as (0.3, 3); None for no bounds.

    Returns
    -------
    The design with raked weights and raked replicate weights. Rows without a value of a margin keep their share of the
    weights, and the other rows have the known distribution among themselves.

    Raises
    ------
    PmfError
        If margins contradict each other or cannot be reached within the bounds; if all rows are one sampling unit; as
        `pmflib.surveys.SurveyDesign` and `pmflib.surveys.margins.margins.read_margins` do.
    SchemaError
        If samples have a level to which the margins give nothing, or lack a level to which they give something.
    MemoryPlanError
        If the replicate weights would not fit in memory.

    Notes
    -----
    Each replicate, given or of the jackknife of sampling units (in at most 200 groups), is raked as well, so that
    errors reflect what raking gains and costs. A replicate that lacks a level is raked to the other levels.

    References
    ----------
    Deville, Särndal and Sautory (1993), JASA 88; Kolenikov (2014), Stata Journal 14, for replicates.

    Examples
    --------
    >>> table = {"sex": ["f", "m", "m", "m"], "smokes": ["no", "no", "yes", "yes"]}
    >>> rake(table, {"sex": {"f": 0.5, "m": 0.5}}).weight.round(3).tolist()
    [2.0, 0.667, 0.667, 0.667]
    """
    check_bounds(bounds)
    known, found = read_margins(margins, schema)
    check_row_order(samples, weight=weight)
    codes = known.encode(samples)
    drawn = weight if isinstance(weight, Variance) else None
    if drawn is None:
        own = np.ones(len(codes)) if weight is None else weight
        drawn = Variance.of_rows(own, find_row_names(samples))
    check_rows(len(codes), weight=drawn)
    tables = [each.positions for each in found], [each.shares.shape for each in found]
    cells, of_row = np.unique(find_levels(codes, *tables), axis=0, return_inverse=True)
    rows = of_row.ravel()
    units = drawn.weights.units.astype(np.float64)
    sums = np.bincount(rows, units, len(cells)).astype(np.float64)[:, None]
    whole = rake_margins(sums, cells, found, bounds)
    record, matrix = drawn.reduce(MOST_REPLICATES)
    plan = MemoryPlan(
        "raking",
        {f"weights of {record.n_columns} replicates": 24 * len(codes) * record.n_columns},
        "Give a design with fewer replicates, or rake a part of the samples.",
    )
    plan.check(find_memory_limit())
    dense = record.spread(matrix, units)
    by_replicate = np.empty((len(cells), record.n_columns))
    for column in range(record.n_columns):
        by_replicate[:, column] = np.bincount(rows, dense[:, column], len(cells))
    factors, record = rake_replicates(by_replicate, cells, found, bounds, whole, record)
    total = find_total(found)
    if total is None:
        total = drawn.weights.sums.total
    dense *= total * factors[rows]
    return RakedDesign(drawn, whole.factors[rows, 0], dense, record, total)


def find_total(margins: Sequence[Margin]) -> float | None:
    """Size of the population; None if no margin was given in totals."""
    return next((each.total for each in margins if each.total is not None), None)


def rake_replicates(
    sums: FloatArray,
    cells: IntArray,
    margins: Sequence[Margin],
    bounds: tuple[float, float] | None,
    whole: Raked,
    record: ReplicateWeights,
) -> tuple[FloatArray, ReplicateWeights]:
    """Rake the tables of replicates.

    Parameters
    ----------
    sums
        float64 of shape (n_cells, n_replicates): weights of each replicate by cell.
    cells, margins, bounds
        As for `rake_margins`.
    whole
        Factors of the table of all samples, from which those of replicates start.
    record
        Replicate weights, in either form.

    Returns
    -------
    Factor of each cell and replicate with which its weights sum to 1, float64 of shape (n_cells, n_replicates); and the
    record of the raked replicates, with a note if some cannot have the margins.
    """
    if record.strata is not None:
        # units in groups are known as groups alone
        degrees = min(record.degrees, record.n_columns - int(record.strata.max()) - 1)
        record = replace(record, degrees=max(degrees, 1))
    shares = [each.shares.ravel() for each in margins]
    raked = rake_cells(sums, cells, shares, bounds, whole.factors)
    if n_missed := int((raked.gaps > ACCEPTED).sum()):
        note = f"{n_missed} of {record.n_columns} replicates cannot have all margins"
        record = replace(record, notes=(*record.notes, note))
    return raked.factors / sums.sum(axis=0), record


def rake_margins(
    sums: FloatArray,
    cells: IntArray,
    margins: Sequence[Margin],
    bounds: tuple[float, float] | None,
) -> Raked:
    """Rake one table: see `pmflib.surveys.margins.factors.rake_cells`.

    Raises
    ------
    SchemaError
        If the table has a level to which a margin gives nothing, or the other way round.
    PmfError
        If the margins cannot be reached.
    """
    for place, margin in enumerate(margins):
        held = np.bincount(cells[:, place], sums[:, 0], margin.shares.size + 1)[:-1] > 0
        if not held.any():
            raise SchemaError(
                f"margins of {' x '.join(margin.names)}: no sample has a value; leave this margin out"
            )
        given = margin.shares.ravel() > 0
        if (extra := np.flatnonzero(held & ~given)).size:
            raise SchemaError(
                f"margins give {margin.name_cell(extra[0])} nothing, and samples have it; correct the margin, or leave "
                "these samples out"
            )
        if (lacking := np.flatnonzero(given & ~held)).size:
            share = margin.shares.ravel()[lacking[0]]
            raise SchemaError(
                f"margins give {margin.name_cell(lacking[0])} the share {share:.4g}, and no sample has it; merge it "
                "with another level"
            )
    found = rake_cells(sums, cells, [each.shares.ravel() for each in margins], bounds)
    if found.gaps[0] > ACCEPTED:
        place, level, share = found.worst
        margin = margins[place]
        where = (
            "samples without a value" if level == margin.shares.size else margin.name_cell(level)
        )
        why = (
            "they contradict other margins or samples" if bounds is None else f"bounds are {bounds}"
        )
        raise PmfError(
            f"margins of {' x '.join(margin.names)} cannot be reached: {where} has the share {share:.4g} after "
            f"raking; {why}: leave a margin out, merge levels, or widen the bounds"
        )
    return found
