"""Standard errors and intervals of a model's parameters, by the information of the samples that it was fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, check_model_type, sum_blocks
from pmflib.core.blocks import DenseBlock
from pmflib.core.errors import IdentificationWarning, MemoryPlanError, PmfError, SchemaError
from pmflib.core.survey_design import SurveyDesign
from pmflib.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.em.samples import SamplesInMemory
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.item_errors import find_item_covariance
from pmflib.fitting.replicates import Replicates, fit_replicates, span_logits
from pmflib.fitting.weighted_samples import weigh_samples
from pmflib.model import JointPMF
from pmflib.model.forests.statistics import TreeParameters
from pmflib.model.information import (
    find_factor_slopes,
    list_pmfs,
    merge_information,
    sum_information,
)
from pmflib.model.traits.trait_model import TraitModel
from pmflib.schema import Schema
from pmflib.solvers import PseudoCounts
from pmflib.solvers.numeric.information import PMFCovariance, PMFInformation, find_covariance
from pmflib.store.sample_blocks import BlockGroup

MAX_ENTRIES = 2000
"""Entries of prior and tables whose information is inverted: some seconds, and some hundred megabytes."""
QUANTILE = 1.959963984540054
"""Standard errors to either side of an interval of 95 %."""
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


def standard_errors(
    model: JointPMF, samples: object, design: SurveyDesign | None = None
) -> ParameterErrors:
    """Find standard errors and intervals of a model's parameters.

    The inverse of the observed information at the model, in the directions that the samples determine, or White's
    robust errors where these are larger; with forests, of the products of scores. What the samples do not determine has
    no error, and a warning says what that is; what follows from the parameters may be determined all the same, as
    answers to questions are.

    Parameters
    ----------
    model
        Fitted to these samples by `pmflib.fit_em`; forests are taken as given.
    samples
        Codes of shape (n_rows, n_variables), -1 missing; what the schema can encode; or `StoredSamples`, whose workers
        share the pass.
    design
        How samples in memory were drawn: errors are then those of its replicates, to each of which latent classes are
        fitted again (see `pmflib.fit_replicates`). None takes samples as independent, and 1 each.

    Returns
    -------
    Errors and intervals, by name of the array: mappings ``["prior"]`` and ``["factors"]``, with forests ``["tables"]``;
    of an item response model ``["base"]`` and ``["slopes"]``, logits of each variable that sum to 0 over its levels.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model is an average of fits, whose states are no parameters, or there are no samples.
    MemoryPlanError
        If prior and tables have more than ``MAX_ENTRIES`` entries.
    StoreError
        If stored samples are gone or damaged.

    Warns
    -----
    IdentificationWarning
        If there are parameters that the samples do not determine, or the model is not at the maximum of the likelihood.

    Notes
    -----
    Intervals are symmetric in the logit of a probability, so that they stay in [0, 1]. A probability at an edge has no
    error, for no normal law holds there; its interval ends where the log-likelihood has fallen by 1.92 nats. Those of
    all others are as wide as if it were free. Pseudo-counts of the fit make nothing surer. Missing answers are taken to
    be missing at random.

    References
    ----------
    Louis (1982), JRSS B 44(2), for the information of incomplete data; White (1982), Econometrica 50(1), for robust
    errors; Goodman (1974), Biometrika 61(2), on what is determined.
    """
    check_model_type("model", model, JointPMF)
    if model.origin.get("final"):
        raise PmfError(
            f"model is an average of {model.origin['average']} fits, whose states are no parameters of one likelihood; "
            "give a fit of one member, or distil it and refine that by fit_em"
        )
    if model.folding is not None:
        raise PmfError(
            "model has continuous traits whose states are people, and no maximum of a likelihood; fit up to three "
            "traits by pmflib.fit_item_responses"
        )
    if design is not None:
        return _find_design_errors(fit_replicates(model, samples, design), model)
    source = open_source(model, samples)
    if model.trait_model is not None:
        return _find_item_errors(model, model.trait_model, source)
    parameters = model.parameters
    entries, _ = list_pmfs(parameters)
    if entries.size > MAX_ENTRIES:
        raise MemoryPlanError(
            f"prior and tables have {entries.size} entries, above {MAX_ENTRIES}; lower the rank, merge levels, or ask "
            "questions: answers have errors of their own"
        )
    found = source.map_in_turn(
        _sum_group,
        merge_information,
        parameters,
        result_bytes=16 * entries.size**2,
        name="information",
    )
    if not found.mass.any():
        raise PmfError("samples has no observed cell; give those that the model was fitted to")
    solved = invert_information(model, found)
    arrays = _make_arrays(model, parameters, solved)
    method = "observed information" if found.crossed is not None else "products of scores"
    notes = _write_notes(model.schema, arrays, solved)
    for note in notes:
        warnings.warn(note, IdentificationWarning, stacklevel=2)
    n_edges = sum(int(each.is_edge.sum()) for each in arrays.values())
    if n_edges:
        notes += (
            f"{n_edges} probabilities are at 0 or 1, and taken as fixed: they have intervals, but no errors",
        )
    return ParameterErrors(arrays, model.schema, method, solved.distance, notes)


def _find_design_errors(found: Replicates, given: JointPMF) -> ParameterErrors:
    """Errors of prior and factors by replicates, at the optimum of the whole sample."""
    quantile = found.design.find_quantile(0.95)
    arrays, distance = {}, 0.0
    for name in ("prior", "factors"):
        values, errors = found.find_errors(attrgetter(name))
        is_edge = (values <= 0) | (values >= 1)
        is_determined = errors <= VAGUE
        errors = np.where(is_determined, errors, np.nan)
        ends = span_logits(values, errors, quantile)
        arrays[name] = ArrayErrors(values, errors, *ends, is_determined, is_edge)
        moved = np.abs(values - getattr(given, name))
        is_known = is_determined & (errors > 0)
        distance = max(distance, float((moved[is_known] / errors[is_known]).max(initial=0.0)))
    names = name_parameters(
        given.schema, ~arrays["prior"].is_determined, ~arrays["factors"].is_determined
    )
    notes = found.design.notes
    if names:
        notes += (f"not determined by the samples: {names}; these have no errors; lower the rank",)
        warnings.warn(notes[-1], IdentificationWarning, stacklevel=3)
    if found.n_stopped:
        notes += (f"{found.n_stopped} refits were stopped before they had converged",)
    method = f"{len(found.models)} replicates ({found.design.method}), {found.design.degrees} degrees of freedom"
    return ParameterErrors(arrays, given.schema, method, distance, notes)


def _find_item_errors(model: JointPMF, traits: TraitModel, source: BlockSource) -> ParameterErrors:
    """Errors of the intercepts and slopes of an item response model."""
    solved = find_item_covariance(model, source)
    arrays: dict[str, ArrayErrors] = {}
    for name, values, errors in (
        ("base", traits.base, solved.base_errors),
        ("slopes", traits.slopes, solved.slope_errors),
    ):
        ends = values - QUANTILE * errors, values + QUANTILE * errors
        is_edge = np.zeros(values.shape, bool)
        arrays[name] = ArrayErrors(values, errors, *ends, ~np.isnan(errors), is_edge)
    notes: tuple[str, ...] = ()
    unknown = [
        variable.name
        for variable in model.schema
        if not all(
            each.is_determined[model.schema.rows_of(variable.name)].all()
            for each in arrays.values()
        )
    ]
    if unknown:
        notes += (
            f"not determined by the samples: item parameters of {_list_some(unknown)}; these have no errors; take "
            "fewer traits, or add variables",
        )
    if solved.distance > FAR:
        notes += (
            f"the model is {decimal(solved.distance)} standard errors from the maximum of the likelihood: fit it again "
            "with more passes",
        )
    for note in notes:
        warnings.warn(note, IdentificationWarning, stacklevel=3)
    return ParameterErrors(arrays, model.schema, "observed information", solved.distance, notes)


def note_undetermined(model: JointPMF, found: PMFInformation) -> str:
    """Name the parameters that samples leave open, whatever their number: "" where there are none.

    Parameters
    ----------
    model
        Latent classes, a single fit.
    found
        Information of its samples.
    """
    solved = invert_information(model, found)
    if not solved.loose.shape[1]:
        return ""
    arrays = _make_arrays(model, model.parameters, solved)
    return _name_undetermined(model.schema, arrays, solved)


def invert_information(model: JointPMF, found: PMFInformation) -> PMFCovariance:
    """Covariances of a model's prior and tables, from the information of the samples that it was fitted to."""
    parameters = model.parameters
    pseudo_counts = _find_pseudo_counts(model, parameters, found)
    return find_covariance(*list_pmfs(parameters), found, pseudo_counts)


def open_source(model: JointPMF, samples: object, weight: object | None = None) -> BlockSource:
    """Blocks of the samples, with weights where any are given."""
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, None, model.schema)
        if samples.schema.digest != model.schema.digest:
            raise SchemaError(
                "model and samples have different schemas; take both from one pipeline"
            )
        return samples.source
    codes = model.schema.encode(samples)
    if not len(codes):
        raise PmfError("samples has no rows; give those that the model was fitted to")
    block = weigh_samples(DenseBlock(codes), weight, None, model.schema)
    return SamplesInMemory(block, model.schema.offsets, model.rank).source


def _sum_group(group: BlockGroup, parameters: TreeParameters) -> PMFInformation:
    return sum_information(iterate_distinct(group), parameters)


def _find_pseudo_counts(
    model: JointPMF, parameters: TreeParameters, found: PMFInformation
) -> FloatArray:
    """Samples that the fit has added to each entry of prior and tables."""
    rank, forest, offsets = model.rank, parameters.forest, model.schema.offsets
    mean = float(model.origin.get("pseudo_count", 0.0))
    held = forest.sum_levels(found.mass[rank:]).sum(axis=1)
    totals = np.repeat(sum_blocks(held, offsets), np.diff(offsets))
    singles = np.where(totals > 0, held / np.where(totals > 0, totals, 1.0), 0.0)
    added = PseudoCounts.shaped_by(singles, offsets, mean)
    # what edges add goes by the states' own PMFs, which the entries are close to
    of_edges = float(model.origin.get("edge_pseudo_count", 0.0)) * parameters.tables
    of_levels = np.where(forest.has_parent, of_edges, added.levels[forest.levels])
    return np.concatenate([np.full(rank, added.state), of_levels])


def _make_arrays(
    model: JointPMF, parameters: TreeParameters, solved: PMFCovariance
) -> dict[str, ArrayErrors]:
    """Errors of prior and factors, and of the tables of forests."""
    rank, forest = model.rank, parameters.forest
    values = np.concatenate([model.prior, parameters.tables])
    entries = _find_intervals(values, *solved.spread(), solved.is_edge, solved.reach)
    prior, tables = (_reshape(entries, own) for own in (slice(0, rank), slice(rank, None)))
    if not forest.n_edges:
        # states come first in tables, and last in factors
        by_state = _reshape(tables, slice(None), model.factors.shape[::-1])
        fields = (getattr(by_state, name).T for name in FIELDS)
        return {"prior": prior, "factors": ArrayErrors(*fields)}
    slopes = find_factor_slopes(parameters)
    errors, is_determined = solved.spread(slopes)
    is_edge = (slopes @ ~solved.is_edge) == 0
    factors = _find_intervals(
        model.factors.ravel(), errors, is_determined, is_edge, slopes @ solved.reach
    )
    return {
        "prior": prior,
        "factors": _reshape(factors, slice(None), model.factors.shape),
        "tables": tables,
    }


FIELDS = tuple(ArrayErrors.__dataclass_fields__)
"""Names of the arrays of errors."""


def _reshape(found: ArrayErrors, own: slice, shape: tuple[int, ...] | int = -1) -> ArrayErrors:
    """Errors of a part of an array, in a shape."""
    return ArrayErrors(*(getattr(found, name)[own].reshape(shape) for name in FIELDS))


def _find_intervals(
    values: FloatArray,
    errors: FloatArray,
    is_determined: BoolArray,
    is_edge: BoolArray,
    reach: FloatArray,
) -> ArrayErrors:
    """Intervals of probabilities on the logit scale; of those at an edge, to where the likelihood has fallen."""
    is_determined = is_determined & (is_edge | ~(errors > VAGUE))
    is_edge = is_edge & is_determined
    errors = np.where(is_determined, np.where(is_edge, 0.0, errors), np.nan)
    inner = np.clip(values, 1e-12, 1 - 1e-12)
    # loaded where it is asked for, as a night without anything new asks for no errors
    from scipy.special import expit

    logits, widths = np.log(inner / (1 - inner)), QUANTILE * errors / (inner * (1 - inner))
    lower, upper = expit(logits - widths), expit(logits + widths)
    is_fixed = is_edge | (errors == 0)
    apart = np.where(is_edge, reach, 0.0)
    lower = np.where(is_fixed, np.maximum(values - apart, 0.0), lower)
    upper = np.where(is_fixed, np.minimum(values + apart, 1.0), upper)
    return ArrayErrors(values, errors, lower, upper, is_determined, is_edge)


def _write_notes(
    schema: Schema, arrays: Mapping[str, ArrayErrors], solved: PMFCovariance
) -> tuple[str, ...]:
    """What is not determined, and whether the model is at the maximum; nothing where all is well."""
    notes = []
    if unknown := _name_undetermined(schema, arrays, solved):
        notes.append(f"{unknown}: these have no errors; lower the rank, or add variables")
    if not solved.is_maximum:
        notes.append(
            "the model is no maximum of the likelihood of these samples: errors are of the products of scores; refine "
            "it by fit_em(samples, model, pseudo_count=...) until it has converged"
        )
    elif solved.distance > FAR:
        notes.append(
            f"the parameters are up to {solved.distance:.2g} standard errors from the maximum of the likelihood of "
            "these samples: errors are of the fit there; refine the model by fit_em(samples, model) with a smaller tol"
        )
    return tuple(notes)


def _name_undetermined(
    schema: Schema, arrays: Mapping[str, ArrayErrors], solved: PMFCovariance
) -> str:
    """Say which parameters are not determined, and why: "" where all are."""
    unknown = name_parameters(
        schema, ~arrays["prior"].is_determined, ~arrays["factors"].is_determined
    )
    if not unknown:
        return ""
    n_loose = solved.loose.shape[1]
    why = f"{n_loose} directions leave all probabilities as they are"
    if not n_loose:
        why = "their errors are above .29, that of a guess"
    return f"the samples do not determine {unknown} ({why})"


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
        where = "all states" if len(states) == of_prior.size else f"states {_list_some(states)}"
        parts.append(f"{_list_some(names)} in {where}")
    return "; ".join(parts[:5]) + (f"; and {len(parts) - 5} more" if len(parts) > 5 else "")


def _list_some(items: Sequence[object]) -> str:
    """The first few, in words."""
    shown = ", ".join(map(str, items[:6]))
    return shown + (f" and {len(items) - 6} more" if len(items) > 6 else "")
