"""Standard errors and intervals of a model's parameters, from the observed information."""

from __future__ import annotations

import warnings
from dataclasses import replace
from operator import attrgetter
from typing import Literal

import numpy as np

from pmflib.base.errors import IdentificationWarning, PmfError
from pmflib.base.variance import Variance
from pmflib.em.stored_samples import StoredSamples, open_source
from pmflib.information.kinds import open_information
from pmflib.information.model_information import ModelInformation
from pmflib.information.parameter_errors import (
    FAR,
    MAX_ENTRIES,
    VAGUE,
    ArrayErrors,
    FittedModel,
    ParameterErrors,
    name_parameters,
    span_logits,
)
from pmflib.model import JointPMF
from pmflib.store.stored_variance import StoredVariance
from pmflib.surveys.design.replicates import (
    Method,
    Replicates,
    find_stored_replicates,
    fit_replicates,
)
from pmflib.surveys.design.sample_designs import StoredRows


def standard_errors(
    model: FittedModel,
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
        Fitted to these samples by `pmflib.fit_em`, `pmflib.families.fit_item_responses` or
        `pmflib.families.fit_transitions`; forests are taken as given.
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing; what the schema can encode; or `StoredSamples`, whose
        workers share the pass, and which have their weights and their design with them.
    design
        Sampling design of latent classes fitted to samples in memory: errors follow from its units or replicates. None
        takes samples in memory as independent, with weight 1, and refuses models fitted with weights.
    method
        How errors of a design are found, as for `pmflib.surveys.fit_replicates`: to first order, or by refits.

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
        If the model is an average of fits, whose states are no parameters, or there are no samples; if samples have a
        design, or are stored with weights, and the model is none of latent classes; if the model was fitted with
        weights, and samples in memory are given without a design.
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
    information = open_information(model)
    information.check_fit()
    drawn = None
    if isinstance(samples, StoredSamples):
        if design is not None:
            raise PmfError(
                "design is given and samples are stored, with their own design; leave it out"
            )
        drawn = samples.find_variance() or (StoredRows() if samples.is_weighted else None)
    elif design is None and model.origin.get("n_effective") is not None:
        raise PmfError(
            "samples is given without weights, and the model was fitted with weights; give "
            "design=pmflib.surveys.SurveyDesign(weight) with those of these rows, or store the samples with them"
        )
    if design is None and drawn is None:
        found, cautions = find_row_errors(information, samples)
        for note in cautions:
            warnings.warn(note, IdentificationWarning, stacklevel=2)
        return found
    information.check_design()
    assert isinstance(model, JointPMF)
    if design is not None:
        return find_design_errors(fit_replicates(model, samples, design, method=method))
    assert isinstance(samples, StoredSamples)
    assert drawn is not None
    if method == "auto":
        method = "linear" if information.n_entries <= MAX_ENTRIES else "refit"
    return find_stored_errors(model, samples, drawn, method)


def find_row_errors(
    information: ModelInformation, samples: object
) -> tuple[ParameterErrors, tuple[str, ...]]:
    """Errors of samples that are taken as drawn one by one, stored weights as numbers of samples; and the cautions."""
    source = open_source(information.model.schema, information.n_states, samples)
    return information.find_errors(source)


def find_stored_errors(
    model: JointPMF,
    samples: StoredSamples,
    design: StoredVariance,
    method: Literal["linear", "refit"],
) -> ParameterErrors:
    """Design-based errors of stored samples, with a note where the model is not at the maximum that they are of."""
    found = find_design_errors(find_stored_replicates(model, samples, design, method))
    if found.distance <= FAR:
        return found
    note = (
        f"the model is up to {found.distance:.2g} standard errors from the maximum of the likelihood of these samples: "
        "held-out samples have stopped it there, or em.tol"
    )
    return replace(found, notes=(*found.notes, note))


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
