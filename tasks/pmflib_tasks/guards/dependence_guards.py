"""Guards of young pipelines: dependence of new answers, compared with that between folds of what is known.

With few nights, nothing is known of how nights differ. How much samples differ is known from the first night on: the
dependence of each fold by the counts of all others has a mean and a standard deviation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, list_owners, sum_pairs
from pmflib.base.blocks import SparseBlock
from pmflib.counts.block_counting import add_block
from pmflib.schema import Schema
from pmflib_tasks.guards.counts import HALF, LEAST_COUNTED, iterate_pairs
from pmflib_tasks.guards.findings import Measurement

MOST_LEVELS_BY_FOLD, MOST_VARIABLES_BY_FOLD = 2048, 512
"""Maximum numbers of levels and variables of a schema whose folds are compared, which takes seconds and 0.1 GB."""
LEAST_KNOWN = 10
"""Minimum number of earlier samples with both answers of a pair of variables whose dependence is compared."""


def can_compare(schema: Schema) -> bool:
    """Whether a schema has few enough levels and variables to compare folds."""
    return (
        schema.n_levels <= MOST_LEVELS_BY_FOLD and 1 < schema.n_variables <= MOST_VARIABLES_BY_FOLD
    )


@dataclass(frozen=True, eq=False)
class Dependence:
    """Pointwise mutual information of pairs of answers, by pair of variables: shape (..., n_variables, n_variables).

    Parameters
    ----------
    total, squares
        Sums of the information and of its squares, float64, upper triangles.
    n_pairs
        Numbers of pairs of answers, int64, upper triangle.
    n_answers
        Numbers of answers, int64 of shape (..., n_variables).
    """

    total: FloatArray
    squares: FloatArray
    n_pairs: IntArray
    n_answers: IntArray

    @classmethod
    def measure(cls, schema: Schema, counts: IntArray, reference: IntArray) -> Dependence:
        """Measure the information of counted pairs by a reference, smoothed toward independence.

        Parameters
        ----------
        schema
            Variables and levels of both.
        counts, reference
            int64 of shape (n_levels, n_levels), upper triangles: pair counts.

        Notes
        -----
        The reference has as many pseudo-counts as a pair has cells, shared out as if it were independent: what is
        seldom counted carries no information (Church and Hanks 1990 discard it).
        """
        offsets, shape = schema.offsets, (schema.n_variables, schema.n_variables)
        total, squares, n_pairs = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
        some = sum_pairs(counts, offsets) > 0
        for tile in iterate_pairs(offsets, (counts, reference), selected=some):
            new, earlier = tile.counts
            n_cells, n_known = earlier[0].size, earlier.sum(axis=(1, 2), keepdims=True)
            expected = np.ones(())
            for axis in (1, 2):
                margin = earlier.sum(axis=axis, keepdims=True) + HALF
                expected = expected * margin / margin.sum(axis=3 - axis, keepdims=True)
            information = np.log((earlier / expected + n_cells) / (n_known + n_cells))
            at = tile.first, tile.second
            total[at] = (new * information).sum(axis=(1, 2))
            squares[at] = (new * information**2).sum(axis=(1, 2))
            n_pairs[at] = new.sum(axis=(1, 2))
        answers = np.add.reduceat(np.diagonal(counts), offsets[:-1])
        return cls(total, squares, n_pairs, answers)


def measure_folds(schema: Schema, folds: Iterable[IntArray], reference: IntArray) -> Dependence:
    """Measure each fold by the reference, the sum of all folds, without it; arrays begin with an axis of folds."""
    found = [Dependence.measure(schema, fold, reference - fold) for fold in folds]
    return Dependence(
        *(np.stack([getattr(each, f.name) for each in found]) for f in fields(Dependence))
    )


def compare_dependence(known: Dependence, new: Dependence) -> FloatArray:
    """Compute by how many standard deviations new answers depend less on each other than those of folds.

    Parameters
    ----------
    known
        Dependence of folds.
    new
        Dependence of new answers.

    Returns
    -------
    Standard deviations, at least 0, float64 of shape (n_variables + 1,): of the pairs of each variable, and of all
    pairs; NaN if there are too few.

    Notes
    -----
    Each pair of variables is compared with itself, as nights may answer other variables: with n new and N known answers
    of a pair, the difference of sums has the variance of ``n + n**2 / N`` answers. That of one answer is estimated from
    the sums of folds. As folds are few, and may agree by chance, it is at least that of independent answers times a
    design effect, which is estimated from all variables.
    """
    n_known = known.n_pairs.sum(axis=0)
    used = (n_known >= LEAST_KNOWN) & (new.n_pairs > 0)
    n_known, n_new = np.where(used, n_known, 1), np.where(used, new.n_pairs, 0)
    mean = np.where(used, known.total.sum(axis=0) / n_known, 0.0)
    of_folds = np.where(used, known.n_pairs, 0)
    deviations = _gather(np.where(used, known.total, 0.0) - of_folds * mean)
    weights = np.maximum(_gather(of_folds), 1)
    variance = (deviations**2 / weights).sum(axis=0) / max(len(deviations) - 1, 1)
    within = np.where(used, known.squares.sum(axis=0) - n_known * mean**2, 0.0)
    independent = _gather(within) / weights.sum(axis=0)
    effect = variance[:-1].sum() / max(float(independent[:-1].sum()), np.finfo(np.float64).tiny)
    variance = np.maximum(variance, effect * independent)
    variance = variance * _gather(n_new + n_new**2 / n_known)
    fallen = _gather(n_new * mean - np.where(used, new.total, 0.0))
    answers = np.minimum(new.n_answers, known.n_answers.sum(axis=0))
    enough = np.append(answers, LEAST_COUNTED) >= LEAST_COUNTED
    enough &= (_gather(n_new) >= LEAST_COUNTED) & (variance > 0)
    found: FloatArray = np.full(enough.size, np.nan)
    found[enough] = np.maximum(fallen[enough] / np.sqrt(variance[enough]), 0.0)
    return found


def _gather(pairs: FloatArray | IntArray) -> FloatArray:
    """Sum upper triangles by variable, and over all pairs: shape (..., n_variables + 1)."""
    total = pairs.sum(axis=(-2, -1))[..., None]
    found: FloatArray = np.concatenate([pairs.sum(axis=-1) + pairs.sum(axis=-2), total], axis=-1)
    return found


def count_inside(samples: IntArray, levels: IntArray, schema: Schema) -> IntArray:
    """Count the pairs of answers of the same samples; of several answers to a variable, the last counts.

    Parameters
    ----------
    samples, levels
        int64 of shape (n_answers,): sample and level of each answer.
    schema
        Variables and levels.

    Returns
    -------
    int64 of shape (n_levels, n_levels), upper triangle.
    """
    cells = samples * schema.n_variables + list_owners(schema.offsets)[levels]
    chosen = cells.size - 1 - np.unique(cells[::-1], return_index=True)[1]
    rows, edges = samples[chosen], np.arange(int(samples.max(initial=-1)) + 2)
    block = SparseBlock(np.searchsorted(rows, edges), levels[chosen].astype(np.int32))
    table = np.zeros((schema.n_levels, schema.n_levels), np.int64)
    add_block(block, schema.offsets, table)
    return table


def measure_young(
    schema: Schema, folds: Sequence[IntArray], inside: IntArray, new: IntArray
) -> list[Measurement]:
    """Compare new answers with folds: guards ``joint_agreement``, ``column_agreement``, ``sample_agreement``.

    Parameters
    ----------
    schema
        Variables and levels.
    folds
        Pair counts of each fold of earlier samples, int64 of shape (n_levels, n_levels), upper triangles.
    inside, new
        Pairs of new answers with each other, and with all answers of the same samples, counted in the same way.
    """
    reference = np.sum(folds, axis=0)
    known = measure_folds(schema, folds, reference)
    inner, outer = (
        compare_dependence(known, Dependence.measure(schema, counts, reference))
        for counts in (inside, np.maximum(new - inside, 0))
    )
    worst = int(np.nan_to_num(inner[:-1], nan=-1.0).argmax())
    name = schema.names[worst]
    compared = [
        ("joint_agreement", "new samples", "pairs of new answers", inner[-1]),
        ("column_agreement", name, f"pairs of new answers with {name}", inner[worst]),
        (
            "sample_agreement",
            "samples that return",
            "new answers on earlier ones of their samples",
            outer[-1],
        ),
    ]
    found = []
    for guard, subject, what, fallen in compared:
        if np.isnan(fallen):
            found.append(Measurement(guard, subject, None, f"too few {what} to compare"))
            continue
        said = f"dependence of {what}: {fallen:.1f} standard deviations between folds below that of earlier answers"
        found.append(Measurement(guard, subject, float(fallen), said))
    return found
