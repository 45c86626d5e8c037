"""Errors of parameters as a run records them, where one more pass over its samples has them in a moment."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from pmflib.core.errors import IdentificationWarning
from pmflib.display.summary import format_count
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.exports import COLUMNS, list_parameters
from pmflib.fitting.standard_errors import standard_errors
from pmflib.model import JointPMF

MOST_RECORDED = 500
"""Entries of prior and tables up to which errors are recorded: 60 kB in the record of a run."""
MOST_WORK = 10_000_000_000
"""Samples times squared entries that a run spends on them: some seconds of a core, shared by the workers."""
OF_WEIGHTS = (
    "weights are allowed for by Kish's effective number of samples, and sampling units are not"
)
"""What is said of errors of a fit to samples with weights."""
SHARES_NAMED = 8
"""States whose shares are written in a sentence, at most."""


def record_errors(model: JointPMF, samples: StoredSamples) -> dict[str, Any] | None:
    """Find the errors of a model's parameters as `pmflib.standard_errors` does, in plain JSON types.

    Parameters
    ----------
    model
        A fit of latent classes or forests to the samples.
    samples
        The samples.

    Returns
    -------
    ``method``, ``from_maximum`` (standard errors from the maximum of the likelihood), ``notes``, a ``sentence``, and
    ``rows`` of ``columns``, a row for each share of a state and each probability of a level given the state; null is
    what is not known. None for averages and traits, which have no errors, and for what would take longer than a moment:
    above ``MOST_RECORDED`` entries, or ``MOST_WORK``.
    """
    if model.origin.get("final") or model.trait_model is not None or not samples.n_observed:
        return None
    n_entries = model.rank + model.parameters.tables.size
    if n_entries > MOST_RECORDED or samples.n_rows * n_entries**2 > MOST_WORK:
        return None
    with warnings.catch_warnings():
        # what is not determined is among the notes
        warnings.simplefilter("ignore", IdentificationWarning)
        found = standard_errors(model, samples)
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
        "notes": [*found.notes, *([OF_WEIGHTS] if samples.is_weighted else [])],
        "sentence": f"{format_count(n_known)} of {format_count(len(rows))} parameters have an interval of 95 %; "
        f"shares of the states: {named}{more}",
        "columns": list(COLUMNS),
        "rows": rows,
    }


def _describe_share(value: float, low: float | None, high: float | None) -> str:
    """Share of a state with its interval, in per cent."""
    if low is None or high is None:
        return f"{100 * value:.1f} % (not determined)"
    return f"{100 * value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def list_intervals(recorded: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of what `record_errors` gave: what a probability is of, state, value, from, to; none of an empty mapping."""
    rows: list[tuple[str, ...]] = []
    for name, state, variable, level, value, _, low, high in recorded.get("rows", ()):
        what = "share of the samples" if name == "share" else f"{variable} = {level}"
        ends = ("not determined", "") if low is None else (f"{low:.3f}", f"{high:.3f}")
        rows.append((what, str(state), f"{value:.3f}", *ends))
    return rows
