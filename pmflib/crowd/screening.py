"""Several runs of passes over one label log, and the judge of annotators, over the statistics of all items."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeAlias

from pmflib.crowd.passes import CrowdFit, Evaluate, run_passes, weigh_levels
from pmflib.solvers.crowd.annotator_model import Annotators

Run: TypeAlias = Callable[[Annotators | CrowdFit | None, int], CrowdFit]
"""Passes from annotators, from passes that were made, or (None) from the votes, until there are so many."""
Keep: TypeAlias = Callable[[int, CrowdFit], None]
"""Called after each pass with the number of the run that it belongs to, in the order in which they are asked for."""
Recall: TypeAlias = Callable[[int], CrowdFit | None]
"""Gives back what was kept last of a run, which goes on from there, to the same bits; None if that is nothing."""


def forget(number: int, fit: CrowdFit | None = None) -> None:
    """Keep and recall nothing."""


def make_run(
    evaluate: Evaluate,
    known: Annotators,
    tol: float,
    *,
    keep: Keep = forget,
    recall: Recall = forget,
) -> Run:
    """Make passes with the sizes and the rule of known annotators.

    Parameters
    ----------
    evaluate, tol
        As for `run_passes`.
    known
        The annotators.
    keep, recall
        For runs that may be killed.
    """
    n_annotators, n_classes, _ = known.mass.shape
    numbers = count(1)

    def run(begun: Annotators | CrowdFit | None, max_passes: int) -> CrowdFit:
        number = next(numbers)
        return run_passes(
            evaluate,
            n_annotators,
            known.rule,
            n_classes=n_classes,
            start=recall(number) or begun,
            max_passes=max_passes,
            tol=tol,
            on_pass=partial(keep, number),
        )

    return run


def judge_by(evaluate: Evaluate) -> Callable[[Annotators], float]:
    """Log-likelihood of all answers under annotators, nats."""
    return lambda found: evaluate(*weigh_levels(found)).log_likelihood
