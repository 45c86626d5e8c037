"""Where passes over label logs begin after co-occurrences: with what these gave, or with the votes."""

from __future__ import annotations

from pmflib.crowd.passes import CrowdFit, Evaluate
from pmflib.crowd.runs import Keep, Recall, forget, make_run
from pmflib.solvers.annotators import Annotators

PLAIN = ("multispa", "cnmf")
"""Methods of co-occurrences whose passes begin as published, with them alone."""

SCREENING = 10
"""Passes from each of two starts, before the likelier goes on."""


def begin_passes(
    evaluate: Evaluate,
    start: Annotators,
    method: str,
    *,
    max_passes: int = 100,
    tol: float = 1e-5,
    keep: Keep = forget,
    recall: Recall = forget,
) -> Annotators | CrowdFit:
    """First passes from given annotators and from the votes: those that make the answers likelier.

    Parameters
    ----------
    evaluate
        Statistics of the items.
    start
        Annotators from co-occurrences.
    method
        How they were found: after those in ``PLAIN`` no other start is looked at.
    max_passes, tol
        Of the passes that these begin; as for `run_passes`.
    keep, recall
        As for `make_run`.

    Returns
    -------
    What passes are to go on from.
    """
    if method in PLAIN:
        return start
    run = make_run(evaluate, start, tol, keep=keep, recall=recall)
    passes = min(SCREENING, max_passes)
    return max((run(start, passes), run(None, passes)), key=lambda fit: fit.log_likelihoods[-1])
