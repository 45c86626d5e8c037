"""Bias-adjusted three-step estimation: outcomes by class, and classes by covariates.

The first step fits the classes without the outcome or the covariates; the second assigns each row to classes; the third
relates the assignment to the other variable and corrects for classification error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, check_model_type, check_row_order
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import Interval, OneOf, at_least, check, check_rows
from pmflib.base.display.progress import report_step, working
from pmflib.base.errors import ConvergenceWarning, IdentificationWarning, PmfError
from pmflib.base.replicate_weights import NORMAL_QUANTILE
from pmflib.base.texts import list_some
from pmflib.base.variance import Variance
from pmflib.base.wald import WaldTest, adjust_by_holm, find_wald_test
from pmflib.base.weights import read_shares
from pmflib.inference.three_steps.assigned_classes import (
    Assigned,
    Design,
    LevelOutcome,
    Logits,
    Means,
    NormalOutcome,
    Penalised,
    Solution,
)
from pmflib.inference.three_steps.classification import check_classes, tabulate_assignment
from pmflib.inference.three_steps.three_step_results import (
    ClassDifference,
    ClassRegression,
    DistalOutcome,
)
from pmflib.information.kinds import open_information
from pmflib.information.latent_classes import ClassInformation
from pmflib.information.parameter_errors import MAX_ENTRIES
from pmflib.model import JointPMF
from pmflib.schema.tables import as_arrow
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import read_number
from pmflib.surveys.drafting.column_meaning import find_identifier, find_times

Correction = Literal["bch", "ml"]
"""Correction for classification error."""
How = Literal["modal", "proportional"]
"""Assignment of rows to classes."""
LEAST_SHARE = 1e-3
"""Share of the largest change of log-odds along a direction from which a coefficient is a part of it."""
INFINITE_SHARE = 0.25
"""Share of the largest change of log-odds over a covariate's range from which an open coefficient is infinite; where
covariates separate classes wholly, smaller ones are open as well, and unknown.
"""
LEAST_SINGULAR = 1e-3
"""Minimum singular value of the classification matrix for it to be inverted."""


def distal_outcome(
    model: JointPMF,
    samples: object,
    outcome: object,
    *,
    correction: Correction = "bch",
    assignment: How = "modal",
    weight: object | None = None,
    design: Variance | None = None,
    fitted: object | None = None,
) -> DistalOutcome:
    """Estimate a distal outcome, which was not used to fit the classes, for each latent class.

    Parameters
    ----------
    model
        Latent classes or forests, a single fit of `pmflib.fit_em` to these samples.
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing, or a table that the schema can encode.
    outcome
        One value per row: numbers give means, texts and categories give shares. Missing values (None, NaN) are omitted.
    correction
        "bch" weights rows so that classification errors cancel, for any distribution of the outcome; "ml" assumes a
        normal distribution in each class, with its own variance, or a PMF.
    assignment
        "modal" assigns each row to its most likely class; "proportional" to each class by its posterior.
    weight
        float64 of shape (n_rows,), at least 0: weights of the rows; None is 1.
    design
        Sampling design of the rows, in place of ``weight``: its weights, strata and units, or replicates. Errors follow
        from the influence of each row, without refits.
    fitted
        bool of shape (n_rows,): rows that the model was fitted to; None is all. The others do not contribute to the
        uncertainty of the model.

    Returns
    -------
    Estimates, errors and tests. With "bch", shares of levels may be outside [0, 1] in small classes.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If an argument is out of range, no row of a class has the outcome, the model is no single fit of latent classes,
        or classes overlap so much that errors cannot be undone.

    Warns
    -----
    IdentificationWarning
        If the errors do not include the first step, or not all of it.
    ConvergenceWarning
        If the estimates have not converged.

    Notes
    -----
    Rows may lack some of the indicators. Errors are robust (sandwich) errors of the estimating equations of all three
    steps together, which hold for any distribution of the outcome. An outcome that depends on the indicators within
    classes biases the estimates themselves.

    References
    ----------
    Bolck, Croon, Hagenaars (2004), Political Analysis 12(1); Vermunt (2010), Political Analysis 18(4); Bakk, Tekle,
    Vermunt (2013), Sociological Methodology 43(1); Bakk, Oberski, Vermunt (2014), Political Analysis 22(4), and Newey,
    McFadden (1994), section 6, for the errors.
    """
    check_row_order(samples, outcome=outcome, weight=weight, design=design, fitted=fitted)
    drawn = read_draws(weight, design, fitted)
    first = assign_rows(model, samples, assignment, correction, drawn)
    values, levels = _read_column("outcome", outcome, first.n_rows)
    own = first.keep(values[:, None], "the outcome")
    known, rank = values[first.rows[own]], model.rank
    law = _choose_law(known, levels, rank, correction)
    solution = first.open_rows(own, correction).solve(law)
    notes = () if solution.converged else warn_of_steps()
    estimates, jacobian = _read_solution(law, solution.parameters, rank)
    covariance, alone = first.find_covariances(solution, own, jacobian)
    shape = (rank,) if levels is None else (rank, len(levels))
    if levels is not None and correction == "bch" and ((estimates < 0) | (estimates > 1)).any():
        notes += ('shares are outside [0, 1]: a class is small; take correction="ml"',)
    every = np.arange(estimates.size).reshape(rank, -1)
    return DistalOutcome(
        **first.describe(
            estimates.reshape(shape), covariance, alone, correction, assignment, own, notes
        ),
        levels=levels,
        test=_test_differences(estimates, covariance, every[1:], every[:1]),
        pairs=_compare_classes(estimates, covariance, every),
    )


def _choose_law(
    known: FloatArray, levels: tuple[str, ...] | None, rank: int, correction: Correction
) -> Design:
    """Choose the model of the outcome within classes: its means, or a distribution fitted by maximum likelihood."""
    if levels is None:
        return Means(known[:, None], rank) if correction == "bch" else NormalOutcome(known, rank)
    codes = known.astype(np.int64)
    if correction == "bch":
        return Means(np.eye(len(levels))[codes], rank)
    return LevelOutcome(codes, len(levels), rank)


def _read_solution(
    design: Design, parameters: FloatArray, rank: int
) -> tuple[FloatArray, FloatArray]:
    """Means or shares of each class in turn, and their derivatives by the parameters."""
    if isinstance(design, NormalOutcome):
        return parameters[rank : 2 * rank], np.eye(3 * rank)[rank : 2 * rank]
    if not isinstance(design, LevelOutcome):
        return parameters, np.eye(parameters.size)
    shares = np.exp(design.split(parameters)[1])
    n_levels = len(shares[0])
    jacobian = np.zeros((shares.size, parameters.size))
    for each in range(rank):
        at = slice(each * n_levels, (each + 1) * n_levels)
        columns = slice(rank + at.start, rank + at.stop)
        jacobian[at, columns] = np.diag(shares[each]) - np.outer(shares[each], shares[each])
    return shares.ravel(), jacobian


def _compare_classes(
    estimates: FloatArray, covariance: FloatArray, every: IntArray
) -> tuple[ClassDifference, ...]:
    """Test each pair of classes; ``every`` has the indices of the estimates of each class, (rank, n_each)."""
    pairs = [
        (pair, _test_differences(estimates, covariance, every[[pair[0]]], every[[pair[1]]]))
        for pair in combinations(range(len(every)), 2)
    ]
    adjusted = adjust_by_holm([test.p_value for _, test in pairs])
    return tuple(
        ClassDifference(pair, test, value)
        for (pair, test), value in zip(pairs, adjusted, strict=True)
    )


def class_regression(
    model: JointPMF,
    samples: object,
    covariates: object,
    *,
    reference: int | None = None,
    correction: Correction = "ml",
    assignment: How = "modal",
    penalised: bool = False,
    weight: object | None = None,
    design: Variance | None = None,
    fitted: object | None = None,
) -> ClassRegression:
    """Regress the latent class on external covariates by a multinomial logit.

    Parameters
    ----------
    model, samples, assignment, weight, design, fitted
        As for `distal_outcome`.
    covariates
        A table in memory with one row per sample. Numbers are used as they are; texts become indicators of their levels
        except the first. Rows with a missing covariate are omitted. Dates, identifiers, and columns of one value are
        refused.
    reference
        Reference class; None is the largest.
    correction
        "ml", or "bch", as for `distal_outcome`.
    penalised
        Whether to add Jeffreys' prior (Firth's method), with which coefficients are finite even if a covariate
        separates classes; for "ml" only.

    Returns
    -------
    Coefficients, errors, and a test of each covariate. Coefficients without a finite estimate are infinite or NaN, and
    have neither error nor test.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema, or covariates are no table.
    PmfError
        As for `distal_outcome`; also of one class, if covariates determine each other, or if one is unfit.

    Warns
    -----
    IdentificationWarning
        If a covariate separates classes; or if the errors do not include the first step, or not all of it.
    ConvergenceWarning
        If the estimates have not converged.

    References
    ----------
    As for `distal_outcome`; Firth (1993), Biometrika 80(1); Albert, Anderson (1984), Biometrika 71(1), for separation.
    """
    check_row_order(samples, covariates=covariates, weight=weight, design=design, fitted=fitted)
    drawn = read_draws(weight, design, fitted)
    first = assign_rows(model, samples, assignment, correction, drawn)
    check(at_least(2, "as no covariate predicts a single class"), rank=model.rank)
    if reference is None:
        reference = int(model.prior.argmax())
    check(Interval(0, model.rank - 1), reference=reference)
    if penalised:
        check(OneOf(("ml",), "as other weights may be negative"), correction=correction)
    matrix, names, owners = _read_covariates(covariates, first.n_rows)
    own = first.keep(matrix, "all covariates")
    taken = matrix[first.rows[own]]
    centre, scale = taken[:, 1:].mean(axis=0), taken[:, 1:].std(axis=0)
    if (scale == 0).any() or np.linalg.matrix_rank(taken / np.append(1.0, scale)) < len(names):
        constant = [name for name, each in zip(names[1:], scale, strict=True) if each == 0]
        which = (
            f"{', '.join(constant)} has one value" if constant else "columns determine each other"
        )
        raise PmfError(f"covariates cannot be distinguished: {which}; leave one out")
    # Newton steps use standardised columns
    to_units = np.eye(len(names))
    to_units[0, 1:] = -centre / scale
    to_units[1:, 1:] = np.diag(1 / scale)
    logits = Logits(taken @ to_units, model.rank)
    with working("class_regression"):
        solution = first.open_rows(own, correction, penalised=penalised).solve(logits, report_step)
    loose = logits.find_separated(solution.parameters, first.weights[own], reference)
    # changes of log-odds over the range of each column
    ranges = np.append(1.0, np.ptp(taken[:, 1:], axis=0))
    moved = np.abs(loose @ to_units.T) * ranges
    is_loose = (moved > LEAST_SHARE * moved.max(axis=(1, 2), keepdims=True)).any(axis=0)
    notes = () if solution.converged or is_loose.any() else warn_of_steps()
    contrast = np.eye(model.rank)
    contrast[:, reference] -= 1
    jacobian: FloatArray = np.asarray(np.kron(contrast, to_units), np.float64)
    estimates: FloatArray = jacobian @ solution.parameters
    with np.errstate(over="ignore", invalid="ignore"):
        # infinite coefficients overflow
        covariance, alone = first.find_covariances(solution, own, jacobian)
    if is_loose.any():
        effects = np.abs(estimates.reshape(is_loose.shape)) * ranges * is_loose
        is_infinite = effects > INFINITE_SHARE * effects.max()
        notes += _note_separation(is_infinite, names, reference)
        places = np.flatnonzero(is_loose)
        ends = np.where(is_infinite.ravel()[places], np.inf, np.nan)
        estimates[places] = np.copysign(ends, estimates[places])
        for known in (covariance, alone):
            known[places] = known[:, places] = np.nan
    others = np.delete(np.arange(model.rank), reference)
    tests = {}
    for owner in dict.fromkeys(owners[1:]):
        columns = [place for place, each in enumerate(owners) if each == owner]
        if is_loose[:, columns].any():
            tests[owner] = WaldTest(float("nan"), 0, float("nan"))
            continue
        places = (others[:, None] * len(names) + np.array(columns)).ravel()
        tests[owner] = find_wald_test(estimates[places], covariance[np.ix_(places, places)])
    shaped = estimates.reshape(model.rank, -1)
    return ClassRegression(
        **first.describe(shaped, covariance, alone, correction, assignment, own, notes),
        covariates=tuple(names),
        reference=reference,
        tests=tests,
    )


def _note_separation(
    is_infinite: BoolArray, names: Sequence[str], reference: int
) -> tuple[str, ...]:
    """Warn of covariates that separate classes, and return the warning."""
    found = [
        f"{name!r} separates class {', '.join(map(str, np.flatnonzero(own)))} from class {reference}"
        for name, own in zip(names, is_infinite.T, strict=True)
        if name != "intercept" and own.any()
    ]
    note = (
        f"covariate {list_some(found, 4, '; covariate ')}: log-odds have no finite estimate and no test; take "
        "penalised=True, merge levels, or leave the covariate out"
    )
    warnings.warn(note, IdentificationWarning, stacklevel=3)
    return (note,)


def _read_column(
    name: str, values: object, n_rows: int
) -> tuple[FloatArray, tuple[str, ...] | None]:
    """Read a column of numbers as float64, NaN missing, or of texts as codes, with their levels."""
    column = as_arrow({name: values})[name].combine_chunks()
    check_rows(n_rows, **{name: column})
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return np.array(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64), None
    texts = [None if each is None else str(each) for each in column.to_pylist()]
    levels = sorted({each for each in texts if each is not None})
    if pa.types.is_dictionary(kind):
        # a categorical has its own order
        kept = set(levels)
        levels = [each for each in map(str, column.dictionary.to_pylist()) if each in kept]
    place = {each: code for code, each in enumerate(levels)}
    codes = np.array([np.nan if each is None else place[each] for each in texts])
    return codes, tuple(levels)


def _read_covariates(covariates: object, n_rows: int) -> tuple[FloatArray, list[str], list[str]]:
    """Read the design matrix (n_rows, n_columns), intercept first, the names of its columns, and their sources."""
    table = as_arrow(covariates)
    parts, names, owners = [np.ones(n_rows)], ["intercept"], ["intercept"]
    for name in table.column_names:
        values, levels = _read_column(name, table[name], n_rows)
        if fault := _find_fault(name, table[name], levels):
            raise PmfError(
                f"covariate {name!r} has {fault}; pass a number, or a category with many rows of each level"
            )
        if levels is None:
            parts.append(values)
            names.append(name)
            owners.append(name)
            continue
        for code, level in enumerate(levels[1:], 1):
            parts.append(np.where(np.isnan(values), np.nan, values == code))
            names.append(f"{name} = {level}")
            owners.append(name)
    if len(names) == 1:
        raise PmfError("covariates has no column; pass one at least")
    return np.stack(parts, axis=1), names, owners


MOST_LEVELS = 100
"""Largest number of levels of a covariate: of more, most have too few rows, and a fit takes minutes."""


def _find_fault(name: str, column: pa.ChunkedArray, levels: tuple[str, ...] | None) -> str:
    """Find why a column cannot be a covariate: dates, identifiers, a single value, too many levels; "" if it can."""
    counted = ValueCounts()
    counted.add(column)
    counts = {text: n for text, n in counted.counts.items() if text and n}
    n_distinct = len(counts)
    if n_distinct < 2:
        return "one value" if n_distinct else "no value"
    if pa.types.is_temporal(column.type) or find_times(name, counts) is not None:
        return f"dates or times, {n_distinct} distinct"
    numbers = {text: number for text in counts if (number := read_number(text)) is not None}
    numbers = numbers if len(numbers) == n_distinct else {}
    if reason := find_identifier(name, counted, numbers, n_distinct):
        return f"identifiers: {reason}"
    if levels is not None and len(levels) > MOST_LEVELS:
        return f"{len(levels)} levels in {len(column)} rows, above {MOST_LEVELS}"
    return ""


def _test_differences(
    estimates: FloatArray, covariance: FloatArray, ones: IntArray, other: IntArray
) -> WaldTest:
    """Test that classes equal another one; both are indices of estimates, (n_classes, n_each)."""
    contrast = (
        np.eye(estimates.size)[ones.ravel()]
        - np.eye(estimates.size)[np.tile(other.ravel(), len(ones))]
    )
    return find_wald_test(contrast @ estimates, contrast @ covariance @ contrast.T)


@dataclass(frozen=True, eq=False)
class RowDraws:
    """Sampling of the rows, and the subset that the model was fitted to."""

    weight: object | None
    design: Variance | None
    fitted: BoolArray | None

    @property
    def quantile(self) -> float:
        """Half-width of a 95 % interval, in standard errors."""
        return NORMAL_QUANTILE if self.design is None else self.design.record.find_quantile(0.95)

    def read_weights(self, n_rows: int) -> FloatArray:
        """Read the weights of the rows."""
        check_rows(n_rows, design=self.design, fitted=self.fitted)
        if self.design is None:
            return read_shares(self.weight, n_rows)
        scaled = self.design.weights.scale()
        return np.ones(n_rows) if scaled is None else scaled

    def find_fitted(self, rows: IntArray) -> BoolArray:
        """Whether each row was used to fit the model."""
        return np.ones(rows.size, np.bool_) if self.fitted is None else self.fitted[rows]


def read_draws(weight: object | None, design: Variance | None, fitted: object | None) -> RowDraws:
    """Check the arguments on the sampling of rows."""
    if design is not None and weight is not None:
        raise PmfError("weight and design are given; a design has the weights, leave weight out")
    mask = None if fitted is None else np.asarray(fitted)
    if mask is not None and (mask.dtype != np.bool_ or mask.ndim != 1 or not mask.any()):
        raise PmfError("fitted is no mask of rows; pass a bool for each row, some of them True")
    return RowDraws(weight, design, mask)


@dataclass(frozen=True, eq=False)
class AssignedRows:
    """Rows with an observed variable and a positive weight, and their assignment to the classes of a model."""

    model: JointPMF
    codes: IntArray
    n_rows: int
    rows: IntArray
    weights: FloatArray
    posteriors: FloatArray
    shares: FloatArray
    errors: FloatArray
    drawn: RowDraws

    def keep(self, columns: FloatArray, what: str) -> IntArray:
        """Indices of the rows in which all columns of the third step are observed."""
        own = np.flatnonzero(np.isfinite(columns[self.rows]).all(axis=1))
        if own.size < 2:
            raise PmfError(f"{own.size} rows have {what} and an observed variable; pass at least 2")
        empty = np.flatnonzero(~self.shares[own].any(axis=0)).tolist()
        if empty:
            raise PmfError(
                f"of {own.size} rows that have {what}, none is assigned to classes {empty}, of which they say nothing; "
                'give more such rows, fit fewer classes, or take assignment="proportional"'
            )
        return own

    def open_rows(self, own: IntArray, correction: str, *, penalised: bool = False) -> Assigned:
        """Rows of the third step, which solve it."""
        kind = Penalised if penalised else Assigned
        return kind(self.shares[own], self.errors, self.weights[own], correction)

    def find_covariances(
        self, solution: Solution, own: IntArray, jacobian: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Covariance of functions of a solution, from all three steps and from the third alone."""
        moved = jacobian @ solution.bread
        third = np.zeros((len(self.rows), len(moved)))
        third[own] = solution.scores @ moved.T
        by_errors = np.einsum("np,pts->nts", moved, solution.by_errors)
        apart = self.shares[:, None] - self.errors
        expected = self.posteriors * self.weights[:, None]
        per_class = by_errors / expected.sum(axis=0)[:, None]
        whole = third + np.einsum("it,its,nts->in", expected, apart, per_class, optimize=True)
        whole += self._follow_model(per_class)
        return self._covary(whole), self._covary(third)

    def _covary(self, influences: FloatArray) -> FloatArray:
        """Covariance of the sum of the rows' influence functions, whose mean is 0 except at edges of the model."""
        design = self.drawn.design
        if design is None:
            apart = influences - influences.mean(axis=0)
            return np.asarray(apart.T @ apart)
        return design.covary_totals(influences, self.rows)

    def _follow_model(self, per_class: FloatArray) -> FloatArray:
        """Influence of each row on the results through the model: (n_rows, n_results)."""
        information = open_information(self.model)
        assert isinstance(information, ClassInformation)
        entries = information.entries
        none = np.zeros((len(self.rows), len(per_class)))
        if entries.size > MAX_ENTRIES:
            self._warn(
                f"prior and tables have {entries.size} entries, above {MAX_ENTRIES}: errors take the model as known"
            )
            return none
        own = self.drawn.find_fitted(self.rows)
        block = DenseBlock(self.codes, self.weights)
        solved = information.invert(information.sum_information([block[own]]))
        if solved.loose.shape[1]:
            self._warn(
                f"the samples leave {solved.loose.shape[1]} directions of the model open, which errors take as known; "
                "lower the rank, or add variables"
            )
        rank = self.model.rank
        by_entry, first = np.zeros((rank, rank, entries.size)), 0
        batches = list(information.iterate_scores([block]))
        for batch in batches:
            part = slice(first, first + len(batch.codes))
            first = part.stop
            weighted = batch.scores * batch.weights[:, None]
            for each in range(rank):
                apart = self.shares[part] - self.errors[each]
                by_entry[each] -= (apart * self.posteriors[part, each, None]).T @ weighted
                mine = information.states == each
                by_entry[each][:, mine] += apart.T @ weighted[:, mine]
        slopes = np.einsum("nts,tse->ne", per_class, by_entry) @ solved.covariance
        moved = [(batch.scores * batch.weights[:, None]) @ slopes.T for batch in batches]
        return np.where(own[:, None], np.concatenate(moved), 0.0)

    def _warn(self, note: str) -> None:
        warnings.warn(note, IdentificationWarning, stacklevel=5)

    def describe(
        self,
        values: FloatArray,
        covariance: FloatArray,
        alone: FloatArray,
        correction: str,
        assignment: str,
        own: IntArray,
        notes: tuple[str, ...],
    ) -> dict[str, Any]:
        """Fields common to all results."""
        errors, third = (
            np.sqrt(np.maximum(np.diagonal(each), 0.0)).reshape(values.shape)
            for each in (covariance, alone)
        )
        return {
            "values": values,
            "errors": errors,
            "third_step_errors": third,
            "covariance": covariance,
            "classification": self.errors,
            "correction": correction,
            "assignment": assignment,
            "n_rows": own.size,
            "n_left_out": self.n_rows - own.size,
            "quantile": self.drawn.quantile,
            "notes": notes,
        }


def warn_of_steps() -> tuple[str, ...]:
    """Warn of estimates that have not converged, and return the warning."""
    note = (
        "the estimates have not converged; leave an outcome or covariate out, or merge its levels"
    )
    warnings.warn(note, ConvergenceWarning, stacklevel=3)
    return (note,)


def assign_rows(
    model: JointPMF, samples: object, assignment: str, correction: str, drawn: RowDraws
) -> AssignedRows:
    """Check the arguments, and assign the rows to classes."""
    check_model_type("model", model, JointPMF)
    check(OneOf(("bch", "ml")), correction=correction)
    check(OneOf(("modal", "proportional")), assignment=assignment)
    check_classes(model)
    codes: IntArray = model.schema.encode(samples)
    n_rows, weights = len(codes), drawn.read_weights(len(codes))
    rows = np.flatnonzero((codes >= 0).any(axis=1) & (weights > 0))
    if rows.size < 2:
        raise PmfError(f"{rows.size} rows have a weight and anything observed; pass at least 2")
    codes = codes[rows]
    posteriors, weights = model.posterior(codes), weights[rows]
    shares = posteriors
    if assignment == "modal":
        shares = np.eye(model.rank)[posteriors.argmax(axis=1)]
    errors = tabulate_assignment(posteriors, shares, weights)
    if np.linalg.svd(errors, compute_uv=False)[-1] < LEAST_SINGULAR:
        worst = int(np.diagonal(errors).argmin())
        raise PmfError(
            f"classes overlap too much to undo errors of assignment: of class {worst} {errors[worst, worst]:.2f} are "
            'assigned to it; take assignment="proportional", a lower rank, or more variables'
        )
    return AssignedRows(model, codes, n_rows, rows, weights, posteriors, shares, errors, drawn)
