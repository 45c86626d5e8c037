"""Results of three-step estimation: outcomes by class and classes by covariates, with errors and tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray
from pmflib.base.display.summary import (
    Summarised,
    Summary,
    SummaryTable,
    cut,
    decimal,
    format_count,
)
from pmflib.base.wald import WaldTest


@dataclass(frozen=True)
class ClassDifference:
    """Difference of an outcome between two classes.

    Parameters
    ----------
    classes
        The two, numbered as states of the model.
    test
        Wald's test that they are alike.
    adjusted
        Its p-value for all pairs taken together, by Holm.
    """

    classes: tuple[int, int]
    test: WaldTest
    adjusted: float


@dataclass(frozen=True, eq=False)
class ThreeSteps(Summarised):
    """Fields common to three-step estimates.

    Parameters
    ----------
    values
        float64: the estimates; see the kind of result for the shape.
    errors
        float64 of that shape: standard errors, which include that classes and classification errors are estimates.
    third_step_errors
        float64 of that shape: what they would be were these known. They are too small.
    covariance
        float64 of shape (values.size, values.size): of the estimates.
    classification
        float64 of shape (n_classes, n_classes): probability that a row of a class, in rows, is assigned to each.
    correction, assignment
        As they were given.
    n_rows
        Rows that the third step has used.
    n_left_out
        Rows that it has not: with nothing observed, of weight 0, or without the outcome or a covariate.
    quantile
        Standard errors to either side that an interval of 95 % reaches to: of a design Student's.
    notes
        What a careful user should know.
    """

    values: FloatArray
    errors: FloatArray
    third_step_errors: FloatArray
    covariance: FloatArray
    classification: FloatArray
    correction: str
    assignment: str
    n_rows: int
    n_left_out: int
    quantile: float
    notes: tuple[str, ...]

    @property
    def lower(self) -> FloatArray:
        """Lower ends of intervals of 95 %."""
        return np.asarray(self.values - self.quantile * self.errors)

    @property
    def upper(self) -> FloatArray:
        """Upper ends of intervals of 95 %."""
        return np.asarray(self.values + self.quantile * self.errors)

    def to_json(self) -> dict[str, Any]:
        """Estimates, tests and notes in plain JSON types; what is infinite or unknown is None."""
        return {
            "estimates": [
                {name: _keep_finite(each) for name, each in row.items()}
                for row in self.table.to_pylist()
            ],
            "tests": {
                name: {
                    "wald": _keep_finite(test.statistic),
                    "degrees": test.degrees,
                    "p": _keep_finite(test.p_value),
                }
                for name, test in self.list_tests().items()
            },
            "correction": self.correction,
            "assignment": self.assignment,
            "classification": self.classification.tolist(),
            "rows": self.n_rows,
            "left_out": self.n_left_out,
            "notes": list(self.notes),
        }

    @property
    def table(self) -> pa.Table:
        """Estimates as an Arrow table with one row per estimate."""
        raise NotImplementedError

    def list_tests(self) -> dict[str, WaldTest]:
        """Tests by name."""
        raise NotImplementedError

    def _list_facts(self) -> tuple[tuple[str, str], ...]:
        correct = np.diagonal(self.classification)
        return (
            ("correction", f"{self.correction.upper()}, {self.assignment} assignment"),
            ("rows", f"{format_count(self.n_rows)}, {format_count(self.n_left_out)} left out"),
            ("assigned to their own class", ", ".join(f"{share:.2f}" for share in correct)),
        )

    def _write(self, place: tuple[int, ...]) -> tuple[str, str, str, str]:
        found = (self.values, self.errors, self.lower, self.upper)
        value, error, lower, upper = (decimal(float(each[place])) for each in found)
        return value, error, lower, upper


def _keep_finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, eq=False)
class DistalOutcome(ThreeSteps):
    """Means of an outcome in each class, ``values`` of shape (n_classes,), or shares of levels, (n_classes, n_levels).

    Parameters
    ----------
    levels
        Names of the levels; None where the outcome is a number.
    test
        Whether all classes are alike.
    pairs
        Which are not.
    """

    levels: tuple[str, ...] | None
    test: WaldTest
    pairs: tuple[ClassDifference, ...]

    @property
    def lower(self) -> FloatArray:
        """Lower ends of intervals of 95 %, of shares symmetric in the logit."""
        return self._find_end(-self.quantile)

    @property
    def upper(self) -> FloatArray:
        """Upper ends of intervals of 95 %, of shares symmetric in the logit."""
        return self._find_end(self.quantile)

    def _find_end(self, quantile: float) -> FloatArray:
        plain = self.values + quantile * self.errors
        if self.levels is None:
            return plain
        is_inner = (self.values > 0) & (self.values < 1)
        inner = np.where(is_inner, self.values, 0.5)
        odds = inner / (1 - inner) * np.exp(quantile * self.errors / (inner * (1 - inner)))
        return np.where(is_inner, odds / (1 + odds), plain)

    @property
    def table(self) -> pa.Table:
        """Estimates as an Arrow table with one row per estimate."""
        places = list(np.ndindex(self.values.shape))
        columns: dict[str, list[Any]] = {"class": [place[0] for place in places]}
        if self.levels is not None:
            columns["level"] = [self.levels[place[1]] for place in places]
        for name in ("values", "errors", "lower", "upper"):
            columns[name] = getattr(self, name).ravel().tolist()
        return pa.table(columns)

    def list_tests(self) -> dict[str, WaldTest]:
        """Tests that all classes are equal, and each pair of them."""
        named = {f"{each.classes[0]} and {each.classes[1]}": each.test for each in self.pairs}
        return {"all classes alike": self.test, **named}

    def summary(self) -> Summary:
        """Estimates with intervals, and which classes differ: text in a terminal, HTML in a notebook."""
        rows = []
        for place in np.ndindex(self.values.shape):
            named = () if self.levels is None else (cut(self.levels[place[1]]),)
            rows.append((str(place[0]), *named, *self._write(place)))
        level = () if self.levels is None else ("level",)
        columns = ("class", *level, ">estimate", ">error", ">from", ">to")
        kind = "Means" if self.levels is None else "Shares of levels"
        estimates = SummaryTable(
            f"{kind}, and intervals of 95 %", columns, rows, len(rows), "table"
        )
        tested = [
            (
                f"{each.classes[0]} and {each.classes[1]}",
                f"{decimal(each.test.statistic)} ({each.test.degrees})",
                decimal(each.test.p_value, 2),
                decimal(each.adjusted, 2),
            )
            for each in self.pairs
        ]
        heads = ("classes", ">Wald (df)", ">p", ">p of all, Holm")
        pairs = SummaryTable("Whether classes are alike", heads, tested, len(tested), "pairs")
        said = f"Wald {decimal(self.test.statistic)} ({self.test.degrees}), p = {decimal(self.test.p_value, 2)}"
        facts = (*self._list_facts(), ("all classes alike", said))
        return Summary("An outcome by latent class", facts, self.notes, (estimates, pairs))


@dataclass(frozen=True, eq=False)
class ClassRegression(ThreeSteps):
    """A multinomial logit of the class: ``values`` of shape (n_classes, n_covariates), 0 for the reference.

    Where a covariate separates classes, coefficients are infinite or NaN, and their errors and tests NaN.

    Parameters
    ----------
    covariates
        Names of the columns: the intercept, then numbers, and indicators of the levels of texts but the first.
    reference
        Class that the others are compared with.
    tests
        Whether a covariate has to do with the classes, by name; all indicators of a text are one.
    """

    covariates: tuple[str, ...]
    reference: int
    tests: Mapping[str, WaldTest]

    @property
    def table(self) -> pa.Table:
        """Coefficients as an Arrow table, a row each; those of the reference are left out."""
        places = [place for place in np.ndindex(self.values.shape) if place[0] != self.reference]
        columns: dict[str, list[Any]] = {
            "class": [place[0] for place in places],
            "covariate": [self.covariates[place[1]] for place in places],
        }
        for name in ("values", "errors", "lower", "upper"):
            columns[name] = [float(getattr(self, name)[place]) for place in places]
        return pa.table(columns)

    def list_tests(self) -> dict[str, WaldTest]:
        """Tests of each covariate."""
        return dict(self.tests)

    def summary(self) -> Summary:
        """Coefficients with intervals, and tests: text in a terminal, HTML in a notebook."""
        rows = [
            (str(place[0]), cut(self.covariates[place[1]]), *self._write(place))
            for place in np.ndindex(self.values.shape)
            if place[0] != self.reference
        ]
        columns = ("class", "covariate", ">logit", ">error", ">from", ">to")
        title = f"Log-odds against class {self.reference}, and intervals of 95 %"
        estimates = SummaryTable(title, columns, rows, len(rows), "table")
        tested = [
            (cut(name), f"{decimal(test.statistic)} ({test.degrees})", decimal(test.p_value, 2))
            for name, test in self.tests.items()
        ]
        heads = ("covariate", ">Wald (df)", ">p")
        tests = SummaryTable("Whether classes depend on it", heads, tested, len(tested), "tests")
        return Summary(
            "Latent classes by covariates", self._list_facts(), self.notes, (estimates, tests)
        )
