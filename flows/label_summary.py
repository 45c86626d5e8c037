"""What a person should know of a label log: agreement, tasks worth another label, workers to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 5
"""Tasks and workers that are named; all that are known are in the facts."""


def describe_agreement(facts: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people.

    Parameters
    ----------
    facts
        Summary of the labels: alpha, majority_agreement, power, ask_again, suspicious_workers.

    Examples
    --------
    >>> facts = {"alpha": 0.5, "majority_agreement": None, "power": None, "suspicious_workers": []}
    >>> list(describe_agreement(facts | {"ask_again": []}))
    ["agreement between workers (Krippendorff's alpha; 1 is all, 0 is chance): 0.500", 'suspicious workers: none']
    """
    if facts["alpha"] is not None:
        yield (
            "agreement between workers (Krippendorff's alpha; 1 is all, 0 is chance): "
            f"{facts['alpha']:.3f}"
        )
    if facts["majority_agreement"] is not None:
        yield f"labels that the majority vote gives too: {100 * facts['majority_agreement']:.1f} %"
    if facts["power"] is not None:
        yield (
            f"confidence: a label counts for {facts['power']:.2f} of one that is independent of the others of its task"
        )
    if tasks := facts["ask_again"][:SHOWN]:
        named = (
            f"{each['task']} by {each['worker'] or 'somebody new'} ({each['label']} {100 * each['confidence']:.0f} %, "
            f"{each['n_labels']} labels)"
            for each in tasks
        )
        yield f"ask again: {', '.join(named)}"
    found = facts["suspicious_workers"]
    if not found:
        yield "suspicious workers: none"
        return
    yield f"suspicious workers: {len(found)}"
    for each in found[:SHOWN]:
        yield (
            f"  {each['worker']}: {each['reason']}; {100 * each['right']:.0f} % of {each['n_labels']} labels right, "
            f"{100 * each['by_chance']:.0f} % by chance"
        )


def describe_known(facts: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people on the labels that were known; none where none were given.

    Parameters
    ----------
    facts
        Facts of a run, with the summary of its known labels as ``known_labels``.

    Examples
    --------
    >>> list(describe_known({"known_labels": {"known": 25, "set_aside": {"unknown_task": 2}}}))
    ['known labels: 25 tasks; rows set aside: 2 unknown_task']
    """
    if known := facts.get("known_labels"):
        reasons = ", ".join(f"{count} {reason}" for reason, count in known["set_aside"].items())
        more = f"; rows set aside: {reasons}" if reasons else ""
        yield f"known labels: {known['known']:,} tasks{more}"
