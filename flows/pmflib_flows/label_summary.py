"""What a person should know of a label log: agreement, tasks worth another label, workers to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmflib.crowd.pipeline.summaries import KnownSummary, LabelSummary

SHOWN = 5
"""Tasks and workers that are named; all that are known are in the facts."""


def describe_agreement(found: LabelSummary) -> Iterator[str]:
    """Lines for people on what was found in a label log."""
    if found.compared_labels == 0 and found.labels and not found.known and len(found.classes) > 1:
        yield (
            "no task has two labels: how good workers are cannot be seen, and confidence is what is assumed of them; "
            "have some tasks labelled again"
        )
    if found.alpha is not None:
        yield (
            "agreement between workers (Krippendorff's alpha; 1 is all, 0 is chance): "
            f"{found.alpha:.3f}"
        )
    if found.majority_agreement is not None:
        yield f"labels that the majority vote gives too: {100 * found.majority_agreement:.1f} %"
    if found.power is not None:
        yield (
            f"confidence: a label counts for {found.power:.2f} of one that is independent of the others of its task"
        )
    if found.classifier_power is not None:
        yield (
            f"classifier: its probabilities count with power {found.classifier_power:.2f}; 0 says nothing, 1 is right "
            "as it stands"
        )
    if tasks := found.ask_again[:SHOWN]:
        named = (
            f"{each['task']} by {each['worker'] or 'somebody new'} ({each['label']} {100 * each['confidence']:.0f} %, "
            f"{each['n_labels']} labels)"
            for each in tasks
        )
        yield f"ask again: {', '.join(named)}"
    if not found.suspicious_workers:
        yield "suspicious workers: none"
        return
    yield f"suspicious workers: {len(found.suspicious_workers)}"
    for worker in found.suspicious_workers[:SHOWN]:
        yield (
            f"  {worker['worker']}: {worker['reason']}; {100 * worker['right']:.0f} % of {worker['n_labels']} labels "
            f"right, {100 * worker['by_chance']:.0f} % by chance"
        )


def describe_known(found: KnownSummary) -> str:
    """Line for people on the labels that were known.

    Examples
    --------
    >>> from pmflib.crowd.pipeline.summaries import KnownSummary
    >>> describe_known(KnownSummary(25, {"unknown_task": 2}))
    'known labels: 25 tasks; rows set aside: 2 unknown_task'
    """
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.set_aside.items())
    return f"known labels: {found.known:,} tasks" + (
        f"; rows set aside: {reasons}" if reasons else ""
    )
