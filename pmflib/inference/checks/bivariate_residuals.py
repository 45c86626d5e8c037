"""Bivariate residuals: tests of dependence between pairs of variables within the latent states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block, DenseBlock, weigh_rows
from pmflib.base.display.drawing import Axes
from pmflib.base.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.base.errors import MemoryPlanError
from pmflib.base.wald import LEVEL, adjust_by_holm
from pmflib.em.block_source import BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.stored_samples import open_source
from pmflib.information.covariance import NULL_SHARE, PMFInformation, Spectrum
from pmflib.information.kinds import open_information, open_single_fit
from pmflib.information.model_information import ModelInformation
from pmflib.information.parameter_errors import MAX_ENTRIES
from pmflib.information.scores import StateRows
from pmflib.model import JointPMF
from pmflib.model.sufficient_statistics import sum_fields
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockGroup

MAX_CROSSED = 20_000_000
"""Limit of the products of pair cells and parameters in memory: 0.2 GB."""
SMALL_WORK = 2_000_000_000
"""Limit of the work of the residuals that every fit reports (samples times parameters times parameters, cells and
states): some tenths of a second."""
LEAST_SAMPLES = 1000
"""Minimum size of a subset of the samples, where all of them would take longer."""
LISTED = 10
"""Maximum number of pairs recorded with a model."""
LEAST_LEFT = 0.1
"""Minimum share of the variance of a residual that is left after estimating the parameters, for it to be tested."""
LEAST_EXPECTED = 10.0
"""Minimum expected sum of squares of the residual of two levels: each sample adds at most 1, and few do not determine
its variance."""


@dataclass(frozen=True)
class PairResidual:
    """Residual dependence between two variables, given the latent state.

    Parameters
    ----------
    variables
        Their names.
    support
        Samples with both variables observed.
    statistic, degrees
        Score statistic of direct effects, and its degrees of freedom: 0 if the parameters leave nothing to test.
    p_value
        P-value of the statistic, in [0, 1]; NaN without degrees of freedom.
    adjusted
        P-value adjusted for all pairs by Holm's method; below .05 the pair contradicts the model.
    levels, excess
        The pair of levels with the largest residual, and that residual: the share of the samples with both levels,
        less its expectation under the model given these samples, in (-1, 1).
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
        """Whether the residual is significant after correction for all pairs."""
        return self.adjusted < LEVEL

    @property
    def per_degree(self) -> float:
        """Statistic per degree of freedom; its expectation under the model is 1; NaN without degrees of freedom."""
        return self.statistic / self.degrees if self.degrees else float("nan")


@dataclass(frozen=True)
class BivariateResiduals(Summarised):
    """Residuals of all observed pairs of variables with at least two levels.

    Parameters
    ----------
    pairs
        The pairs, by increasing p-value; untested ones last.
    n_taken
        Size of the random subset of the training samples that was used; None is all of them.
    """

    pairs: tuple[PairResidual, ...]
    n_taken: int | None = None

    @property
    def large(self) -> tuple[PairResidual, ...]:
        """Pairs with a significant residual."""
        return tuple(each for each in self.pairs if each.is_large)

    @cached_property
    def table(self) -> pa.Table:
        """All pairs as an Arrow table with one row per pair."""
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
        """One line with the number of dependent pairs."""
        n_tested = sum(each.degrees > 0 for each in self.pairs)
        if not n_tested:
            return "the parameters leave no pair to test"
        said = f"{format_count(len(self.large))} of {format_count(n_tested)} pairs contradict the model"
        if self.large:
            said += f", most of all {' and '.join(self.large[0].variables)}"
        if self.n_taken is not None:
            said += f" (by {format_count(self.n_taken)} samples drawn from them)"
        return said

    def to_json(self) -> dict[str, object]:
        """Numbers of pairs, of tested and of significant ones, and the first pairs, in plain JSON types."""
        return {
            "n_pairs": len(self.pairs),
            "n_tested": sum(each.degrees > 0 for each in self.pairs),
            "n_contradicting": len(self.large),
            "n_taken": self.n_taken,
            "sentence": self.describe(),
            "pairs": [asdict(each) for each in self.pairs[:LISTED] if each.degrees],
        }

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw all pairs as a heat map: see `pmflib.fits.figures.plot_residuals`.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or there is no pair.
        """
        from pmflib.fits.figures import plot_residuals

        # schema order, as far as the pairs determine it: the first variable of a pair comes before the second
        names = self._list_names()
        places = {name: place for place, name in enumerate(names)}
        per_degree = np.full((len(names), len(names)), np.nan)
        is_large = np.zeros(per_degree.shape, bool)
        for each in self.pairs:
            one, other = (places[name] for name in each.variables)
            per_degree[one, other] = per_degree[other, one] = each.per_degree
            is_large[one, other] = is_large[other, one] = each.is_large
        return plot_residuals(names, per_degree, is_large, ax=ax)

    def _list_names(self) -> list[str]:
        """Variable names in schema order, recovered from the pairs."""
        befores = Counter(each.variables[0] for each in self.pairs)
        names = dict.fromkeys(name for each in self.pairs for name in each.variables)
        return sorted(names, key=lambda name: -befores[name])

    def tabulate(self) -> SummaryTable:
        """Table of the pairs by increasing p-value."""
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
        """Summary of the pairs by increasing p-value."""
        return Summary(f"Bivariate residuals: {self.describe()}", tables=(self.tabulate(),))


def bivariate_residuals(
    model: JointPMF, samples: object, *, weight: object | None = None
) -> BivariateResiduals:
    """Test each pair of variables for independence within the latent states.

    Parameters
    ----------
    model
        Latent classes or forests of `pmflib.fit_em`, or traits of `pmflib.families.fit_item_responses`, fitted to
        these samples.
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing; what the schema can encode; or `StoredSamples`, whose
        workers share the pass.
    weight
        Weights of samples in memory, as for `pmflib.fit_em`; statistics use the effective number of samples.

    Returns
    -------
    The residual of each pair that is observed in some sample.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model is an average of fits, or has traits of `pmflib.families.fit_traits`; or the samples have no rows.
    MemoryPlanError
        If the model has more than ``MAX_ENTRIES`` parameters, or pairs more cells than ``MAX_CROSSED`` allows.
    StoreError
        If stored samples are gone or damaged.

    Notes
    -----
    The residual of two levels is a sum over the samples with both variables observed: the posterior mean of the product
    of both deviations, each the indicator of the level less its probability in the state. It is the score of a direct
    effect within states that keeps their PMFs, so samples that lack one of the two variables do not contribute. The
    statistic divides it by its variance, after projecting out the scores of the estimated parameters: asymptotically
    chi-squared, with answers missing at random. Pearson's residuals per degree of freedom, which other programs print
    as "BVR", have no known distribution.

    In forests the probability of a level is conditional on the state and on the neighbours of its variable, and states
    in which both variables are neighbours do not contribute. Missing neighbours are imputed by draws from the model,
    which keeps the mean of a residual; the variance includes them.

    References
    ----------
    Oberski, van Kollenburg, Vermunt (2013), "A Monte Carlo evaluation of three methods to detect local dependence in
    binary data latent class models", for the score test; Rao (1948); Holm (1979).
    """
    information = open_single_fit(model)
    source = open_source(model.schema, information.n_states, samples, weight)
    n_entries, n_cells = count_work(model)
    if n_entries > MAX_ENTRIES or n_cells * n_entries > MAX_CROSSED:
        raise MemoryPlanError(
            f"the model has {n_entries} parameters (at most {MAX_ENTRIES}), and the pairs {n_cells} free cells, "
            f"a product above {MAX_CROSSED:,}; lower the rank, or take fewer variables or levels"
        )
    return _conclude(sum_residuals(model, source), model)


def measure_residuals(
    model: JointPMF, source: BlockSource
) -> tuple[BivariateResiduals, PMFInformation | None] | None:
    """Residuals reported with every fit, from a subset of its samples that takes a moment; None if it is too small.

    Parameters
    ----------
    model
        Latent classes, forests, or traits on a grid: a single fit.
    source
        Valid samples that it was fitted to; stored samples return None.

    Returns
    -------
    The residuals, and the information of latent classes where all samples were taken.
    """
    (n_entries, n_cells), n_rows = count_work(model), source.n_samples
    work = (n_entries + n_cells + model.rank) * n_entries
    share = min(1.0, SMALL_WORK / max(work * n_rows, 1))
    if not isinstance(source, BlocksInMemory) or n_entries > MAX_ENTRIES or work > MAX_CROSSED:
        return None
    if share < 1.0 and n_rows * share < LEAST_SAMPLES:
        return None
    sums = sum_residuals(model, source, share)
    is_whole = share == 1.0 and open_information(model).has_free_factors
    information = PMFInformation(sums.outer, None, sums.gradient, sums.mass) if is_whole else None
    found = _conclude(sums, model)
    if share < 1.0:
        found = replace(found, n_taken=round(sums.n_samples))
    return found, information


def _conclude(sums: ResidualSums, model: JointPMF) -> BivariateResiduals:
    """Test statistics of all observed pairs, from the sums."""
    from scipy.special import chdtrc

    schema, known = model.schema, find_directions(sums, open_information(model))
    correction, crossed = known.T @ sums.gradient, sums.crossed @ known
    free = list_free(model)
    found, first = [], 0
    for pair, (one, other, own) in enumerate(iterate_pairs(schema)):
        n_own = own.stop - own.start
        spread = sums.spreads[first : first + n_own**2].reshape(n_own, n_own)
        first += n_own**2
        support = float(sums.support[pair])
        if not support:
            continue
        tested = np.flatnonzero(sums.expected[own] >= LEAST_EXPECTED)
        part, own_spread = crossed[own][tested], spread[tested[:, None], tested]
        residual = sums.residuals[own]
        statistic, degrees = _test(
            residual[tested] - part @ correction, own_spread, own_spread - part @ part.T
        )
        levels, excess = _find_furthest(residual / support, free[one], free[other])
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


def _test(residual: FloatArray, spread: FloatArray, left: FloatArray) -> tuple[float, int]:
    """Test statistic and degrees of freedom of a residual, from its covariance after estimating the parameters."""
    scale = np.sqrt(np.diagonal(spread))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(left / scale / scale[:, None])
    kept = values > LEAST_LEFT
    turned = vectors[:, kept].T @ (residual / scale)
    return float((turned**2 / values[kept]).sum()), int(kept.sum())


def _find_furthest(
    residual: FloatArray, rows: IntArray, columns: IntArray
) -> tuple[tuple[int, int], float]:
    """The pair of levels with the largest absolute residual, and that residual."""
    whole = np.zeros((rows.size + 1, columns.size + 1))
    whole[rows[:, None], columns] = residual.reshape(rows.size, columns.size)
    # the only level that is not free, by the sum of all: wide tables have thousands of pairs
    row, column = (each.size * (each.size + 1) // 2 - int(each.sum()) for each in (rows, columns))
    whole[row] = -whole.sum(axis=0)
    whole[:, column] = -whole.sum(axis=1)
    # equal shares may differ in the last bits: take the first
    place = divmod(int(np.round(np.abs(whole), 12).argmax()), columns.size + 1)
    return place, float(whole[place])


def _adjust(found: list[PairResidual]) -> tuple[PairResidual, ...]:
    """Pairs by rising p-value, with Holm's p-values."""
    tested = sorted(
        (each for each in found if each.degrees), key=lambda each: (each.p_value, -each.per_degree)
    )
    values = adjust_by_holm([each.p_value for each in tested])
    adjusted = [replace(each, adjusted=value) for each, value in zip(tested, values, strict=True)]
    return (*adjusted, *(each for each in found if not each.degrees))


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """Sums over samples that the tests of all pairs need; additive.

    Parameters
    ----------
    outer, gradient
        (n_entries, n_entries) and (n_entries,): sums of the products of scores, and of scores.
    mass
        (n_entries,): expected samples by PMF entry, as in `pmflib.information.scores.StateRows`.
    residuals
        (n_cells,): residuals of the free cells of all pairs.
    expected
        (n_cells,): expected sums of their squares under the model.
    crossed
        (n_cells, n_entries): products of residuals and scores.
    spreads
        (n_squares,): products of residuals within each pair, pair after pair.
    support
        (n_pairs,): samples with both variables observed.
    n_samples
        Number of samples with any variable observed.
    """

    outer: FloatArray
    gradient: FloatArray
    mass: FloatArray
    residuals: FloatArray
    expected: FloatArray
    crossed: FloatArray
    spreads: FloatArray
    support: FloatArray
    n_samples: float


def count_work(model: JointPMF) -> tuple[int, int]:
    """Number of parameters of a model, and of free cells of all pairs."""
    return open_information(model).n_entries, int(list_cells(model.schema)[-1])


def list_cells(schema: Schema) -> IntArray:
    """Offset of the first free cell of each pair, in the order of `iterate_pairs`, and the total."""
    free = np.diff(schema.offsets) - 1
    rows, columns = np.triu_indices(free.size, 1)
    return np.concatenate([[0], np.cumsum(free[rows] * free[columns])])


def iterate_pairs(schema: Schema) -> Iterator[tuple[int, int, slice]]:
    """Both variables of each pair, and the slice of its free cells."""
    cells = list_cells(schema).tolist()
    rows, columns = (each.tolist() for each in np.triu_indices(schema.n_variables, 1))
    for pair, (one, other) in enumerate(zip(rows, columns, strict=True)):
        yield one, other, slice(cells[pair], cells[pair + 1])


def list_free(model: JointPMF) -> list[IntArray]:
    """Free levels of each variable: all but the most probable one."""
    singles = model.factors @ model.prior
    parts = [singles[model.schema.rows_of(k)] for k in range(model.schema.n_variables)]
    return [np.delete(np.arange(each.size), int(each.argmax())) for each in parts]


def sum_residuals(model: JointPMF, source: BlockSource, share: float = 1.0) -> ResidualSums:
    """Add up residuals and scores over samples.

    Parameters
    ----------
    model
        Latent classes, forests, or traits on a grid: a single fit.
    source
        Valid samples.
    share
        Share of the samples that is drawn, in (0, 1], with seeds that depend on the blocks alone.
    """
    n_entries, n_cells = count_work(model)
    return source.map_in_turn(
        _sum_group,
        sum_fields,
        open_information(model),
        share,
        result_bytes=8 * (n_entries + n_cells) * n_entries,
        name="residuals",
    )


def _sum_group(group: BlockGroup, information: ModelInformation, share: float) -> ResidualSums:
    model: JointPMF = information.model
    size, cells = information.n_entries, list_cells(model.schema)
    n_cells = int(cells[-1])
    squares = np.diff(cells) ** 2
    sums = ResidualSums(
        np.zeros((size, size)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(n_cells),
        np.zeros(n_cells),
        np.zeros((n_cells, size)),
        np.zeros(int(squares.sum())),
        np.zeros(squares.size),
        0.0,
    )
    blocks = (_draw_samples(block, model.schema, share) for block in iterate_distinct(group))
    free = list_free(model)
    n_samples = 0.0
    for rows in information.iterate_rows(blocks, free):
        weighted = rows.scores * rows.weights[:, None]
        sums.outer[...] += weighted.T @ rows.scores
        sums.gradient[...] += weighted.sum(axis=0)
        sums.mass[...] += rows.mass
        _add_pairs(rows, model.schema, free, sums)
        n_samples += float(rows.weights.sum())
    return replace(sums, n_samples=n_samples)


def _draw_samples(block: Block, schema: Schema, share: float) -> DenseBlock:
    """Draw a share of the samples of a block."""
    codes, weights = block.to_codes(schema.offsets), weigh_rows(block)
    if share < 1.0:
        rng = np.random.default_rng([block.n_rows, block.n_observed])
        times = np.ceil(weights)
        weights = rng.binomial(times.astype(np.int64), share) * (weights / times)
        codes, weights = codes[weights > 0], weights[weights > 0]
    return DenseBlock(codes, weights)


def _add_pairs(rows: StateRows, schema: Schema, free: list[IntArray], sums: ResidualSums) -> None:
    """Add the residuals of some rows to the sums, in place."""
    known, first = rows.codes >= 0, 0
    marks = [
        (rows.codes[:, each, None] == levels).astype(np.float64) for each, levels in enumerate(free)
    ]
    for pair, (one, other, own) in enumerate(iterate_pairs(schema)):
        both = np.flatnonzero(known[:, one] & known[:, other])
        n_own = own.stop - own.start
        if both.size and n_own:
            weights = rows.weights[both]
            has_left, has_right = marks[one][both], marks[other][both]
            posteriors = rows.posteriors[both]
            left, right = rows.chances[one], rows.chances[other]
            if left.ndim == 2:
                found, expected = _multiply(has_left, has_right, posteriors, left, right, weights)
            else:
                states = rows.apart.get((one, other), np.arange(posteriors.shape[1]))
                found, expected = _multiply_in_rows(
                    has_left,
                    has_right,
                    posteriors[:, states],
                    left[np.ix_(both, states)],
                    right[np.ix_(both, states)],
                    weights,
                )
            weighted = found * weights[:, None]
            sums.residuals[own] += weighted.sum(axis=0)
            sums.expected[own] += expected
            sums.crossed[own] += weighted.T @ rows.scores[both]
            sums.spreads[first : first + n_own**2] += (weighted.T @ found).ravel()
            sums.support[pair] += weights.sum()
        first += n_own**2


def _multiply(
    has_left: FloatArray,
    has_right: FloatArray,
    posteriors: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of the products of two deviations (n_rows, n_cells), and the expected sum of their squares."""
    rank, n_cells = len(left), left.shape[1] * right.shape[1]
    found = has_left[:, :, None] * has_right[:, None, :]
    found -= has_left[:, :, None] * (posteriors @ right)[:, None, :]
    found -= (posteriors @ left)[:, :, None] * has_right[:, None, :]
    found = found.reshape(-1, n_cells)
    found += posteriors @ (left[:, :, None] * right[:, None, :]).reshape(rank, n_cells)
    spreads = (left * (1 - left))[:, :, None] * (right * (1 - right))[:, None, :]
    return found, (weights @ posteriors) @ spreads.reshape(rank, n_cells)


def _multiply_in_rows(
    has_left: FloatArray,
    has_right: FloatArray,
    posteriors: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """The same with probabilities by row, (n_rows, n_states, n_free)."""
    n_rows = len(posteriors)
    by_state = posteriors[:, :, None]
    deviations = ((has_left[:, None, :] - left) * by_state).transpose(0, 2, 1)
    found = deviations @ (has_right[:, None, :] - right)
    spreads = (left * (1 - left) * by_state).transpose(0, 2, 1) @ (right * (1 - right))
    return found.reshape(n_rows, -1), weights @ spreads.reshape(n_rows, -1)


def find_directions(sums: ResidualSums, information: ModelInformation) -> FloatArray:
    """Directions of unit information in parameter space: (n_entries, n_directions)."""
    steps = information.find_steps(sums.outer, sums.mass)
    known = Spectrum.find(steps.T @ sums.outer @ steps, NULL_SHARE, relative=True)
    return np.asarray(steps @ known.whiten())
