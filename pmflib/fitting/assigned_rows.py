"""Assignment of rows to latent classes, with the sampling design and the errors that follow from both."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, check_model_type
from pmflib.core.blocks import DenseBlock
from pmflib.core.errors import ConvergenceWarning, IdentificationWarning, PmfError
from pmflib.core.replicate_weights import NORMAL_QUANTILE
from pmflib.core.survey_design import SurveyDesign
from pmflib.core.weights import read_shares
from pmflib.fitting.classification import check_classes, tabulate_assignment
from pmflib.fitting.parameter_errors import MAX_ENTRIES
from pmflib.fitting.standard_errors import invert_information
from pmflib.model import JointPMF
from pmflib.model.information import iterate_scores, list_pmfs, sum_information
from pmflib.solvers.numeric.assigned_classes import Assigned, Design, Solution

LEAST_SINGULAR = 1e-3
"""Least singular value of the classification errors with which they can be undone."""


@dataclass(frozen=True, eq=False)
class RowDraws:
    """How rows were drawn, and which of them the model was fitted to."""

    weight: object | None
    design: SurveyDesign | None
    fitted: BoolArray | None

    @property
    def quantile(self) -> float:
        """Half-width of a 95 % interval, in standard errors."""
        return NORMAL_QUANTILE if self.design is None else self.design.record.find_quantile(0.95)

    def read_weights(self, n_rows: int) -> FloatArray:
        """Read the weights of the rows."""
        sizes = {
            "design": n_rows if self.design is None else self.design.n_rows,
            "fitted": n_rows if self.fitted is None else self.fitted.size,
        }
        for name, own in sizes.items():
            if own != n_rows:
                raise PmfError(
                    f"{name} is of {own} rows and samples has {n_rows}; give one of each row"
                )
        if self.design is None:
            return read_shares(self.weight, n_rows)
        scaled = self.design.weights.scale()
        return np.ones(n_rows) if scaled is None else scaled

    def find_fitted(self, rows: IntArray) -> BoolArray:
        """Whether each row was used to fit the model."""
        return np.ones(rows.size, np.bool_) if self.fitted is None else self.fitted[rows]


def read_draws(
    weight: object | None, design: SurveyDesign | None, fitted: object | None
) -> RowDraws:
    """Check how rows were drawn."""
    if design is not None and weight is not None:
        raise PmfError("weight and design are given; a design has the weights, leave weight out")
    mask = None if fitted is None else np.asarray(fitted)
    if mask is not None and (mask.dtype != np.bool_ or mask.ndim != 1 or not mask.any()):
        raise PmfError("fitted is no mask of rows; give a bool for each row, some of them True")
    return RowDraws(weight, design, mask)


@dataclass(frozen=True, eq=False)
class AssignedRows:
    """Rows with anything observed and a weight, of ``n_rows``, and how they are assigned to the classes of a model."""

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
            raise PmfError(f"{own.size} rows have {what} and an observed variable; give at least 2")
        empty = np.flatnonzero(~self.shares[own].any(axis=0)).tolist()
        if empty:
            raise PmfError(
                f"of {own.size} rows that have {what}, none is assigned to classes {empty}, of which they say nothing; "
                'give more such rows, fit fewer classes, or take assignment="proportional"'
            )
        return own

    def solve(
        self, design: Design, own: IntArray, correction: str
    ) -> tuple[Solution, tuple[str, ...]]:
        """Third step."""
        assigned = Assigned(self.shares[own], self.errors, self.weights[own], correction)
        solution = assigned.solve(design)
        if solution.converged:
            return solution, ()
        note = (
            "the estimates have not converged: an outcome or covariate may separate classes; leave it out, or merge "
            "levels"
        )
        warnings.warn(note, ConvergenceWarning, stacklevel=3)
        return solution, (note,)

    def find_covariances(
        self, solution: Solution, own: IntArray, jacobian: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Covariance of functions of a solution: of all three steps, and of the third alone."""
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
        parameters = self.model.parameters
        entries, starts = list_pmfs(parameters)
        none = np.zeros((len(self.rows), len(per_class)))
        if entries.size > MAX_ENTRIES:
            self._warn(
                f"prior and tables have {entries.size} entries, above {MAX_ENTRIES}: errors take the model as known"
            )
            return none
        own = self.drawn.find_fitted(self.rows)
        block = DenseBlock(self.codes, self.weights)
        found = sum_information([block[own]], parameters)
        solved = invert_information(self.model, found)
        if solved.loose.shape[1]:
            self._warn(
                f"the samples leave {solved.loose.shape[1]} directions of the model open, which errors take as known; "
                "lower the rank, or add variables"
            )
        # states come one after the other in the tables, as in the forest's rows
        owners = np.repeat(
            [
                -1,
                *(
                    np.searchsorted(parameters.forest.starts[:, 0], parameters.forest.rows, "right")
                    - 1
                ),
            ],
            np.diff(np.append(starts, entries.size)),
        )
        owners[: self.model.rank] = np.arange(self.model.rank)
        rank = self.model.rank
        by_entry, first = np.zeros((rank, rank, entries.size)), 0
        batches = list(iterate_scores([block], parameters))
        for batch in batches:
            part = slice(first, first + len(batch.codes))
            first = part.stop
            weighted = batch.scores * batch.weights[:, None]
            for each in range(rank):
                apart = self.shares[part] - self.errors[each]
                by_entry[each] -= (apart * self.posteriors[part, each, None]).T @ weighted
                mine = owners == each
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


def assign_rows(
    model: JointPMF, samples: object, assignment: str, correction: str, drawn: RowDraws
) -> AssignedRows:
    """Check what was given, and assign the rows to classes."""
    check_model_type("model", model, JointPMF)
    if correction not in ("bch", "ml"):
        raise PmfError(f"correction is {correction!r}; give 'bch' or 'ml'")
    if assignment not in ("modal", "proportional"):
        raise PmfError(f"assignment is {assignment!r}; give 'modal' or 'proportional'")
    check_classes(model)
    codes = model.schema.encode(samples)
    n_rows, weights = len(codes), drawn.read_weights(len(codes))
    rows = np.flatnonzero((codes >= 0).any(axis=1) & (weights > 0))
    if rows.size < 2:
        raise PmfError(f"{rows.size} rows have a weight and anything observed; give at least 2")
    codes = np.ascontiguousarray(codes[rows])
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
