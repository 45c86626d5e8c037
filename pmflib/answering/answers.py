"""An answer: labelled numbers in reading order, their standard errors, and the supporting data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from pmflib.answering.information import find_quantile, sort_levels
from pmflib.answering.question import BoundQuestion
from pmflib.answering.support import Homogeneity, Support
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.display.summary import MOST_ROWS, Summarised, Summary, SummaryTable
from pmflib.schema import Schema

Source: TypeAlias = Literal["both", "counts", "model"]
"""Source of an answer."""


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Summarised):
    """The answer of a model to a question.

    Parameters
    ----------
    question
        The question.
    measure
        Requested measure, one of `pmflib.answering.question.MEASURES`.
    columns
        Names of the variables that label the rows; empty for a single number.
    labels
        Labels of each row, one per column.
    quantity
        Quantity of the numbers: "probability", "expected value", "entropy, nats", ...
    numbers
        float64 of shape (n_rows,).
    standard_errors
        float64 of shape (n_rows,): standard deviations of the posterior. None if undefined; ``no_errors`` gives the
        reason.
    intervals
        float64 of shape (n_rows, 2): credible intervals with probability ``level``; None without standard errors.
    value
        The answer itself: a number; the label or value of a level for quantiles; for several rows, a mapping from
        labels (or tuples of labels, if the rows have several) to numbers; for argmax, the most likely labels by name.
    more
        Further columns: "samples" supporting each row, "counted" and "model" with the numbers from either alone,
        "lowest" and "highest" with the range for a shift, and limits of quantiles.
    level
        Probability of the intervals.
    source
        Source of the numbers: "both", "counts" or "model".
    expected, expected_error
        Expected value of the target, if it is the only one, ordinal, and its probabilities are the answer; its standard
        error.
    support
        Samples supporting the answer; None if no data were given.
    equivalent_samples
        Equivalent sample size of the model, by set of conditions and combination of levels of the variables given
        without a level.
    is_assumed
        Whether these sizes are assumed, because the model was not compared with held-out rows.
    warnings
        Sentences on limits of the model and on reinterpretations of the question.
    no_errors
        Why there are no standard errors; "" if there are.
    as_other
        Named levels that a variable does not have, by its name; they are mapped to its level `other`.
    homogeneity
        Test of whether the counted shares are equal for all levels of a variable given without a level; None if not
        applicable, or without counts.
    moved_cuts
        Comparisons with a number that is not an edge of the bins, as asked and as answered.
    """

    question: str
    measure: str
    columns: tuple[str, ...]
    labels: Sequence[tuple[str, ...]]
    quantity: str
    numbers: FloatArray
    standard_errors: FloatArray | None
    intervals: FloatArray | None
    value: Any
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    level: float = 0.95
    source: Source = "model"
    expected: float | None = None
    expected_error: float | None = None
    support: Support | None = None
    equivalent_samples: tuple[float, ...] = ()
    is_assumed: bool = False
    warnings: tuple[str, ...] = ()
    no_errors: str = ""
    as_other: Mapping[str, str] = field(default_factory=dict)
    moved_cuts: Mapping[str, str] = field(default_factory=dict)
    homogeneity: Homogeneity | None = None

    @property
    def standard_error(self) -> float | None:
        """Standard error of a single number; None for several numbers, or if unknown."""
        errors = self.standard_errors
        if errors is None or len(errors) != 1 or not math.isfinite(errors[0]):
            return None
        return float(errors[0])

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of a single number; None for several numbers, or if unknown."""
        if self.intervals is None or len(self.intervals) != 1:
            return None
        return float(self.intervals[0, 0]), float(self.intervals[0, 1])

    @property
    def table(self) -> pa.Table:
        """Return an Arrow table: labels, the numbers, "standard_error", "low" and "high" if known, and ``more``."""
        columns: dict[str, pa.Array] = {
            name: pa.array([row[n] for row in self.labels], pa.string())
            for n, name in enumerate(self.columns)
        }
        columns[self.quantity] = pa.array(self.numbers)
        if self.standard_errors is not None:
            columns["standard_error"] = pa.array(self.standard_errors, from_pandas=True)
        if self.intervals is not None:
            columns["low"] = pa.array(self.intervals[:, 0], from_pandas=True)
            columns["high"] = pa.array(self.intervals[:, 1], from_pandas=True)
        return pa.table(columns | {name: pa.array(each) for name, each in self.more.items()})

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns of `rows`."""
        interval = (f"{self.level:.4g} interval",) if self.intervals is not None else ()
        return (*self.columns, self.quantity, *interval, *self.more)

    def rows(self, most: int | None = None) -> list[list[str]]:
        """Return the rows of the table as text, with as many digits as the standard errors justify."""
        out = []
        for n, labels in list(enumerate(self.labels))[:most]:
            error = None if self.standard_errors is None else float(self.standard_errors[n])
            texts = [format_with_error(float(self.numbers[n]), error)[0]]
            if self.intervals is not None:
                ends = (format_with_error(float(end), error)[0] for end in self.intervals[n])
                texts.append(" to ".join(ends))
            more = [each[n] for each in self.more.values()]
            out.append([*labels, *texts, *(_format(x, error) for x in more)])
        return out

    def list_facts(self) -> list[tuple[str, str]]:
        """List names and texts of the facts below the table: expected value, support, the reason for missing errors."""
        facts = []
        if self.expected is not None:
            facts.append(
                (
                    "expected value",
                    " ± ".join(format_with_error(self.expected, self.expected_error)),
                )
            )
        facts.append(("from", self._describe_source()))
        if self.support is not None:
            facts.append(("support", str(self.support)))
        if self.homogeneity is not None:
            facts.append(("alike in the counts", str(self.homogeneity)))
        if self.no_errors:
            facts.append(("no standard errors", self.no_errors))
        return facts

    def _describe_source(self) -> str:
        rows = [f"{m:,.0f}" if m >= 10 else f"{m:.2g}" for m in self.equivalent_samples]
        weight = rows[0] if len(set(rows)) == 1 else " and ".join(rows)
        if len(rows) > 2 and len(set(rows)) > 1:
            least, most = min(self.equivalent_samples), max(self.equivalent_samples)
            weight = f"{least:,.0f} to {most:,.0f}"
        if self.source == "counts":
            return "counts alone"
        assumed = " (assumed: no unseen rows say what it is worth)" if self.is_assumed else ""
        if self.source == "model":
            return "the model alone" + (f", worth {weight} rows{assumed}" if rows else "")
        return f"counts, and the model as {weight} rows more{assumed}"

    def summary(self) -> Summary:
        """Summarise the question, the supporting data, the warnings, and the first rows of the answer."""
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
        """Return the summary as text."""
        return repr(self.summary())

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON types; numbers that are not finite are null."""
        rows = []
        for n, labels in enumerate(self.labels):
            row: dict[str, object] = {"level": dict(zip(self.columns, labels, strict=True))}
            row[self.quantity.split(",")[0].replace(" ", "_")] = _finite(self.numbers[n])
            if self.standard_errors is not None:
                row["standard_error"] = _finite(self.standard_errors[n])
            if self.intervals is not None:
                row["interval"] = [_finite(end) for end in self.intervals[n]]
            further = {name: each[n] for name, each in self.more.items()}
            rows.append(
                row | {k: _finite(x) if isinstance(x, float) else x for k, x in further.items()}
            )
        out: dict[str, object] = {
            "question": self.question,
            "measure": self.measure,
            "quantity": self.quantity,
            "levels": rows,
        }
        if not isinstance(self.value, Mapping):
            out["value"] = _finite(self.value) if isinstance(self.value, float) else self.value
            out["standard_error"] = self.standard_error
            ends = self.interval
            out["interval"] = None if ends is None else [_finite(end) for end in ends]
        elif self.measure in ("P", "argmax") and self.labels:
            out["best"] = rows[0]["level"]
        if self.expected is not None:
            out |= {"expected": self.expected, "expected_error": self.expected_error}
        out |= {"level": self.level, "from": self.source}
        out["equivalent_samples"] = list(self.equivalent_samples)
        out["equivalent_samples_assumed"] = self.is_assumed
        out["support"] = None if self.support is None else self.support.to_json()
        if self.homogeneity is not None:
            out["homogeneity"] = asdict(self.homogeneity)
        out["warnings"] = list(self.warnings)
        if self.no_errors:
            out["no_standard_errors"] = self.no_errors
        if self.as_other:
            out["as_other"] = dict(self.as_other)
        if self.moved_cuts:
            out["moved_cuts"] = dict(self.moved_cuts)
        return out


def format_with_error(number: float, error: float | None) -> tuple[str, ...]:
    """Format a number and its standard error with two digits of the error; only the number if there is no error.

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


def _format(value: Any, error: float | None) -> str:
    if isinstance(value, float):
        return format_with_error(value, error)[0] if math.isfinite(value) else "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _finite(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None


QUANTITIES = {
    "P": "probability",
    "E": "expected value",
    "median": "cumulative probability",
    "quantile": "cumulative probability",
    "argmax": "probability",
    "H": "entropy, nats",
    "MI": "mutual information, nats",
    "TV": "total variation",
    "odds": "odds",
    "OR": "odds ratio",
}
"""Quantity of the numbers of each measure."""


@dataclass(eq=False)
class AnswerRows:
    """Numbers and errors of shape (n_by, n_each), with the data for their labels."""

    bound: BoundQuestion
    numbers: FloatArray
    errors: FloatArray | None
    intervals: FloatArray | None
    combinations: IntArray | None
    cells: IntArray | None
    counted: FloatArray | None
    by_model: FloatArray | None
    ranges: FloatArray | None = None

    def list_rows(self) -> dict[str, Any]:
        """Return the fields of an `Answer` with its columns, labels, quantity, numbers, errors, intervals and value."""
        bound, name = self.bound, self.bound.question.measure
        schema = bound.schema
        by = list(_combine(schema, bound.by))
        more: dict[str, list[Any]] = {}
        if name in ("median", "quantile"):
            columns, rows, picks, more = self.find_quantiles(by)
        elif name == "argmax":
            assert self.combinations is not None
            columns = [schema[position].name for position in bound.groups[0]]
            rows = [_label(schema, bound.groups[0], codes) for codes in self.combinations.tolist()]
            picks = [(0, n) for n in range(len(rows))]
        elif name in ("P", "odds"):
            columns, rows, picks, more = self.find_cells(by)
        else:
            # a mean over the levels of the conditioning variables has a single row
            rows = [_label(schema, bound.by, codes) for codes in by] if name == "E" else [()]
            columns = [schema[position].name for position in bound.by] if name == "E" else []
            picks = [(n, 0) for n in range(len(rows))]
        kept = [
            n for n, pick in enumerate(picks) if not np.isnan(self.numbers[pick]) or name == "OR"
        ]
        picks, rows = [picks[n] for n in kept], [rows[n] for n in kept]
        more = {key: [each[n] for n in kept] for key, each in more.items()}
        numbers = np.array([self.numbers[pick] for pick in picks])
        for key, alone in (("counted", self.counted), ("model", self.by_model)):
            if alone is not None:
                more[key] = [float(alone[pick]) for pick in picks]
        if self.ranges is not None:
            for key, ends in zip(
                ("lowest", "highest"), np.moveaxis(self.ranges, -1, 0), strict=True
            ):
                more[key] = [float(ends[pick]) for pick in picks]
        errors, intervals = None, None
        if self.errors is not None:
            errors = np.array([self.errors[pick] for pick in picks])
        # the levels at the ends of the interval of a quantile are separate columns
        if self.intervals is not None and name not in ("median", "quantile"):
            intervals = np.array([self.intervals[pick] for pick in picks]).reshape(-1, 2)
        return {
            "columns": tuple(columns),
            "labels": rows,
            "quantity": QUANTITIES[name],
            "numbers": numbers,
            "standard_errors": errors,
            "intervals": intervals,
            "value": self.find_value(columns, rows, numbers),
            "more": more,
        }

    def find_value(
        self, columns: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: FloatArray
    ) -> Any:
        """Return the answer itself, given its table."""
        bound, name = self.bound, self.bound.question.measure
        if name == "argmax":
            return dict(zip(columns, rows[0], strict=True)) if rows else {}
        if name in ("median", "quantile"):
            found = [_read_level(bound, row[-1]) for row in rows]
            if not bound.by:
                return found[0]
            return {_key(row[:-1]): each for row, each in zip(rows, found, strict=True)}
        if not bound.by and not (name == "P" and bound.groups[0]):
            return float(numbers[0])
        if name in ("H", "MI", "TV"):
            return float(numbers[0])
        fixed = len(bound.events[0])
        return {
            _key(row[: len(row) - fixed]): float(number)
            for row, number in zip(rows, numbers, strict=True)
        }

    def find_cells(
        self, by: Sequence[tuple[int, ...]]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[int, int]], dict[str, list[Any]]]:
        """Return the rows of probabilities, the most probable first within each combination of the given levels."""
        bound, schema = self.bound, self.bound.schema
        free, events = bound.groups[0], bound.events[0]
        each = list(_combine(schema, free))
        said = [
            " or ".join(schema[position].levels[code] for code in codes)
            for position, codes in events.items()
        ]
        columns = [schema[position].name for position in (*bound.by, *free, *events)]
        rows, picks, samples = [], [], []
        for n, codes in enumerate(by):
            for m in np.argsort(-self.numbers[n], kind="stable").tolist():
                labels = (*_label(schema, bound.by, codes), *_label(schema, free, each[m]), *said)
                rows.append(labels)
                picks.append((n, m))
                levels = dict(zip((*bound.by, *free), (*codes, *each[m]), strict=True))
                samples.append(self.count_samples(levels))
        more = {} if self.cells is None else {"samples": samples}
        return columns, rows, picks, more

    def count_samples(self, levels: Mapping[int, int]) -> int:
        """Count the samples that meet the conditions and have some levels and the events of the question."""
        if self.cells is None:
            return 0
        bound, picks = self.bound, []
        for position in (*bound.by, *(each for each in bound.targets if each not in bound.by)):
            codes = set(range(bound.schema[position].cardinality))
            for known in bound.events:
                codes &= set(known.get(position, codes))
            codes &= {levels[position]} if position in levels else codes
            picks.append(sorted(codes))
        return round(float(self.cells[np.ix_(*picks)].sum()))

    def find_quantiles(
        self, by: Sequence[tuple[int, ...]]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[int, int]], dict[str, list[Any]]]:
        """Return the rows of quantiles, with the levels at the ends of the interval of the cumulative probability."""
        bound, schema = self.bound, self.bound.schema
        target = bound.groups[0][0]
        order = sort_levels(schema[target])
        share = 0.5 if bound.question.share is None else bound.question.share
        columns = [schema[position].name for position in (*bound.by, target)]
        rows, picks = [], []
        limits: dict[str, list[Any]] = {"from": [], "to": []}
        for n, codes in enumerate(by):
            if np.isnan(self.numbers[n]).any():
                continue
            position = find_quantile(self.numbers[n], share)
            level = schema[target].levels[order[position]]
            rows.append((*_label(schema, bound.by, codes), level))
            picks.append((n, position))
            if self.intervals is not None:
                for limit, end in (("from", 1), ("to", 0)):
                    # the cumulative probability of the last level is 1
                    moved = np.append(self.intervals[n, :-1, end], 1.0)
                    found = order[find_quantile(np.maximum.accumulate(moved), share)]
                    limits[limit].append(schema[target].levels[found])
        return columns, rows, picks, limits if self.intervals is not None else {}


def _combine(schema: Schema, positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all combinations of codes of some variables, the last varying fastest; an empty one for no variables."""
    return itertools.product(*(range(schema[position].cardinality) for position in positions))


def _label(schema: Schema, positions: Sequence[int], codes: Sequence[int]) -> tuple[str, ...]:
    return tuple(
        schema[position].levels[code] for position, code in zip(positions, codes, strict=True)
    )


def _key(labels: tuple[str, ...]) -> Any:
    return labels[0] if len(labels) == 1 else labels


def _read_level(bound: BoundQuestion, level: str) -> float | str:
    """Return the value of a level, or its label if it has no value."""
    variable = bound.schema[bound.groups[0][0]]
    if variable.values is None:
        return level
    return variable.values[variable.levels.index(level)]
