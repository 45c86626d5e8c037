"""Associations between variables: mutual information and Cramér's V of all pairs under a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, repeat_blocks, sum_blocks
from pmflib.base.constraints import at_least, check, check_shapes
from pmflib.base.errors import PmfError
from pmflib.model.mixture import Mixture


@dataclass(frozen=True, eq=False)
class Associations:
    """Strength of association of each pair of variables, under a model.

    Parameters
    ----------
    names
        Variables, in the order of the schema.
    mutual_information
        float64 of shape (n_variables, n_variables), symmetric, nats, at least 0; 0 on the diagonal.
    cramers_v
        float64 of the same shape, in [0, 1]: 0 for independence, 1 if one variable determines the other.

    References
    ----------
    Cramér (1946), Mathematical Methods of Statistics, section 21.9.
    """

    names: tuple[str, ...]
    mutual_information: FloatArray
    cramers_v: FloatArray

    def rank_pairs(self, most: int, support: IntArray | None = None) -> list[tuple[int, int]]:
        """Return the positions of the pairs with the most mutual information, in descending order.

        Parameters
        ----------
        most
            Maximum number of pairs to return, at least 0.
        support
            int64 of shape (n_variables, n_variables): number of samples in which both variables are observed; pairs
            never observed together are left out. If None, all pairs are ranked.

        Raises
        ------
        PmfError
            If most is negative, or support has another shape.
        """
        check(at_least(0), most=most)
        rows, columns = np.triu_indices(len(self.names), 1)
        if support is not None:
            check_shapes("", PmfError, support=(support, self.mutual_information.shape))
            observed = support[rows, columns] > 0
            rows, columns = rows[observed], columns[observed]
        order = np.argsort(-self.mutual_information[rows, columns], kind="stable")[:most]
        return [(int(rows[each]), int(columns[each])) for each in order]


def measure_associations(model: Mixture, variables: IntArray | None = None) -> Associations:
    """Measure the association of each pair of variables, under a model.

    Parameters
    ----------
    model
        The model.
    variables
        int64: positions of the variables whose pairs are measured, in ascending order; None means all.

    Returns
    -------
    The associations of all pairs.

    Notes
    -----
    Variables are processed one at a time, so memory grows with the cardinality of one variable times n_levels. A model
    with forests needs a table of all pairs of levels instead.
    """
    schema = model.schema
    if variables is not None:
        schema = schema.select(np.asarray(variables, np.int64))
        levels = np.concatenate(
            [np.arange(model.schema.n_levels)[model.schema.rows_of(int(j))] for j in variables]
        )
    else:
        levels = np.arange(schema.n_levels)
    offsets = schema.offsets
    singles = model.factors[levels] @ model.prior
    sizes = np.diff(offsets)
    n_variables = sizes.size
    information = np.zeros((n_variables, n_variables))
    squares = np.zeros((n_variables, n_variables))
    for position, joint in enumerate(model.iterate_pairs(levels, offsets)):
        mine, after = schema.rows_of(position), slice(int(offsets[position + 1]), None)
        product = np.maximum(np.outer(singles[mine], singles[after]), FLOOR)
        edges = offsets[position + 1 :] - offsets[position + 1]
        logs = np.log(np.maximum(joint, FLOOR) / product)
        information[position, position + 1 :] = sum_blocks((joint * logs).sum(axis=0), edges)
        squares[position, position + 1 :] = sum_blocks(
            ((joint - product) ** 2 / product).sum(axis=0), edges
        )
    information, squares = (np.maximum(each + each.T, 0.0) for each in (information, squares))
    # a variable with a single level has no association
    free = np.maximum(np.minimum(sizes[:, None], sizes) - 1, 1)
    return Associations(schema.names, information, np.sqrt(np.minimum(squares / free, 1.0)))


def measure_in_counts(table: IntArray, offsets: IntArray) -> FloatArray:
    """Compute the mutual information of all pairs from counts, corrected for its bias under independence.

    Parameters
    ----------
    table
        int64 of shape (n_levels, n_levels), symmetric: `PairCounts.to_dense`.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    float64 of shape (n_variables, n_variables), symmetric, nats, at least 0; NaN on the diagonal and for pairs never
    observed together.

    Raises
    ------
    SchemaError
        If table and offsets do not agree.

    References
    ----------
    Miller (1955), "Note on the bias of information estimates", for the bias: the product of the two variables' numbers
    of free levels, divided by 2 n for n samples.
    """
    check_shapes("as offsets require", table=(table, (int(offsets[-1]),) * 2))
    n_variables = offsets.size - 1
    found = np.full((n_variables, n_variables), np.nan)
    for position in range(n_variables - 1):
        block = table[offsets[position] : offsets[position + 1], offsets[position + 1] :].astype(
            np.float64
        )
        edges = offsets[position + 1 :] - offsets[position + 1]
        by_row = sum_blocks(block, edges, axis=1)
        by_column = block.sum(axis=0)
        n_samples = sum_blocks(by_column, edges)
        # sums of n log n over the cells, over each margin, and for all samples
        cells = sum_blocks(_weigh(block).sum(axis=0), edges)
        rows, columns = _weigh(by_row).sum(axis=0), sum_blocks(_weigh(by_column), edges)
        observed = np.maximum(n_samples, 1.0)
        raw = (cells - rows - columns + _weigh(n_samples)) / observed
        free = np.maximum(np.count_nonzero(by_row, axis=0) - 1, 0) * np.maximum(
            sum_blocks((by_column > 0).astype(np.int64), edges) - 1, 0
        )
        known = np.where(n_samples > 0, np.maximum(raw - free / (2 * observed), 0.0), np.nan)
        found[position, position + 1 :] = found[position + 1 :, position] = known
    return found


def _weigh(counts: FloatArray) -> FloatArray:
    return np.asarray(counts * np.log(np.maximum(counts, 1.0)))


def expect_values(model: Mixture) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Compute the expected values of the ordinal variables given each state, and over all samples.

    Returns
    -------
    positions
        int64 of shape (n_ordinal,): the variables with values.
    shifts
        float64 of shape (n_ordinal, rank): expected value given the state minus the overall one, in standard deviations
        of the variable; 0 if the variable does not vary.
    spreads, means
        float64 of shape (n_ordinal,): those standard deviations, and the expected values over all samples, in the units
        of the values.
    """
    schema = model.schema
    positions = np.array(
        [j for j, each in enumerate(schema.variables) if each.values is not None], np.int64
    )
    if not positions.size:
        return positions, np.zeros((0, model.rank)), np.zeros(0), np.zeros(0)
    values = np.zeros(schema.n_levels)
    for position in positions.tolist():
        values[schema.rows_of(position)] = schema.variables[position].numeric_values()
    singles = model.factors @ model.prior
    means = sum_blocks(values * singles, schema.offsets)
    centred = values - repeat_blocks(means, schema.offsets)
    spreads = np.sqrt(sum_blocks(centred**2 * singles, schema.offsets))[positions]
    shifts = sum_blocks(centred[:, None] * model.factors, schema.offsets)[positions]
    scale = np.where(spreads > 0, spreads, 1.0)
    shifts = np.where(spreads[:, None] > 0, shifts / scale[:, None], 0.0)
    return positions, shifts, spreads, means[positions]
