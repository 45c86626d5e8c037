"""Bivariate residuals: pairs of variables that depend on each other within the latent states, and how surely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import FloatArray, IntArray, check_model_type
from pmflib.core.errors import MemoryPlanError, PmfError
from pmflib.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.fitting.standard_errors import MAX_ENTRIES, open_source, read_parameters
from pmflib.model import JointPMF
from pmflib.model.forests.statistics import TreeParameters
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.model.information import RowScores, iterate_scores, list_pmfs
from pmflib.model.statistics import sum_fields
from pmflib.schema import Schema
from pmflib.solvers.numeric.information import LEAST_MASS, NULL_SHARE, PMFInformation, span_steps
from pmflib.store.sample_blocks import BlockGroup

MAX_CROSSED = 20_000_000
"""Cells of pairs times entries of prior and factors whose products are held: 0.2 GB."""
SMALL_WORK = 2_000_000_000
"""Samples times entries times these and cells up to which every fit has its residuals: a few tenths of a second."""
LISTED = 10
"""Pairs that are written down with a model, at most."""
LEAST_ENTRY = 1e-6
"""Entries below which a probability is at its edge, and fixed."""
LEAST_LEFT = 0.1
"""Share of the spread of a residual that the parameters must leave for there to be something to test."""
LEAST_EXPECTED = 10.0
"""Expected sum of squares of the residual of two levels from which they are tested: each sample adds at most 1, and of
few the spread is not known."""
LEVEL = 0.05
"""Chance that any pair is said to depend where none does."""


@dataclass(frozen=True)
class PairResidual:
    """What a model leaves of the dependence between two variables.

    Parameters
    ----------
    variables
        The two.
    support
        Samples that hold both.
    statistic, degrees
        Score statistic of direct effects, and its degrees of freedom: 0 where the parameters leave nothing to test.
    p_value
        Chance of a statistic as large without direct effects, in [0, 1]; NaN without degrees of freedom.
    adjusted
        The same for the largest of all pairs, by Holm: below .05 the pair contradicts the model; NaN likewise.
    levels, excess
        A level of each, and by how much more of the samples hold both than the model expects of these very samples: the
        share that is furthest from 0, in (-1, 1).
    """

    variables: tuple[str, str]
    support: int
    statistic: float
    degrees: int
    p_value: float
    adjusted: float
    levels: tuple[str, str]
    excess: float

    @property
    def is_large(self) -> bool:
        """Whether it is beyond chance, all pairs taken together."""
        return self.adjusted < LEVEL

    @property
    def per_degree(self) -> float:
        """Statistic per degree of freedom: 1 is what chance leaves; NaN without any."""
        return self.statistic / self.degrees if self.degrees else float("nan")


@dataclass(frozen=True)
class BivariateResiduals(Summarised):
    """Residuals of all pairs of variables of two levels at least that some sample holds.

    Parameters
    ----------
    pairs
        The pairs, by rising p-value; those with nothing to test last.
    """

    pairs: tuple[PairResidual, ...]

    @property
    def large(self) -> tuple[PairResidual, ...]:
        """Pairs that contradict the model."""
        return tuple(each for each in self.pairs if each.is_large)

    @cached_property
    def table(self) -> pa.Table:
        """All pairs as an Arrow table, a row each."""
        names = ("support", "statistic", "degrees", "p_value", "adjusted", "excess")
        columns: dict[str, list[object]] = {
            "variable": [each.variables[0] for each in self.pairs],
            "other": [each.variables[1] for each in self.pairs],
            "level": [each.levels[0] for each in self.pairs],
            "other_level": [each.levels[1] for each in self.pairs],
        }
        columns |= {name: [getattr(each, name) for each in self.pairs] for name in names}
        return pa.table(columns)

    def describe(self) -> str:
        """How many pairs depend within states, in one line."""
        n_tested = sum(each.degrees > 0 for each in self.pairs)
        if not n_tested:
            return "the parameters leave no pair to test"
        said = f"{format_count(len(self.large))} of {format_count(n_tested)} pairs contradict the model"
        if self.large:
            said += f", most of all {' and '.join(self.large[0].variables)}"
        return said

    def to_json(self) -> dict[str, object]:
        """Plain JSON types: how many pairs there are, are tested and contradict the model, and the first of them."""
        return {
            "n_pairs": len(self.pairs),
            "n_tested": sum(each.degrees > 0 for each in self.pairs),
            "n_contradicting": len(self.large),
            "sentence": self.describe(),
            "pairs": [asdict(each) for each in self.pairs[:LISTED] if each.degrees],
        }

    def tabulate(self) -> SummaryTable:
        """Table of the pairs, the most surely dependent first."""
        columns = ("pair", ">samples", ">statistic (df)", ">p", ">p of all", "furthest off")
        rows = [
            (
                " and ".join(each.variables),
                format_count(each.support),
                f"{decimal(each.statistic)} ({each.degrees})",
                decimal(each.p_value, 2),
                decimal(each.adjusted, 2),
                f"{100 * each.excess:+.1f} % {' and '.join(each.levels)}",
            )
            for each in self.pairs
            if each.degrees
        ]
        return SummaryTable("Bivariate residuals", columns, rows, len(rows), "residuals.table")

    def summary(self) -> Summary:
        """The pairs, the most surely dependent first: text in a terminal, HTML in a notebook."""
        return Summary(f"Bivariate residuals: {self.describe()}", tables=(self.tabulate(),))


def bivariate_residuals(model: JointPMF, samples: object) -> BivariateResiduals:
    """Test for each pair of variables whether they are independent within the latent states, as the model has it.

    Parameters
    ----------
    model
        Latent classes, fitted to these samples by `pmflib.fit_em`.
    samples
        Codes of shape (n_rows, n_variables), -1 missing; what the schema can encode; or `StoredSamples`, whose workers
        share the pass.

    Returns
    -------
    The residual of each pair that some sample holds.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model has forests or traits, or is an average of fits; or the samples have no rows.
    MemoryPlanError
        If prior and factors have more than ``MAX_ENTRIES`` entries, or pairs more cells than ``MAX_CROSSED`` allows.
    StoreError
        If stored samples are gone or damaged.

    Notes
    -----
    The residual of two levels is the sum over the samples with both variables of the posterior mean of (1 if the one is
    there, less its probability in the state) times the same of the other: the derivative of the log-likelihood by a
    direct effect within states that leaves their PMFs as they are, so that samples without one of the two say nothing
    of it, whatever else they lack. Its statistic is that sum over its spread, from which what the estimated parameters
    take up is projected out: asymptotically chi-squared, with answers missing at random. Pearson's residuals per degree
    of freedom, which other programs print as "BVR", have no known distribution.

    References
    ----------
    Oberski, van Kollenburg, Vermunt (2013), "A Monte Carlo evaluation of three methods to detect local dependence in
    binary data latent class models", for the score test; Rao (1948); Holm (1979).
    """
    check_model_type("model", model, JointPMF)
    if isinstance(model, TreePMF) or model.trait_model is not None or model.origin.get("final"):
        raise PmfError(
            "model has forests or traits, or is an average of fits; residuals within states are those of latent classes"
        )
    source = open_source(model, samples)
    n_entries, n_cells = _count_work(model)
    if n_entries > MAX_ENTRIES or n_cells * n_entries > MAX_CROSSED:
        raise MemoryPlanError(
            f"prior and factors have {n_entries} entries (at most {MAX_ENTRIES}), and the pairs {n_cells} free cells, "
            f"a product above {MAX_CROSSED:,}; lower the rank, or take fewer variables or levels"
        )
    return _conclude(_sum(model, source), read_parameters(model), model.schema)


def measure_small_residuals(
    model: JointPMF, source: BlockSource
) -> tuple[BivariateResiduals, PMFInformation] | None:
    """Residuals of latent classes that take less than a moment, and the information they are found by; None of others.

    Parameters
    ----------
    model
        Latent classes, a single fit.
    source
        Valid samples in memory that it was fitted to.
    """
    n_entries, n_cells = _count_work(model)
    if n_entries > MAX_ENTRIES or source.n_samples * (n_entries + n_cells) * n_entries > SMALL_WORK:
        return None
    sums = _sum(model, source)
    information = PMFInformation(sums.outer, None, sums.gradient, sums.mass)
    return _conclude(sums, read_parameters(model), model.schema), information


def _count_work(model: JointPMF) -> tuple[int, int]:
    """Entries of prior and factors, and free cells of all pairs."""
    return model.prior.size + model.factors.size, int(_list_cells(model.schema)[-1])


def _sum(model: JointPMF, source: BlockSource) -> _ResidualSums:
    n_entries, n_cells = _count_work(model)
    return source.map_in_turn(
        _sum_group,
        sum_fields,
        read_parameters(model),
        model.schema,
        result_bytes=8 * (n_entries + n_cells) * n_entries,
        name="residuals",
    )


def _list_cells(schema: Schema) -> IntArray:
    """First free cell of each pair of variables, in the order of `_iterate_pairs`, and the number of all."""
    free = np.diff(schema.offsets) - 1
    rows, columns = np.triu_indices(free.size, 1)
    return np.concatenate([[0], np.cumsum(free[rows] * free[columns])])


def _iterate_pairs(schema: Schema) -> Iterator[tuple[int, int, slice]]:
    """Both variables of each pair, and where its free cells are."""
    cells = _list_cells(schema).tolist()
    rows, columns = (each.tolist() for each in np.triu_indices(schema.n_variables, 1))
    for pair, (one, other) in enumerate(zip(rows, columns, strict=True)):
        yield one, other, slice(cells[pair], cells[pair + 1])


@dataclass(frozen=True, eq=False)
class _ResidualSums:
    """Sums over samples: additive.

    Parameters
    ----------
    outer, gradient, mass
        As of `PMFInformation`.
    residuals
        (n_cells,): residuals of the free cells of all pairs.
    crossed
        (n_cells, n_entries): their products with the scores.
    spreads
        (n_squares,): products of the residuals of each pair, one pair after the other.
    posteriors
        (n_pairs, rank): samples that hold both, by state.
    """

    outer: FloatArray
    gradient: FloatArray
    mass: FloatArray
    residuals: FloatArray
    crossed: FloatArray
    spreads: FloatArray
    posteriors: FloatArray


def _sum_group(group: BlockGroup, parameters: TreeParameters, schema: Schema) -> _ResidualSums:
    size, cells = list_pmfs(parameters)[0].size, _list_cells(schema)
    n_cells, squares = int(cells[-1]), np.diff(cells) ** 2
    sums = _ResidualSums(
        np.zeros((size, size)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(n_cells),
        np.zeros((n_cells, size)),
        np.zeros(int(squares.sum())),
        np.zeros((squares.size, parameters.prior.size)),
    )
    for rows in iterate_scores(iterate_distinct(group), parameters):
        weighted = rows.scores * rows.weights[:, None]
        sums.outer[...] += weighted.T @ rows.scores
        sums.gradient[...] += weighted.sum(axis=0)
        sums.mass[...] += rows.weights @ rows.masses
        _add_residuals(rows, parameters, schema, sums)
    return sums


def _add_residuals(
    rows: RowScores, parameters: TreeParameters, schema: Schema, sums: _ResidualSums
) -> None:
    rank, first = parameters.prior.size, 0
    free, tables = _list_free(parameters, schema)
    for pair, (one, other, own) in enumerate(_iterate_pairs(schema)):
        both = np.flatnonzero((rows.codes[:, one] >= 0) & (rows.codes[:, other] >= 0))
        n_own = own.stop - own.start
        if both.size and n_own:
            posteriors, weights = rows.masses[both, :rank], rows.weights[both]
            left, right = tables[one], tables[other]
            has_left, has_right = (
                (rows.codes[both, each, None] == free[each]).astype(np.float64)
                for each in (one, other)
            )
            found = has_left[:, :, None] * has_right[:, None, :]
            found -= has_left[:, :, None] * (posteriors @ right)[:, None, :]
            found -= (posteriors @ left)[:, :, None] * has_right[:, None, :]
            found = found.reshape(both.size, n_own)
            found += posteriors @ (left[:, :, None] * right[:, None, :]).reshape(rank, n_own)
            weighted = found * weights[:, None]
            sums.residuals[own] += weighted.sum(axis=0)
            sums.crossed[own] += weighted.T @ rows.scores[both]
            sums.spreads[first : first + n_own**2] += (weighted.T @ found).ravel()
            sums.posteriors[pair] += weights @ posteriors
        first += n_own**2


def _list_free(
    parameters: TreeParameters, schema: Schema
) -> tuple[list[IntArray], list[FloatArray]]:
    """Levels of each variable but the most probable, which has what the others leave; and their PMFs by state."""
    factors = parameters.tables.reshape(parameters.prior.size, -1)
    levels, tables = [], []
    for start, stop in zip(schema.offsets[:-1], schema.offsets[1:], strict=True):
        own = factors[:, start:stop]
        free = np.delete(np.arange(stop - start), int((parameters.prior @ own).argmax()))
        levels.append(free)
        tables.append(own[:, free])
    return levels, tables


def _conclude(
    sums: _ResidualSums, parameters: TreeParameters, schema: Schema
) -> BivariateResiduals:
    """Statistics of all pairs that some sample holds, from the sums."""
    from scipy.special import chdtrc

    known, correction = _project(sums, parameters)
    crossed = sums.crossed @ known
    free, tables = _list_free(parameters, schema)
    found, first = [], 0
    for pair, (one, other, own) in enumerate(_iterate_pairs(schema)):
        n_own = own.stop - own.start
        spread = sums.spreads[first : first + n_own**2].reshape(n_own, n_own)
        first += n_own**2
        support = float(sums.posteriors[pair].sum())
        if not support:
            continue
        left, right = (tables[each] * (1 - tables[each]) for each in (one, other))
        expected = np.einsum("f,fa,fb->ab", sums.posteriors[pair], left, right).ravel()
        tested = np.flatnonzero(expected >= LEAST_EXPECTED)
        part, own_spread = crossed[own][tested], spread[np.ix_(tested, tested)]
        residual = sums.residuals[own]
        statistic, degrees = _test(
            residual[tested] - part @ correction, own_spread, own_spread - part @ part.T
        )
        levels, excess = _find_furthest(
            residual / support,
            free[one],
            free[other],
            schema[one].cardinality,
            schema[other].cardinality,
        )
        found.append(
            PairResidual(
                (schema[one].name, schema[other].name),
                round(support),
                statistic,
                degrees,
                float(chdtrc(degrees, statistic)) if degrees else float("nan"),
                float("nan"),
                (str(schema[one].levels[levels[0]]), str(schema[other].levels[levels[1]])),
                excess,
            )
        )
    return BivariateResiduals(_adjust(found))


def _project(sums: _ResidualSums, parameters: TreeParameters) -> tuple[FloatArray, FloatArray]:
    """Directions in which the parameters were estimated, of unit information, and what is left of their scores."""
    entries, starts = list_pmfs(parameters)
    sizes = np.diff(np.append(starts, entries.size))
    samples = np.repeat(np.add.reduceat(sums.mass, starts), sizes)
    scales = np.sqrt(entries / np.maximum(samples, LEAST_MASS))
    is_moving = (entries > LEAST_ENTRY) & (samples >= LEAST_MASS) & np.repeat(sizes > 1, sizes)
    steps = scales[:, None] * span_steps(scales, starts, sizes, is_moving)
    values, vectors = np.linalg.eigh(steps.T @ sums.outer @ steps)
    kept = values > NULL_SHARE * values.max(initial=0.0)
    known = steps @ (vectors[:, kept] / np.sqrt(values[kept]))
    return known, known.T @ sums.gradient


def _test(residual: FloatArray, spread: FloatArray, left: FloatArray) -> tuple[float, int]:
    """Statistic and degrees of freedom of a residual, from its spread and what the parameters leave of that."""
    scale = np.sqrt(np.diagonal(spread))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(left / scale / scale[:, None])
    kept = values > LEAST_LEFT
    turned = vectors[:, kept].T @ (residual / scale)
    return float((turned**2 / values[kept]).sum()), int(kept.sum())


def _find_furthest(
    residual: FloatArray, rows: IntArray, columns: IntArray, n_rows: int, n_columns: int
) -> tuple[tuple[int, int], float]:
    """The two levels whose residual is furthest from 0, and that; what is not free has what the others leave."""
    whole = np.zeros((n_rows, n_columns))
    whole[np.ix_(rows, columns)] = residual.reshape(rows.size, columns.size)
    (row,) = np.setdiff1d(np.arange(n_rows), rows)
    (column,) = np.setdiff1d(np.arange(n_columns), columns)
    whole[row] = -whole.sum(axis=0)
    whole[:, column] = -whole.sum(axis=1)
    # equal shares have equal bits up to the last: the first is taken
    place = np.unravel_index(int(np.round(np.abs(whole), 12).argmax()), whole.shape)
    return (int(place[0]), int(place[1])), float(whole[place])


def _adjust(found: list[PairResidual]) -> tuple[PairResidual, ...]:
    """Pairs by rising p-value, with Holm's p-values."""
    tested = sorted(
        (each for each in found if each.degrees), key=lambda each: (each.p_value, -each.per_degree)
    )
    adjusted, highest = [], 0.0
    for place, each in enumerate(tested):
        highest = min(1.0, max(highest, (len(tested) - place) * each.p_value))
        adjusted.append(replace(each, adjusted=highest))
    return (*adjusted, *(each for each in found if not each.degrees))
