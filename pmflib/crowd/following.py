"""Passes after co-occurrences: from the annotators that these give, or from the votes where that is likelier."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from pmflib.crowd.passes import CrowdFit, Evaluate, run_passes, weigh_levels
from pmflib.solvers.annotators import Annotators

PLAIN = ("multispa", "cnmf")
"""Methods of co-occurrences whose passes begin as published, with them alone."""

SCREENING = 10
"""Passes from each of two starts, before the likelier goes on."""

Keep: TypeAlias = Callable[[str, CrowdFit], None]
"""Called after each pass with the name of the run of passes that it belongs to."""
Recall: TypeAlias = Callable[[str], CrowdFit | None]
"""Where a run of passes stood, by its name; None if it has not begun."""


def follow_pairs(
    evaluate: Evaluate,
    start: Annotators,
    method: str,
    *,
    max_passes: int,
    tol: float,
    keep: Keep = lambda name, fit: None,
    recall: Recall = lambda name: None,
) -> CrowdFit:
    """Pass over the items from annotators that co-occurrences gave.

    The first passes are made from the shares of the votes as well, and the likelier of the two goes on.

    Parameters
    ----------
    evaluate
        Statistics of the items.
    start
        The annotators; passes follow their rule.
    method
        How they were found: after those in ``PLAIN`` no other start is looked at.
    max_passes, tol
        As for `run_passes`.
    keep
        Progress, and checkpoints: runs of passes are called "pairs", "votes" and, that which goes on, "passes".
    recall
        Gives back what was kept: the passes go on from there, to the same bits.

    Raises
    ------
    PmfError
        If max_passes is below 1 or tol negative.
    """
    n_annotators, n_classes, _ = start.mass.shape

    def go_on(name: str, begin: Annotators | CrowdFit | None, limit: int) -> CrowdFit:
        return run_passes(
            evaluate,
            n_annotators,
            start.rule,
            n_classes=n_classes,
            start=recall(name) or begin,
            max_passes=limit,
            tol=tol,
            on_pass=partial(keep, name),
        )

    begun: Annotators | CrowdFit | None = recall("passes")
    if begun is None and method in PLAIN:
        begun = start
    if begun is None:
        screening = min(SCREENING, max_passes)
        fits = [go_on("pairs", start, screening), go_on("votes", None, screening)]
        begun = max(fits, key=lambda fit: fit.log_likelihoods[-1])
    return go_on("passes", begun, max_passes)


def judge_by(evaluate: Evaluate) -> Callable[[Annotators], float]:
    """Log-likelihood of all answers under annotators, nats."""
    return lambda found: evaluate(*weigh_levels(found)).log_likelihood
