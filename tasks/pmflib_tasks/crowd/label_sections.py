"""What a run says of a label log: its result, agreement, tasks to ask again, suspicious workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pmflib.apps.crowd.stored.summaries import KnownSummary, LabelSummary
from pmflib.base.display.summary import SummaryTable, format_value
from pmflib.store.artefacts import Store
from pmflib.store.run_records import find_last_run, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.publish_labels import name_for_people
from pmflib_tasks.sections import Section, StatusPart

NAMED = 5
"""Maximum number of tasks and workers named; the facts have all."""


def describe_labels(facts: Mapping[str, Any]) -> Iterator[Section]:
    """List the sections on the labels of a run; none if it labelled no tasks."""
    if (found := LabelSummary.find(facts)) is not None:
        # records do not name workers
        sentences = describe_agreement(found) if "suspicious_workers" in facts else ()
        yield Section("labels", tabulate_labels(found), tuple(sentences))
    if (known := KnownSummary.find(facts)) is not None:
        yield Section("labels", sentences=(describe_known(known),))


def find_label_status(config: PipelineConfig, store: Store) -> StatusPart:
    """Find the last labels of a pipeline."""
    last = find_last_run(store, name_labelling(config.name))
    if last is None:
        return StatusPart({"labels": {}})
    facts = {**last.facts, **name_for_people(store, last.stages)}
    where = Section("labels", sentences=(f"  {facts['path']}",))
    return StatusPart({"labels": facts}, [*describe_labels(facts), where], last)


def tabulate_labels(found: LabelSummary) -> SummaryTable:
    """Build the table of the result of a label log."""
    rows = [
        ("method", found.method),
        ("em", found.em),
        ("tasks", found.tasks),
        ("labels", found.labels),
        ("workers", found.workers),
        ("classes", ", ".join(map(format_value, found.classes))),
        ("prior", ", ".join(map(format_value, found.prior))),
        ("passes", found.passes),
        ("converged", found.converged),
    ]
    shown = [(what, value) for what, value in rows if value is not None]
    return SummaryTable.of_values("Labels", ("what", "value"), shown)


def describe_agreement(found: LabelSummary) -> Iterator[str]:
    """Yield lines on the result of a label log: agreement, tasks to ask again, suspicious workers."""
    from pmflib.apps.crowd.confidence import (
        describe_confidence,  # the status does without its import
    )

    if found.compared_labels == 0 and found.labels and not found.known and len(found.classes) > 1:
        yield (
            "no task has two labels: how good workers are cannot be seen, and confidence is what is assumed of them; "
            "have some tasks labelled again"
        )
    if found.unused_classes:
        yield (
            f"the fit hardly uses the classes {', '.join(found.unused_classes)}, although workers give them: compare "
            "with --method balanced, or give known labels of them"
        )
    if found.alpha is not None:
        yield (
            "agreement between workers (Krippendorff's alpha; 1 is all, 0 is chance): "
            f"{found.alpha:.3f}"
        )
    if found.majority_agreement is not None:
        yield f"labels that the majority vote gives too: {100 * found.majority_agreement:.1f} %"
    if found.confidence is not None:
        yield describe_confidence(found.confidence, found.known or 0)
    if found.power is not None:
        yield (
            f"confidence: a label counts for {found.power:.2f} of one that is independent of the others of its task"
        )
    if found.classifier_power is not None:
        yield (
            f"classifier: its probabilities count with power {found.classifier_power:.2f}; 0 says nothing, 1 is right "
            "as it stands"
        )
    if tasks := found.ask_again[:NAMED]:
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
    for worker in found.suspicious_workers[:NAMED]:
        yield (
            f"  {worker['worker']}: {worker['reason']}; {100 * worker['right']:.0f} % of {worker['n_labels']} labels "
            f"right, {100 * worker['by_chance']:.0f} % by chance"
        )


def describe_known(found: KnownSummary) -> str:
    """Describe the known labels in one line.

    Examples
    --------
    >>> from pmflib.apps.crowd.stored.summaries import KnownSummary
    >>> describe_known(KnownSummary(25, {"unknown_task": 2}))
    'known labels: 25 tasks; rows set aside: 2 unknown_task'
    """
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.set_aside.items())
    return f"known labels: {found.known:,} tasks" + (
        f"; rows set aside: {reasons}" if reasons else ""
    )
