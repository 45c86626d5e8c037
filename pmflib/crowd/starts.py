"""Where passes over label logs begin after co-occurrences: with what these gave, or with the votes."""

from __future__ import annotations

from pmflib.crowd.passes import CrowdFit
from pmflib.crowd.runs import Run
from pmflib.solvers.annotators import Annotators

PLAIN = ("multispa", "cnmf")
"""Methods of co-occurrences whose passes begin as published, with them alone."""

SCREENING = 10
"""Passes from each of two starts, before the likelier goes on."""


def begin_passes(
    run: Run, start: Annotators, method: str, *, max_passes: int
) -> Annotators | CrowdFit:
    """First passes from given annotators and from the votes: those that make the answers likelier.

    Parameters
    ----------
    run
        Makes passes; always the same for the same start.
    start
        Annotators from co-occurrences.
    method
        How they were found: after those in ``PLAIN`` no other start is looked at.
    max_passes
        Limit of the passes that these begin.

    Returns
    -------
    What passes are to go on from.
    """
    if method in PLAIN:
        return start
    passes = min(SCREENING, max_passes)
    return max((run(start, passes), run(None, passes)), key=lambda fit: fit.log_likelihoods[-1])
