"""Errors of parameters as a run records them, where one more pass over its samples has them in a moment."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

from pmflib.base.display.summary import format_count
from pmflib.base.errors import IdentificationWarning, MemoryPlanError, PmfError
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.exports import COLUMNS, list_parameters
from pmflib.inference.errors.standard_errors import find_row_errors, find_stored_errors
from pmflib.information.kinds import open_information
from pmflib.information.latent_classes import ClassInformation
from pmflib.model import JointPMF
from pmflib.store.stored_variance import StoredVariance

MOST_RECORDED = 500
"""Entries of prior and tables up to which errors are recorded: 60 kB in the record of a run."""
MOST_WORK = 10_000_000_000
"""Samples times squared entries that a run spends on them: some seconds of a core, shared by the workers."""
OF_WEIGHTS = "weights are allowed for by Kish's effective number of samples"
"""What is said of errors of a fit to samples with weights alone."""
SHARES_NAMED = 8
"""States whose shares are written in a sentence, at most."""


def record_errors(
    model: JointPMF,
    samples: StoredSamples,
    design: StoredVariance | None = None,
    method: Literal["auto", "linear", "refit", "off"] = "auto",
) -> dict[str, Any] | None:
    """Find the errors of a model's parameters as `pmflib.inference.standard_errors` does, in plain JSON types.

    Parameters
    ----------
    model
        A fit of latent classes or forests to the samples.
    samples
        The samples.
    design
        How they were drawn, where that is more than by weights: errors of latent classes are then by design.
    method
        As ``em.errors`` of the configuration.

    Returns
    -------
    ``method``, ``from_maximum`` (standard errors from the maximum of the likelihood), ``notes``, a ``sentence``, and
    ``rows`` of ``columns``, a row for each share of a state and each probability of a level given the state; null is
    what is not known. None for averages and traits, which have no errors, where none are asked for, and with "auto" for
    what would take longer than a moment: above ``MOST_RECORDED`` entries, or ``MOST_WORK``.
    """
    information = open_information(model)
    has_states = isinstance(information, ClassInformation) and not model.origin.final
    if not has_states or not samples.n_observed:
        return None
    n_entries = information.n_entries
    takes_long = n_entries > MOST_RECORDED or samples.n_rows * n_entries**2 > MOST_WORK
    if method == "off" or (method == "auto" and takes_long):
        return None
    notes, by = [OF_WEIGHTS] if samples.is_weighted else [], ""
    with warnings.catch_warnings():
        # what is not determined is among the notes
        warnings.simplefilter("ignore", IdentificationWarning)
        try:
            found = None
            if design is not None and not information.has_free_factors:
                notes.append("of forests, they do not allow for units or replicate weights")
            elif design is not None:
                how: Literal["linear", "refit"] = "refit" if method == "refit" else "linear"
                found, notes = find_stored_errors(model, samples, design, how), []
                by = f" by {found.method}"
        except MemoryPlanError as error:
            return _say_nothing(str(error))
        except PmfError as error:
            notes.append(f"{error}: samples are taken as independent")
        try:
            found = find_row_errors(information, samples)[0] if found is None else found
        except MemoryPlanError as error:
            return _say_nothing(str(error))
    rows: list[list[Any]] = [
        [None if isinstance(x, float) and math.isnan(x) else x for x in row]
        for row in list_parameters(model, found)
    ]
    n_known = sum(row[-1] is not None for row in rows)
    shares = sorted((row for row in rows if row[0] == "share"), key=lambda row: -row[4])
    named = ", ".join(_describe_share(row[4], *row[6:]) for row in shares[:SHARES_NAMED])
    more = f" and {len(shares) - SHARES_NAMED} more" if len(shares) > SHARES_NAMED else ""
    return {
        "method": found.method,
        "from_maximum": found.distance,
        "notes": [*found.notes, *notes],
        "sentence": f"{format_count(n_known)} of {format_count(len(rows))} parameters have an interval of 95 %{by}; "
        f"shares of the states: {named}{more}",
        "columns": list(COLUMNS),
        "rows": rows,
    }


def _say_nothing(why: str) -> dict[str, Any]:
    """Record of errors that were asked for and could not be found."""
    said = {"method": "none", "from_maximum": None, "notes": [why]}
    return {**said, "sentence": f"no errors: {why}", "columns": list(COLUMNS), "rows": []}


def _describe_share(value: float, low: float | None, high: float | None) -> str:
    """Share of a state with its interval, in per cent."""
    if low is None or high is None:
        return f"{100 * value:.1f} % (not determined)"
    return f"{100 * value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
