"""Compare the answers of two models to one question: differences and their standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.answering.answering import ask
from pmflib.answering.answers import Answer, Source, format_with_error
from pmflib.base.arrays import FloatArray
from pmflib.base.display.summary import Summarised, Summary, SummaryTable
from pmflib.model.mixture import Mixture


@dataclass(frozen=True, eq=False, repr=False)
class AnswerComparison(Summarised):
    """Answers of two models to one question.

    Parameters
    ----------
    first, second
        The answers.
    labels
        Labels of each row that occurs in either answer.
    numbers
        float64 of shape (n_rows, 2): number of each answer; NaN if its schema lacks the level.
    differences
        float64 of shape (n_rows,): second minus first.
    standard_errors
        float64 of shape (n_rows,): standard errors of the differences; None if an answer has none.
    """

    first: Answer
    second: Answer
    labels: list[tuple[str, ...]]
    numbers: FloatArray
    differences: FloatArray
    standard_errors: FloatArray | None

    @property
    def total_variation(self) -> float | None:
        """Half the sum of absolute differences if each answer is a single distribution; else None."""
        whole = all(abs(float(each.numbers.sum()) - 1) < 1e-6 for each in (self.first, self.second))
        if self.first.measure != "P" or len(self.labels) < 2 or not whole:
            return None
        return float(np.abs(np.diff(np.nan_to_num(self.numbers), axis=1)).sum() / 2)

    @property
    def table(self) -> pa.Table:
        """Return an Arrow table: labels, "first", "second", "difference", and "standard_error" if known."""
        columns: dict[str, pa.Array] = {
            name: pa.array([row[n] for row in self.labels], pa.string())
            for n, name in enumerate(self.first.columns)
        }
        columns |= {
            "first": pa.array(self.numbers[:, 0], from_pandas=True),
            "second": pa.array(self.numbers[:, 1], from_pandas=True),
            "difference": pa.array(self.differences, from_pandas=True),
        }
        if self.standard_errors is not None:
            columns["standard_error"] = pa.array(self.standard_errors, from_pandas=True)
        return pa.table(columns)

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns of `rows`."""
        errors = ("±",) if self.standard_errors is not None else ()
        return (*self.first.columns, "first", "second", "difference", *errors)

    def rows(self) -> list[list[str]]:
        """Return the rows of the table as text."""
        out = []
        for n, labels in enumerate(self.labels):
            error = None if self.standard_errors is None else float(self.standard_errors[n])
            both = (f"{number:.4g}" for number in self.numbers[n])
            out.append([*labels, *both, *format_with_error(float(self.differences[n]), error)])
        return out

    def list_facts(self) -> list[tuple[str, str]]:
        """List names and texts of the facts below the table."""
        facts = []
        if (found := self.total_variation) is not None:
            facts.append(("total variation", f"{found:.4g}"))
        for name, answer in (("first", self.first), ("second", self.second)):
            facts += [(f"{name}, {fact}", text) for fact, text in answer.list_facts()]
        return facts

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on the limits of either model."""
        named = (("first", self.first), ("second", self.second))
        return tuple(f"{name}: {each}" for name, answer in named for each in answer.warnings)

    def summary(self) -> Summary:
        """Summarise the question, the data supporting both answers, their warnings, and the first rows."""
        columns = self.first.columns
        table = SummaryTable(
            self.first.quantity,
            (*columns, *(f">{name}" for name in self.header[len(columns) :])),
            [tuple(row) for row in self.rows()],
            len(self.labels),
            "comparison.table",
        )
        return Summary(self.first.question, tuple(self.list_facts()), self.warnings, (table,))

    def __repr__(self) -> str:
        """Return the summary as text."""
        return repr(self.summary())

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON types; numbers that are not finite are null."""
        rows = []
        for n, labels in enumerate(self.labels):
            numbers = {"first": self.numbers[n, 0], "second": self.numbers[n, 1]}
            numbers["difference"] = self.differences[n]
            if self.standard_errors is not None:
                numbers["standard_error"] = self.standard_errors[n]
            found = {k: float(x) if math.isfinite(x) else None for k, x in numbers.items()}
            rows.append({"level": dict(zip(self.first.columns, labels, strict=True)), **found})
        return {
            "question": self.first.question,
            "differences": rows,
            "total_variation": self.total_variation,
            "first": self.first.to_json(),
            "second": self.second.to_json(),
        }


def compare_answers(
    first: Mixture,
    second: Mixture,
    question: str,
    data: tuple[object, object] = (None, None),
    *,
    top: int = 5,
    source: Source = "both",
    level: float = 0.95,
    shift: float | None = None,
) -> AnswerComparison:
    """Compare the answers of two models to one question.

    Parameters
    ----------
    first, second
        The models; their schemas may differ if both have the variables and levels of the question.
    question, top, source, level, shift
        As for `ask`.
    data
        Data that each model was fitted to, as for `ask`; None if not available.

    Returns
    -------
    Both answers, and their differences.

    Raises
    ------
    QuestionError, UnknownNameError, SchemaError, PmfError, MemoryPlanError
        As `ask` does.

    Notes
    -----
    The standard error of a difference is the root of the sum of both squared errors, which is correct for independent
    samples and too large if both models were fitted to the same samples.
    """
    options: dict[str, Any] = {"top": top, "source": source, "level": level, "shift": shift}
    answers = (
        ask(m, question, each, **options) for m, each in zip((first, second), data, strict=True)
    )
    return pair_answers(*answers)


def pair_answers(first: Answer, second: Answer) -> AnswerComparison:
    """Compare two answers to one question; see `compare_answers`."""
    labels = list(dict.fromkeys([*first.labels, *second.labels]))
    numbers = np.stack([_align(each, each.numbers, labels) for each in (first, second)], axis=1)
    errors = None
    if first.standard_errors is not None and second.standard_errors is not None:
        errors = np.hypot(*(_align(e, e.standard_errors, labels) for e in (first, second)))
    differences = numbers[:, 1] - numbers[:, 0]
    return AnswerComparison(first, second, labels, numbers, differences, errors)


def _align(answer: Answer, numbers: FloatArray | None, labels: list[tuple[str, ...]]) -> FloatArray:
    """Align the numbers of an answer with the labels of both; NaN for labels it lacks."""
    assert numbers is not None
    known: Mapping[tuple[str, ...], float] = dict(zip(answer.labels, numbers.tolist(), strict=True))
    return np.array([known.get(each, math.nan) for each in labels])
