"""Standard errors of a model's parameters: arrays by name, intervals, scales, and which are not determined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray
from pmflib.base.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.base.replicate_weights import NORMAL_QUANTILE
from pmflib.families.panels.model import TransitionModel
from pmflib.families.traits.discriminations import Discriminations, name_contrast
from pmflib.families.traits.trait_model import TraitModel
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.model import JointPMF
from pmflib.schema import Schema

MAX_ENTRIES = 2000
"""Limit of entries of prior and tables whose information is inverted: some seconds, some hundred megabytes."""
FAR = 0.2
"""Distance from the maximum of the likelihood, in standard errors, above which a note reports it."""
VAGUE = 12**-0.5
"""Standard deviation of a uniform probability: one with a larger error is not determined."""


SCALES = {
    "prior": "probabilities",
    "factors": "probabilities given the state",
    "tables": "probabilities given the state and the parent",
    "initial": "probabilities",
    "transitions": "probabilities given the state in the wave before",
    "emissions": "probabilities given the state",
    "discriminations": "logits between two levels per standard deviation of the trait",
    "thresholds": "standard deviations of the trait",
    "base": "logits at a trait of 0, centred: those of a variable's levels sum to 0",
    "slopes": "logits per standard deviation of the trait, centred: those of a variable's levels sum to 0",
}
"""Scale of each array of parameters."""


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

    Latent classes have ``prior`` (rank,) and ``factors`` (n_levels, rank), forests also ``tables`` (n_entries,);
    transition models have the arrays of `pmflib.families.panels.model.TransitionModel`. Item response models have the
    numbers of their summary, ``discriminations`` (n_variables, n_traits) and, of one trait, ``thresholds``
    (n_thresholds,), and the arrays of ``model.trait_model`` that these are made of, ``base`` (n_levels,) and
    ``slopes`` (n_levels, n_traits).

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
    model: JointPMF | TransitionModel
    method: str
    distance: float
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> ArrayErrors:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def scales(self) -> dict[str, str]:
        """Scale of each array: probabilities, logits, or standard deviations of a trait."""
        return {name: SCALES[name] for name in self.arrays}

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
        if isinstance(self.model, TransitionModel):
            return self._summarise_chain(self.model, facts)
        if isinstance(self.model, TraitPMF):
            tables = self._tabulate_items(self.model.trait_model)
            return Summary("Standard errors of item parameters", facts, self.notes, tables)
        prior, factors, schema = self.arrays["prior"], self.arrays["factors"], self.model.schema
        rows = _describe("share of the samples", prior, ())
        for variable in schema:
            first = schema.rows_of(variable.name).start
            for code, level in enumerate(variable.levels):
                rows += _describe(f"{variable.name} = {level}", factors, (first + code,))
        table = SummaryTable(
            "Probabilities given the state, with 95 % intervals",
            ("level", ">state", ">probability", ">from", ">to"),
            rows,
            len(rows),
            'errors["factors"]',
        )
        return Summary("Standard errors of parameters", facts, self.notes, (table,))

    def _summarise_chain(
        self, model: TransitionModel, facts: tuple[tuple[str, str], ...]
    ) -> Summary:
        """Initial shares, every distinct transition matrix, and the answers given the state."""
        rows = _describe("share in the first wave", self.arrays["initial"], ())
        for wave in range(model.n_waves - 1)[: 1 if model.homogeneous else None]:
            waves = "any wave" if model.homogeneous else f"wave {wave}"
            for state in range(model.n_states):
                name = f"to the next of {waves}, from state {state}"
                rows += _describe(name, self.arrays["transitions"], (wave, state))
        positions = range(model.schema.n_variables)
        for position in model.waves.first_positions.tolist() if model.invariant else positions:
            variable, first = model.schema[position], model.schema.rows_of(position).start
            for code, level in enumerate(variable.levels):
                rows += _describe(
                    f"{variable.name} = {level}", self.arrays["emissions"], (first + code,)
                )
        table = SummaryTable(
            "Transitions, and probabilities given the state, with 95 % intervals",
            ("what", ">state", ">probability", ">from", ">to"),
            rows,
            len(rows),
            'errors["transitions"], errors["emissions"]',
        )
        return Summary("Standard errors of a transition model", facts, self.notes, (table,))

    def _tabulate_items(self, traits: TraitModel) -> tuple[SummaryTable, ...]:
        """Discriminations, and thresholds if there are any."""
        schema, found = self.model.schema, Discriminations.find(traits)
        slopes = self.arrays["discriminations"]
        rows = []
        for variable, trait in np.ndindex(slopes.values.shape):
            name = ": ".join(name_contrast(schema, found.levels[variable, trait]))
            rows.append((name, str(trait), *_write(slopes, (variable, trait), 2)))
        title = f"Discriminations: {SCALES['discriminations']}, with 95 % intervals"
        columns = ("levels", ">trait", ">logits", ">from", ">to")
        tables = [SummaryTable(title, columns, rows, len(rows), 'errors["discriminations"]')]
        if found.steps.size:
            steps = [
                (
                    ": ".join(name_contrast(schema, levels)),
                    *_write(self.arrays["thresholds"], (at,), 2),
                )
                for at, levels in enumerate(found.steps)
            ]
            title = f"Thresholds: {SCALES['thresholds']} where both levels are equally likely, with 95 % intervals"
            heads = ("levels", ">trait at", ">from", ">to")
            tables.append(SummaryTable(title, heads, steps, len(steps), 'errors["thresholds"]'))
        return tuple(tables)


def _describe(name: str, found: ArrayErrors, place: tuple[int, ...]) -> list[tuple[str, ...]]:
    """Values and intervals of all states at a place of an array, one row per state."""
    states = range(found.values[place].size)
    return [(name, str(state), *_write(found, (*place, state), 3)) for state in states]


def _write(found: ArrayErrors, place: tuple[int, ...], digits: int) -> tuple[str, str, str]:
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


def list_some(items: Sequence[object]) -> str:
    """List the first few."""
    shown = ", ".join(map(str, items[:6]))
    return shown + (f" and {len(items) - 6} more" if len(items) > 6 else "")
