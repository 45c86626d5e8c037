"""Errors of a model's parameters as they are given to people: arrays by name, intervals, and what is not determined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray
from pmflib.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.schema import Schema

MAX_ENTRIES = 2000
"""Entries of prior and tables whose information is inverted: some seconds, and some hundred megabytes."""
FAR = 0.2
"""Standard errors from the maximum of the likelihood from which on the parameters are said not to be there."""
VAGUE = 12**-0.5
"""Standard error of a probability that nothing is known of, which is uniform on [0, 1]: one that is larger is none."""


@dataclass(frozen=True, eq=False)
class ArrayErrors:
    """How sure the numbers of an array of parameters are; all arrays are of its shape.

    Parameters
    ----------
    values
        float64: the parameters.
    errors
        float64: standard errors. NaN where the samples do not determine a parameter; 0 where it is at an edge, and
        taken as fixed, or has no other value.
    lower, upper
        float64: ends of intervals of 95 %, of probabilities within [0, 1]; NaN where the error is.
    is_determined
        bool: whether the samples determine the parameter.
    is_edge
        bool: whether it is a probability at 0 or 1, where an interval begins or ends.
    """

    values: FloatArray
    errors: FloatArray
    lower: FloatArray
    upper: FloatArray
    is_determined: BoolArray
    is_edge: BoolArray


@dataclass(frozen=True, eq=False)
class ParameterErrors(Mapping[str, ArrayErrors], Summarised):
    """Errors of all parameters of a model, by the names of their arrays.

    ``prior`` (rank,) and ``factors`` (n_levels, rank); with forests also ``tables`` (n_entries,). Of item response
    models ``base`` (n_levels,) and ``slopes`` (n_levels, n_traits) alone.

    Parameters
    ----------
    arrays
        Errors by name.
    schema
        Variables of the model.
    method
        What they were found by, in words.
    distance
        How far the parameters are from the maximum of the likelihood, in standard errors of the one that is farthest.
    notes
        What is not determined, and which; what is at an edge; whether the model is at the maximum.
    """

    arrays: Mapping[str, ArrayErrors]
    schema: Schema
    method: str
    distance: float
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> ArrayErrors:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def summary(self) -> Summary:
        """What is determined, and the parameters with their intervals: text in a terminal, HTML in a notebook."""
        every = [each for each in self.arrays.values()]
        n_all = sum(each.values.size for each in every)
        n_known = sum(int(each.is_determined.sum()) for each in every)
        facts = (
            ("method", self.method),
            ("determined", f"{format_count(n_known)} of {format_count(n_all)} numbers"),
            ("from the maximum", f"{decimal(self.distance)} standard errors"),
        )
        if "slopes" in self.arrays:
            table = self._tabulate_items()
            return Summary("Standard errors of item parameters", facts, self.notes, (table,))
        prior, factors = self.arrays["prior"], self.arrays["factors"]
        rows = _describe("share of the samples", prior, ())
        for variable in self.schema:
            first = self.schema.rows_of(variable.name).start
            for code, level in enumerate(variable.levels):
                rows += _describe(f"{variable.name} = {level}", factors, (first + code,))
        table = SummaryTable(
            "Probabilities given the state, and intervals of 95 %",
            ("level", ">state", ">probability", ">from", ">to"),
            rows,
            len(rows),
            'errors["factors"]',
        )
        return Summary("Standard errors of parameters", facts, self.notes, (table,))

    def _tabulate_items(self) -> SummaryTable:
        """Intercept and slopes of each level, with intervals."""
        rows = []
        for variable in self.schema:
            first = self.schema.rows_of(variable.name).start
            for code, level in enumerate(variable.levels):
                cells = [f"{variable.name} = {level}"]
                base, slopes = self.arrays["base"], self.arrays["slopes"]
                for found, at in (
                    (base, (first + code,)),
                    *((slopes, (first + code, f)) for f in range(slopes.values.shape[1])),
                ):
                    ends = f"{found.lower[at]:.2f} to {found.upper[at]:.2f}"
                    is_known = found.is_determined[at]
                    cells.append(
                        f"{found.values[at]:.2f} ({ends})" if is_known else "not determined"
                    )
                rows.append(tuple(cells))
        names = (f">trait {f}" for f in range(self.arrays["slopes"].values.shape[1]))
        return SummaryTable(
            "Logits, and intervals of 95 %",
            ("level", ">intercept", *names),
            rows,
            len(rows),
            'errors["slopes"]',
        )


def _describe(name: str, found: ArrayErrors, place: tuple[int, ...]) -> list[tuple[str, ...]]:
    """Values and intervals of all states at a place of an array: a row for each."""
    each = zip(found.values[place], found.lower[place], found.upper[place], strict=True)
    return [
        (
            name,
            str(state),
            f"{value:.3f}",
            *(("not determined", "") if np.isnan(low) else (f"{low:.3f}", f"{high:.3f}")),
        )
        for state, (value, low, high) in enumerate(each)
    ]


FIELDS = tuple(ArrayErrors.__dataclass_fields__)
"""Names of the arrays of errors."""


def reshape_errors(
    found: ArrayErrors, own: slice, shape: tuple[int, ...] | int = -1
) -> ArrayErrors:
    """Errors of a part of an array, in a shape."""
    return ArrayErrors(*(getattr(found, name)[own].reshape(shape) for name in FIELDS))


def span_logits(
    values: FloatArray, errors: FloatArray, quantile: float
) -> tuple[FloatArray, FloatArray]:
    """Ends of intervals of probabilities that are symmetric in the logit."""
    inside = (values > 0) & (values < 1)
    clipped = np.where(inside, values, 0.5)
    logits = np.log(clipped / (1 - clipped))
    reach = quantile * errors / (clipped * (1 - clipped))
    low, high = (1 / (1 + np.exp(-(logits + side * reach))) for side in (-1, 1))
    return np.where(inside, low, values), np.where(inside, high, values)


def name_parameters(schema: Schema, of_prior: BoolArray, of_factors: BoolArray) -> str:
    """Name the parameters that are marked, the states of each variable: "" where none is.

    Parameters
    ----------
    schema
        Variables.
    of_prior, of_factors
        bool of shapes (rank,) and (n_levels, rank).
    """
    marks = [("the prior", of_prior)]
    by_variable = np.logical_or.reduceat(of_factors, schema.offsets[:-1])
    marks += [(name, marked) for name, marked in zip(schema.names, by_variable, strict=True)]
    by_states: dict[tuple[int, ...], list[str]] = {}
    for name, marked in marks:
        if marked.any():
            by_states.setdefault(tuple(np.flatnonzero(marked).tolist()), []).append(name)
    parts = []
    for states, names in by_states.items():
        where = "all states" if len(states) == of_prior.size else f"states {list_some(states)}"
        parts.append(f"{list_some(names)} in {where}")
    return "; ".join(parts[:5]) + (f"; and {len(parts) - 5} more" if len(parts) > 5 else "")


def list_some(items: Sequence[object]) -> str:
    """The first few, in words."""
    shown = ", ".join(map(str, items[:6]))
    return shown + (f" and {len(items) - 6} more" if len(items) > 6 else "")
