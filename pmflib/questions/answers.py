"""An answer: numbers with labels, standard errors, and the data that stand behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.arrays import FloatArray
from pmflib.displays.summary import MOST_ROWS, Summarised, Summary, SummaryTable
from pmflib.questions.support import Support


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Summarised):
    """What a model says to a question.

    Parameters
    ----------
    question
        The question.
    measure
        What was asked for: one of `pmflib.questions.notation.MEASURES`.
    columns
        Names of the variables that the rows are labelled by; none for a single number.
    labels
        Labels of each row, one per column.
    quantity
        What the numbers are: "probability", "expected value", "entropy, nats", ...
    numbers
        float64 of shape (n_rows,).
    standard_errors
        float64 of shape (n_rows,), the jackknife over the folds of the counts; NaN where it has none. None where it was
        not computed, and ``no_errors`` says why.
    value
        The answer itself: a number; the label or the value of a level for quantiles; for several rows a mapping of
        labels (of tuples of them, where the rows have several) to numbers; for argmax the most likely labels by name.
    more
        Further columns: "samples" behind each row, limits of quantiles.
    expected, expected_error
        Expected value of the one variable asked for, where it is ordinal and its probabilities are the answer; its
        standard error.
    support
        Samples behind the answer; None where no counts were given.
    warnings
        Sentences on what the model cannot know, or has read in another way.
    no_errors
        Why there are no standard errors; "" if there are.
    fold_numbers
        float64 of shape (n_folds, n_rows): the numbers by a fit without each fold. None without standard errors.
    as_other
        Levels that were named and that their variable has not, by its name: they count as its level `other`.
    """

    question: str
    measure: str
    columns: tuple[str, ...]
    labels: Sequence[tuple[str, ...]]
    quantity: str
    numbers: FloatArray
    standard_errors: FloatArray | None
    value: Any
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    expected: float | None = None
    expected_error: float | None = None
    support: Support | None = None
    warnings: tuple[str, ...] = ()
    no_errors: str = ""
    fold_numbers: FloatArray | None = None
    as_other: Mapping[str, str] = field(default_factory=dict)

    @property
    def standard_error(self) -> float | None:
        """Standard error of a single number; None for several, or where it is not known."""
        errors = self.standard_errors
        if errors is None or len(errors) != 1 or not math.isfinite(errors[0]):
            return None
        return float(errors[0])

    @property
    def table(self) -> pa.Table:
        """Arrow table: a column of labels per variable, the numbers, "standard_error" if known, and ``more``."""
        columns: dict[str, pa.Array] = {
            name: pa.array([row[n] for row in self.labels], pa.string())
            for n, name in enumerate(self.columns)
        }
        columns[self.quantity] = pa.array(self.numbers)
        if self.standard_errors is not None:
            columns["standard_error"] = pa.array(self.standard_errors, from_pandas=True)
        return pa.table(columns | {name: pa.array(each) for name, each in self.more.items()})

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns of `rows`."""
        errors = ("±",) if self.standard_errors is not None else ()
        return (*self.columns, self.quantity, *errors, *self.more)

    def rows(self, most: int | None = None) -> list[list[str]]:
        """Rows of the table as texts, the numbers with as many digits as their errors allow."""
        out = []
        for n, labels in list(enumerate(self.labels))[:most]:
            error = None if self.standard_errors is None else float(self.standard_errors[n])
            texts = format_with_error(float(self.numbers[n]), error)
            more = [each[n] for each in self.more.values()]
            out.append(
                [*labels, *texts, *(f"{x:,}" if isinstance(x, int) else str(x) for x in more)]
            )
        return out

    def list_facts(self) -> list[tuple[str, str]]:
        """Names and texts of what belongs to the table: expected value, support, why there are no errors."""
        facts = []
        if self.expected is not None:
            facts.append(
                (
                    "expected value",
                    " ± ".join(format_with_error(self.expected, self.expected_error)),
                )
            )
        if self.support is not None:
            facts.append(("support", str(self.support)))
        if self.no_errors:
            facts.append(("no standard errors", self.no_errors))
        return facts

    def summary(self) -> Summary:
        """Show the question, what stands behind the answer, its warnings, and its first rows."""
        numeric = [f">{name}" for name in self.header[len(self.columns) :]]
        table = SummaryTable(
            self.quantity,
            (*self.columns, *numeric),
            [tuple(row) for row in self.rows(MOST_ROWS)],
            len(self.labels),
            "answer.table",
        )
        return Summary(self.question, tuple(self.list_facts()), self.warnings, (table,))

    def __repr__(self) -> str:
        """The summary as text."""
        return repr(self.summary())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; numbers that are not finite are null."""
        rows = []
        for n, labels in enumerate(self.labels):
            row: dict[str, Any] = {"level": dict(zip(self.columns, labels, strict=True))}
            row[self.quantity.split(",")[0].replace(" ", "_")] = _finite(self.numbers[n])
            if self.standard_errors is not None:
                row["standard_error"] = _finite(self.standard_errors[n])
            rows.append(row | {name: each[n] for name, each in self.more.items()})
        out: dict[str, Any] = {
            "question": self.question,
            "measure": self.measure,
            "quantity": self.quantity,
            "levels": rows,
        }
        if not isinstance(self.value, Mapping):
            out["value"] = _finite(self.value) if isinstance(self.value, float) else self.value
            out["standard_error"] = self.standard_error
        elif self.measure in ("P", "argmax") and self.labels:
            out["best"] = rows[0]["level"]
        if self.expected is not None:
            out |= {"expected": self.expected, "expected_error": self.expected_error}
        out["support"] = None if self.support is None else self.support.to_json()
        out["warnings"] = list(self.warnings)
        if self.no_errors:
            out["no_standard_errors"] = self.no_errors
        if self.as_other:
            out["as_other"] = dict(self.as_other)
        return out


def format_with_error(number: float, error: float | None) -> tuple[str, ...]:
    """Texts of a number and its standard error, with two digits of the error; one text without an error.

    Examples
    --------
    >>> format_with_error(0.123456, 0.00789), format_with_error(3.14159, None)
    (('0.1235', '0.0079'), ('3.142',))
    """
    if error is None:
        return (f"{number:.4g}",)
    if not math.isfinite(error) or not math.isfinite(number):
        return (f"{number:.4g}", "unknown")
    if error <= 1e-9 * abs(number):
        return (f"{number:.4g}", "0")
    digits = min(max(1 - math.floor(math.log10(error)), 0), 9)
    return (f"{number:.{digits}f}", f"{error:.{digits}f}")


def _finite(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None
