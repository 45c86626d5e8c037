"""What the stages of a label log say of what they made: in the manifest, and the labels in the record of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pmflib.crowd.pipeline.label_tables import AskedTask
from pmflib.crowd.workers import SuspiciousWorker


@dataclass(frozen=True)
class PairsSummary:
    """Numbers of workers, of their labels, of pairs that share tasks, and of pairs of labels of the same task."""

    workers: int
    labels: int
    pairs: int
    label_pairs: int


@dataclass(frozen=True)
class KnownSummary:
    """Known labels that were given.

    Parameters
    ----------
    known
        Tasks of the log whose label is known.
    set_aside
        Rows that are of no use, by reason.
    """

    known: int
    set_aside: Mapping[str, int]

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> KnownSummary | None:
        """Known labels among the facts of a run; None where none were given."""
        found = facts.get("known_labels")
        return cls(found["known"], found["set_aside"]) if found else None


@dataclass(frozen=True)
class LabelSummary:
    """What was found in a label log.

    Parameters
    ----------
    tasks, labels, workers
        Numbers of them.
    classes, prior
        Names of the classes, and the share of the tasks that are of each.
    pseudo_count
        That of the crowd model.
    subclasses
        Subclasses of tasks in every class; None where that is not known.
    passes, converged
        Passes that were made, and whether they converged.
    power
        Power of the labels in their probabilities, the one that predicts left-out labels best; None where that is not
        known.
    left_out_power
        The power by which left-out labels are predicted; None where that is not known.
    shared_error
        Share of shared errors; None where that is not known.
    classifier_power
        Power of the probabilities of a classifier: 0 where they say nothing, 1 where they need no change; None without
        one.
    alpha
        Krippendorff's alpha; None where it is not defined.
    compared_labels
        Labels of tasks that have another one: without any, nothing is seen of how good workers are; None where that is
        not known.
    majority_agreement
        Share of the tasks whose label is the majority's; None without labels.
    ask_again
        Tasks to ask again, and whom.
    suspicious_workers
        Workers to look at, the worst first.
    method, em
        Method of the run, and whether passes were made after pairs of workers; None where nothing was said of it.
    known
        Tasks whose label was known; None where none were given.
    """

    tasks: int
    labels: int
    workers: int
    classes: Sequence[str]
    prior: Sequence[float]
    pseudo_count: float
    passes: int
    converged: bool
    subclasses: int | None = None
    power: float | None = None
    left_out_power: float | None = None
    shared_error: float | None = None
    classifier_power: float | None = None
    alpha: float | None = None
    compared_labels: int | None = None
    majority_agreement: float | None = None
    ask_again: Sequence[AskedTask] = ()
    suspicious_workers: Sequence[SuspiciousWorker] = field(default_factory=list)
    method: str | None = None
    em: bool | None = None
    known: int | None = None

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> LabelSummary | None:
        """What was found, among the facts of a run; None where the run did not come to its labels."""
        if "classes" not in facts:
            return None
        return cls(**{each.name: facts[each.name] for each in fields(cls) if each.name in facts})

    def to_json(self) -> dict[str, object]:
        """Plain JSON types; what nothing was said of has no key."""
        content = asdict(self)
        said = {key: content.pop(key) for key in ("method", "em", "known")}
        return {key: value for key, value in said.items() if value is not None} | content
