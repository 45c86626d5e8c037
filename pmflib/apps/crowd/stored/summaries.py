"""Summaries of the stages of a label log, for the manifest and the record of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pmflib.apps.crowd.stored.label_tables import AskedTask
from pmflib.apps.crowd.workers import SuspiciousWorker
from pmflib.base.json_records import Form, JsonRecord, from_json


@dataclass(frozen=True)
class PairsSummary:
    """Numbers of workers, labels, pairs of workers with common tasks, and pairs of labels of the same task."""

    workers: int
    labels: int
    pairs: int
    label_pairs: int


@dataclass(frozen=True)
class KnownSummary:
    """Summary of the known labels of a run.

    Parameters
    ----------
    known
        Number of tasks of the log whose label is known.
    set_aside
        Number of quarantined rows, by reason.
    """

    known: int
    set_aside: Mapping[str, int]

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> KnownSummary | None:
        """Find the known labels among the facts of a run; None without known labels."""
        found = facts.get("known_labels")
        return from_json(cls, found) if found else None


@dataclass(frozen=True)
class LabelSummary(JsonRecord):
    """Summary of an aggregated label log. Optional values are None if unknown.

    Parameters
    ----------
    method, em
        Method of the run, and whether passes followed pairs of workers.
    known
        Number of tasks with a known label; None if none were given.
    tasks, labels, workers
        Numbers of tasks, labels and workers.
    classes, prior
        Names of the classes, and their shares of the tasks.
    pseudo_count
        Pseudo-count of the crowd model.
    subclasses
        Number of subclasses of every class.
    passes, converged
        Number of passes, and whether they converged.
    power
        Power of the labels in the calibrated probabilities.
    left_out_power
        Power that best predicts left-out labels.
    shared_error
        Share of shared errors.
    classifier_power
        Power of the probabilities of a classifier: 0 if uninformative, 1 if calibrated; None without one.
    alpha
        Krippendorff's alpha; None if undefined.
    compared_labels
        Number of labels of tasks with several labels; if 0, the accuracy of workers cannot be estimated.
    majority_agreement
        Share of the tasks whose label is that of the majority; None without labels.
    confidence
        Mean calibrated probability of the labels; None without tasks.
    unused_classes
        Classes whose fitted share is far below their share of the labels.
    ask_again
        Tasks for which another label would help most, and the workers to ask.
    suspicious_workers
        Suspicious workers, the worst first.
    """

    method: Annotated[str | None, Form.GIVEN] = field(default=None, kw_only=True)
    em: Annotated[bool | None, Form.GIVEN] = field(default=None, kw_only=True)
    known: Annotated[int | None, Form.GIVEN] = field(default=None, kw_only=True)
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
    confidence: float | None = None
    unused_classes: Sequence[str] = field(default_factory=list)
    ask_again: Sequence[AskedTask] = field(default_factory=list)
    suspicious_workers: Sequence[SuspiciousWorker] = field(default_factory=list)

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> LabelSummary | None:
        """Find the summary among the facts of a run; None if the run did not label tasks."""
        return from_json(cls, facts, is_part=True) if "classes" in facts else None
