"""Standard errors of a model's parameters: arrays by name, intervals, scales, and which are not determined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray
from pmflib.base.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.base.replicate_weights import NORMAL_QUANTILE
from pmflib.schema import Schema

MAX_ENTRIES = 2000
"""Limit of entries of prior and tables whose information is inverted: some seconds, some hundred megabytes."""
FAR = 0.2
"""Distance from the maximum of the likelihood, in standard errors, above which a note reports it."""
VAGUE = 12**-0.5
"""Standard deviation of a uniform probability: one with a larger error is not determined."""


class FittedModel(Protocol):
    """A model of any family, such as `pmflib.JointPMF`."""

    kind: ClassVar[str]

    @property
    def schema(self) -> Schema:
        """Variables."""

    @property
    def origin(self) -> Mapping[str, Any]:
        """How the model was fitted."""


@dataclass(frozen=True, eq=False)
class ArrayErrors:
    """Standard errors and intervals of an array of parameters; all arrays have its shape.

    Parameters
    ----------
    values
        float64: the parameters.
    errors
        float64: standard errors. NaN where the samples do not determine a parameter; 0 where it is fixed, as at an
        edge.
    lower, upper
        float64: limits of 95 % intervals, of probabilities within [0, 1]; NaN where the error is.
    is_determined
        bool: whether the samples determine the parameter.
    is_edge
        bool: whether it is a probability estimated at 0 or 1, where its interval begins or ends.
    """

    values: FloatArray
    errors: FloatArray
    lower: FloatArray
    upper: FloatArray
    is_determined: BoolArray
    is_edge: BoolArray


@dataclass(frozen=True, eq=False)
class ParameterErrors(Mapping[str, ArrayErrors], Summarised):
    """Errors of the parameters of a model, by the names of their arrays.

    Latent classes have ``prior`` (rank,) and ``factors`` (n_levels, rank). Other families derive a class with the names
    and scales of their arrays, and their summary.

    Parameters
    ----------
    arrays
        Errors by name; `scales` has the scale of each.
    model
        The model they are of.
    method
        How they were found.
    distance
        Distance from the maximum of the likelihood, in standard errors of the parameter that is farthest from it.
    notes
        Parameters that are not determined or at an edge, and whether the model is at the maximum.
    """

    arrays: Mapping[str, ArrayErrors]
    model: FittedModel
    method: str
    distance: float
    notes: tuple[str, ...]

    headline: ClassVar[str] = "Standard errors of parameters"
    """Headline of the summary."""
    every_scale: ClassVar[Mapping[str, str]] = {
        "prior": "probabilities",
        "factors": "probabilities given the state",
    }
    """Scale of each array that models of the kind may have."""

    def __getitem__(self, name: str) -> ArrayErrors:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def scales(self) -> dict[str, str]:
        """Scale of each array: probabilities, logits, or standard deviations of a trait."""
        return {name: self.every_scale[name] for name in self.arrays}

    def summary(self) -> Summary:
        """The parameters of the model's summary with 95 % intervals, on the same scale."""
        every = self.arrays.values()
        n_all = sum(each.values.size for each in every)
        n_known = sum(int(each.is_determined.sum()) for each in every)
        facts = (
            ("method", self.method),
            ("determined", f"{format_count(n_known)} of {format_count(n_all)} numbers"),
            ("from the maximum", f"{decimal(self.distance)} standard errors"),
        )
        return Summary(self.headline, facts, self.notes, self.tabulate())

    def tabulate(self) -> tuple[SummaryTable, ...]:
        """The tables of the summary."""
        rows = describe_states("share of the samples", self.arrays["prior"], ())
        rows += self.describe_levels("factors", range(self.model.schema.n_variables))
        table = SummaryTable(
            "Probabilities given the state, with 95 % intervals",
            ("level", ">state", ">probability", ">from", ">to"),
            rows,
            len(rows),
            'errors["factors"]',
        )
        return (table,)

    def describe_levels(self, name: str, positions: Sequence[int]) -> list[tuple[str, ...]]:
        """Rows of the levels of some variables in each state, from an array (n_levels, n_states)."""
        schema, rows = self.model.schema, []
        for variable, first in ((schema[at], schema.rows_of(at).start) for at in positions):
            for code, level in enumerate(variable.levels):
                rows += describe_states(
                    f"{variable.name} = {level}", self.arrays[name], (first + code,)
                )
        return rows


def describe_states(name: str, found: ArrayErrors, place: tuple[int, ...]) -> list[tuple[str, ...]]:
    """Values and intervals of all states at a place of an array, one row per state."""
    states = range(found.values[place].size)
    return [(name, str(state), *write_interval(found, (*place, state), 3)) for state in states]


def write_interval(found: ArrayErrors, place: tuple[int, ...], digits: int) -> tuple[str, str, str]:
    """Texts of a value and the limits of its interval."""
    value, low, high = (float(each[place]) for each in (found.values, found.lower, found.upper))
    if np.isnan(low):
        return f"{value:.{digits}f}", "not determined", ""
    return f"{value:.{digits}f}", f"{low:.{digits}f}", f"{high:.{digits}f}"


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
    """Limits of intervals of probabilities, symmetric in the logit."""
    inside = (values > 0) & (values < 1)
    clipped = np.where(inside, values, 0.5)
    logits = np.log(clipped / (1 - clipped))
    reach = quantile * errors / (clipped * (1 - clipped))
    low, high = (1 / (1 + np.exp(-(logits + side * reach))) for side in (-1, 1))
    return np.where(inside, low, values), np.where(inside, high, values)


def name_parameters(schema: Schema, of_prior: BoolArray, of_factors: BoolArray) -> str:
    """Name the marked parameters by variable and state; "" if none is marked.

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


def find_intervals(
    values: FloatArray,
    errors: FloatArray,
    is_determined: BoolArray,
    is_edge: BoolArray,
    reach: FloatArray,
) -> ArrayErrors:
    """Intervals of probabilities on the logit scale; at an edge, likelihood intervals."""
    is_determined = is_determined & (is_edge | ~(errors > VAGUE))
    is_edge = is_edge & is_determined
    errors = np.where(is_determined, np.where(is_edge, 0.0, errors), np.nan)
    inner = np.clip(values, 1e-12, 1 - 1e-12)
    # loaded where it is asked for, as a night without anything new asks for no errors
    from scipy.special import expit

    logits, widths = np.log(inner / (1 - inner)), NORMAL_QUANTILE * errors / (inner * (1 - inner))
    lower, upper = expit(logits - widths), expit(logits + widths)
    is_fixed = is_edge | (errors == 0)
    apart = np.where(is_edge, reach, 0.0)
    lower = np.where(is_fixed, np.maximum(values - apart, 0.0), lower)
    upper = np.where(is_fixed, np.minimum(values + apart, 1.0), upper)
    return ArrayErrors(values, errors, lower, upper, is_determined, is_edge)


def note_distance(distance: float, remedy: str) -> tuple[str, ...]:
    """Note that a model is too far from the maximum, in standard errors, if it is."""
    if distance <= FAR:
        return ()
    return (
        f"the model is {decimal(distance)} standard errors from the maximum of the likelihood: fit it again "
        f"with {remedy}",
    )


def list_some(items: Sequence[object]) -> str:
    """List the first few."""
    shown = ", ".join(map(str, items[:6]))
    return shown + (f" and {len(items) - 6} more" if len(items) > 6 else "")
