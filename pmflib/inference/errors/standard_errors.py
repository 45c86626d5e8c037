"""Standard errors and intervals of a model's parameters, from the observed information."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from operator import attrgetter

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray
from pmflib.base.display.summary import decimal
from pmflib.base.errors import IdentificationWarning, PmfError
from pmflib.base.replicate_weights import NORMAL_QUANTILE
from pmflib.base.variance import Variance
from pmflib.em.block_source import BlockSource
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_pmf import find_parameters
from pmflib.families.panels.model import Chain, TransitionModel
from pmflib.families.traits.discriminations import Discriminations
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.inference.errors.covariance import (
    Covariance,
    PMFCovariance,
    PMFInformation,
)
from pmflib.inference.errors.information import (
    check_single_fit,
    find_chain_covariance,
    find_information,
    find_item_covariance,
    invert_information,
    list_chain,
    list_item_numbers,
    open_source,
)
from pmflib.inference.errors.parameter_errors import (
    FAR,
    FIELDS,
    VAGUE,
    ArrayErrors,
    ParameterErrors,
    find_intervals,
    list_some,
    name_parameters,
    reshape_errors,
    span_logits,
)
from pmflib.inference.errors.scores import find_factor_slopes
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.surveys.design.linearised import read_entries
from pmflib.surveys.design.replicates import Method, Replicates, fit_replicates


def standard_errors(
    model: JointPMF | TransitionModel,
    samples: object,
    design: Variance | None = None,
    *,
    method: Method = "auto",
) -> ParameterErrors:
    """Compute standard errors and 95 % intervals of a model's parameters.

    Latent classes and item responses use the inverse of the observed information, or White's robust errors where these
    are larger; forests and transition models use products of scores. Parameters that the samples do not determine have
    no error, and a warning names them.

    Parameters
    ----------
    model
        Fitted to these samples by `pmflib.fit_em`, `pmflib.fit_item_responses` or `pmflib.fit_transitions`; forests are
        taken as given.
    samples
        Codes of shape (n_rows, n_variables), -1 missing; what the schema can encode; or `StoredSamples`, whose workers
        share the pass.
    design
        Sampling design of latent classes fitted to samples in memory: errors follow from its units or replicates. None
        takes samples as independent, with weight 1.
    method
        How errors of a design are found, as for `pmflib.fit_replicates`: to first order, or by refits.

    Returns
    -------
    Errors and intervals by array, a mapping; ``scales`` has the scale of each array, and ``summary()`` prints the
    parameters of the model's own summary. Latent classes have probabilities: ``["prior"]`` and ``["factors"]``, with
    forests also ``["tables"]``; transition models ``["initial"]``, ``["transitions"]`` and ``["emissions"]``. Item
    responses have ``["discriminations"]`` (n_variables, n_traits), logits between two levels per standard deviation of
    the trait, and of one trait ``["thresholds"]``, in standard deviations of it, both by the delta method; and the
    logits of the levels at traits of 0, ``["base"]``, and per standard deviation of each trait, ``["slopes"]``, centred
    so that those of a variable sum to 0: with two levels, half the discrimination.

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
    Intervals of probabilities are symmetric in the logit, so that they stay in [0, 1]. A probability at an edge has no
    error, because no normal law holds there; its interval ends where the log-likelihood has fallen by 1.92 nats. Errors
    of all others are as large as if it were free. Pseudo-counts of the fit reduce no error. Answers are assumed to be
    missing at random. A threshold has an interval only where its two levels differ in slope at the 5 % level.

    References
    ----------
    Louis (1982), JRSS B 44(2), for the information of incomplete data; White (1982), Econometrica 50(1), for robust
    errors; Goodman (1974), Biometrika 61(2), on what is determined.
    """
    if isinstance(model, TransitionModel):
        return _find_chain_errors(model, samples, design)
    check_single_fit(model)
    if design is not None:
        return find_design_errors(fit_replicates(model, samples, design, method=method))
    source = open_source(model.schema, model.rank, samples)
    if isinstance(model, TraitPMF):
        return _find_item_errors(model, source)
    found = find_information(model, source)
    if not found.mass.any():
        raise PmfError("samples has no observed cell; give those that the model was fitted to")
    solved = invert_information(model, found)
    arrays = _make_arrays(model, find_parameters(model), solved)
    found_by = "observed information" if found.crossed is not None else "products of scores"
    notes = _write_notes(model.schema, arrays, solved)
    for note in notes:
        warnings.warn(note, IdentificationWarning, stacklevel=2)
    n_edges = sum(int(each.is_edge.sum()) for each in arrays.values())
    if n_edges:
        notes += (
            f"{n_edges} probabilities are at 0 or 1, and taken as fixed: they have intervals, but no errors",
        )
    return ParameterErrors(arrays, model, found_by, solved.distance, notes)


def _find_chain_errors(
    model: TransitionModel, samples: object, design: Variance | None
) -> ParameterErrors:
    """Errors of a transition model, with notes."""
    if design is not None:
        raise PmfError(
            "design is given and model is a transition model, whose errors take samples as independent; leave it out"
        )
    source = open_source(model.schema, model.n_states, samples)
    solved, (values, _) = find_chain_covariance(model, source), list_chain(model)
    flat = find_intervals(values, *solved.spread(), solved.is_edge, solved.reach)
    entries = [read_entries(getattr(flat, name), model.n_states) for name in FIELDS]
    by_array = zip(*map(model.layout.split, entries), strict=True)
    arrays = {name: ArrayErrors(*own) for name, own in zip(Chain._fields, by_array, strict=True)}
    counts = {name: (~each.is_determined).sum() for name, each in arrays.items()}
    notes: tuple[str, ...] = ()
    if unknown := [
        f"{count} of {arrays[name].values.size} {name}" for name, count in counts.items() if count
    ]:
        notes += (
            f"not determined by the samples: {', '.join(unknown)}; these have no errors; take fewer states",
        )
    return _warn(arrays, model, "products of scores", solved, notes, "a smaller tol")


def find_design_errors(found: Replicates) -> ParameterErrors:
    """Design-based errors of prior and factors.

    Warns
    -----
    IdentificationWarning
        If there are parameters that the samples do not determine.
    """
    quantile, arrays, notes = found.find_quantile(0.95), {}, found.notes
    known = zip(("prior", "factors"), found.is_determined, found.is_edge, strict=True)
    for name, is_determined, is_edge in known:
        values, errors = found.find_errors(attrgetter(name))
        is_determined = is_determined & (errors <= VAGUE)
        errors = np.where(is_determined, errors, np.nan)
        ends = span_logits(values, errors, quantile)
        arrays[name] = ArrayErrors(values, errors, *ends, is_determined, is_edge)
    schema, unknown = found.model.schema, [~each.is_determined for each in arrays.values()]
    if names := name_parameters(schema, *unknown):
        notes += (f"not determined by the samples: {names}; these have no errors; lower the rank",)
        warnings.warn(notes[-1], IdentificationWarning, stacklevel=3)
    return ParameterErrors(arrays, found.model, found.method, found.distance, notes)


def _find_item_errors(model: JointPMF, source: BlockSource) -> ParameterErrors:
    """Errors of an item response model: of discriminations and thresholds, and of the logits they are made of."""
    solved = find_item_covariance(model, source)
    arrays: dict[str, ArrayErrors] = {}
    numbers = list_item_numbers(model)
    for name, (values, jacobian) in numbers.items():
        errors, is_determined = solved.spread(jacobian)
        errors, is_determined = errors.reshape(values.shape), is_determined.reshape(values.shape)
        if name == "thresholds":
            is_determined = is_determined & _are_moved(model, numbers["slopes"][1], solved)
            errors = np.where(is_determined, errors, np.nan)
        ends = values - NORMAL_QUANTILE * errors, values + NORMAL_QUANTILE * errors
        is_edge = np.zeros(values.shape, bool)
        arrays[name] = ArrayErrors(values, errors, *ends, is_determined, is_edge)
    notes: tuple[str, ...] = ()
    unknown = [
        variable.name
        for variable in model.schema
        if not all(
            arrays[name].is_determined[model.schema.rows_of(variable.name)].all()
            for name in ("base", "slopes")
        )
    ]
    if unknown:
        notes += (
            f"not determined by the samples: item parameters of {list_some(unknown)}; these have no errors; take "
            "fewer traits, or add variables",
        )
    return _warn(arrays, model, "observed information", solved, notes, "more passes")


def _warn(
    arrays: dict[str, ArrayErrors],
    model: JointPMF | TransitionModel,
    method: str,
    solved: Covariance,
    notes: tuple[str, ...],
    remedy: str,
) -> ParameterErrors:
    """Errors with their notes and one on a model that is no maximum, of which callers of callers are warned."""
    if solved.distance > FAR:
        notes += (
            f"the model is {decimal(solved.distance)} standard errors from the maximum of the likelihood: fit it again "
            f"with {remedy}",
        )
    for note in notes:
        warnings.warn(note, IdentificationWarning, stacklevel=4)
    return ParameterErrors(arrays, model, method, solved.distance, notes)


def _are_moved(model: JointPMF, by_slopes: FloatArray, solved: Covariance) -> BoolArray:
    """Whether the trait moves the two levels of each threshold beyond chance: otherwise no interval of it is bounded.

    References
    ----------
    Fieller (1954), JRSS B 16(2), on intervals of ratios.
    """
    assert isinstance(model, TraitPMF)
    slopes = model.trait_model.slopes[:, 0]
    upper, lower = Discriminations.find(model.trait_model).steps.T
    errors, _ = solved.spread(by_slopes[upper] - by_slopes[lower])
    return np.asarray(np.abs(slopes[upper] - slopes[lower]) > NORMAL_QUANTILE * errors)


def note_undetermined(model: JointPMF, found: PMFInformation) -> str:
    """Name the parameters that the samples do not determine; "" if there are none.

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
    arrays = _make_arrays(model, find_parameters(model), solved)
    return _name_undetermined(model.schema, arrays, solved)


def _make_arrays(
    model: JointPMF, parameters: TreeParameters, solved: PMFCovariance
) -> dict[str, ArrayErrors]:
    """Errors of prior and factors, and of the tables of forests."""
    rank, forest = model.rank, parameters.forest
    values = np.concatenate([model.prior, parameters.tables])
    entries = find_intervals(values, *solved.spread(), solved.is_edge, solved.reach)
    prior, tables = (reshape_errors(entries, own) for own in (slice(0, rank), slice(rank, None)))
    if not forest.n_edges:
        # states come first in tables, and last in factors
        by_state = reshape_errors(tables, slice(None), model.factors.shape[::-1])
        fields = (getattr(by_state, name).T for name in FIELDS)
        return {"prior": prior, "factors": ArrayErrors(*fields)}
    slopes = find_factor_slopes(parameters)
    errors, is_determined = solved.spread(slopes)
    is_edge = (slopes @ ~solved.is_edge) == 0
    factors = find_intervals(
        model.factors.ravel(), errors, is_determined, is_edge, slopes @ solved.reach
    )
    return {
        "prior": prior,
        "factors": reshape_errors(factors, slice(None), model.factors.shape),
        "tables": tables,
    }


def _write_notes(
    schema: Schema, arrays: Mapping[str, ArrayErrors], solved: PMFCovariance
) -> tuple[str, ...]:
    """Notes on undetermined parameters and on whether the model is at a maximum."""
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
    """Name the undetermined parameters and the reason; "" if there are none."""
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
