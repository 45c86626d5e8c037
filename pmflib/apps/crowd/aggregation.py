"""Estimate true labels from the labels of many workers, in memory, by any method."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.classifiers import read_classifier
from pmflib.apps.crowd.co_occurrence import fit_worker_pairs
from pmflib.apps.crowd.dawid_skene import CrowdPassPlan, CrowdState, OnPass, fit_crowd, plan_passes
from pmflib.apps.crowd.e_step import LabelsInMemory, LogWeights
from pmflib.apps.crowd.fitting import fit_labels
from pmflib.apps.crowd.known_labels import find_known
from pmflib.apps.crowd.label_counts import list_unused
from pmflib.apps.crowd.label_log import (
    LabelLog,
    OnRepeated,
    OnUnknown,
    check_class_order,
    read_labels,
)
from pmflib.apps.crowd.left_out_labels import LEAST_LABELS
from pmflib.apps.crowd.methods import CROWD_METHODS, LABEL_LIMITS
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel, CrowdModel
from pmflib.apps.crowd.true_labels import Aggregation, TasksInMemory
from pmflib.apps.crowd.worker_pair_counts import count_worker_pairs
from pmflib.base.arrays import FloatArray
from pmflib.base.defaults import Limits
from pmflib.base.display.progress import find_report, reports_progress
from pmflib.base.errors import (
    ConvergenceWarning,
    IdentificationWarning,
    SchemaError,
    SchemaWarning,
)
from pmflib.base.method_options import MethodChoice, configure_method
from pmflib.base.methods import document_methods
from pmflib.base.texts import list_near
from pmflib.em.family import State


@document_methods(CROWD_METHODS)
@reports_progress
def aggregate(
    labels: object,
    method: MethodChoice = "auto",
    *,
    known: object = None,
    classifier: object = None,
    ordinal: bool = False,
    em: bool = True,
    rng: np.random.Generator | int = 0,
    classes: Sequence[Any] | None = None,
    on_repeated: OnRepeated = "last",
    on_unknown: OnUnknown = "quarantine",
    max_passes: int = LABEL_LIMITS.max_passes,
    tol: float = LABEL_LIMITS.tol,
) -> Aggregation:
    """Estimate the true labels of tasks, and the accuracy of the workers.

    Parameters
    ----------
    labels
        Columns task, worker, label, or a matrix of tasks by workers with gaps, as for `read_labels`; or a `LabelLog`.
    method
        A name of `pmflib.apps.crowd.methods.CROWD_METHODS`, or for methods of co-occurrences a mapping of the ``name``
        and options, such as ``{"name": "designated", "annotators": ("ann", "bob")}``:
        {methods}
    known
        True labels of some tasks: a mapping, or a table with columns task and label. The posterior of these tasks is
        certain, and almost certain during the passes, so that prior and confusion matrices are learnt from them as
        well. Methods of co-occurrences do not use them. They also determine intercepts of the classes, which correct
        mistakes that all workers share: see `pmflib.apps.crowd.known_intercepts`. Rows with a task that is not in the
        log or a label that is no class, and rows that contradict each other, are set aside: see
        `Aggregation.known_quarantine`.
    classifier
        Class probabilities of a model: column task, and a column for each class. Their weight is learnt from how well
        they agree with the labels; see `pmflib.apps.crowd.classifiers`.
    ordinal
        Whether classes are ordered, and near mistakes more frequent than distant ones; how much more is learnt. For
        "auto" and "balanced". The order is that of ``classes``, of an ordered categorical column, or of a `LabelLog`;
        numbers need none.
    em
        Whether passes of "dawid_skene" follow a method of co-occurrences; the published tables make ten. They start
        from the votes unless its result, or another start, makes the labels clearly likelier without contradicting the
        votes: see `pmflib.apps.crowd.fitting.find_likeliest_start`. Where workers gave too few labels for free
        confusion matrices, the passes are those of "auto", with a warning.
    rng
        For methods of co-occurrences: generator of the random starts, or its seed.
    classes, on_repeated, on_unknown
        As for `read_labels`.
    max_passes, tol
        Limit of the number of passes, and largest share of the labels that the last pass may move between classes.

    Returns
    -------
    The aggregation.

    Raises
    ------
    SchemaError, PmfError
        If the labels cannot be read, none of the known labels can be used, or an argument is out of range.

    Warns
    -----
    ConvergenceWarning
        If the passes did not converge, and tol is above 0. Not for "mv_em", which makes ten passes by definition.
    IdentificationWarning
        If no task has two labels and no label is known: confidence then rests on assumptions about workers. Or if a
        class has far fewer tasks in the fit than its share of the labels. Or if workers gave too few labels for a
        method of co-occurrences.
    SchemaWarning
        If known labels are no class.

    Notes
    -----
    "auto", "balanced" and "one_coin" learn their pseudo-count, and use the votes as additional evidence until the
    workers are known. This assumes that workers are right more often than not. Where they are hardly better than chance
    but gave many labels, "dawid_skene" and the methods of co-occurrences are more accurate.

    `CrowdOptions` holds all arguments but the labels, for callers that pass them on: ``aggregate(labels,
    **options.list_given())``.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28; Ibrahim, Fu (2021), ICML.

    Examples
    --------
    >>> found = aggregate({"task": [1, 1, 1, 2, 2], "worker": list("abcab"), "label": list("xxyyy")})
    >>> found.labels["label"].to_pylist()
    ['x', 'y']
    """
    chosen, _ = configure_method(CROWD_METHODS, method)
    log = (
        labels
        if isinstance(labels, LabelLog)
        else read_labels(labels, classes=classes, on_repeated=on_repeated, on_unknown=on_unknown)
    )
    log = _check_log(log, known, is_ordered=isinstance(labels, LabelLog), ordinal=ordinal)
    predictions = (
        None if classifier is None else read_classifier(classifier, log.tasks, log.classes)
    )
    plan = plan_passes(chosen.name, max_passes, tol, ordinal=ordinal)
    if predictions is None:
        _warn_of_single_labels(log)
    if chosen.family == "votes":
        shares: Aggregation = chosen.load()(log)
        return replace(shares, tasks=TasksInMemory(log, shares.posterior, predictions))
    source, start = LabelsInMemory.from_log(log), None
    generator = np.random.default_rng(rng)
    if chosen.family == "pairs":
        counts = count_worker_pairs(source.labels, source.n_workers, source.n_classes)
        score = source.measure_log_likelihood
        marginals = counts.normalise()
        start = fit_worker_pairs(
            marginals,
            counts.n_labels,
            method,
            score=score,
            rng=generator,
            workers=log.workers.to_pylist(),
        )
    fit, reason = fit_labels(
        source, plan, start, rng=generator, em=em, on_pass=_make_reporter(source, plan)
    )
    if not fit.converged and plan.tol > 0:
        warnings.warn(
            f"the last pass moved {fit.numbers['moved']:.2g} of the labels, above tol = {plan.tol}, after max_passes = "
            f"{plan.max_passes}; raise one of the two",
            ConvergenceWarning,
            stacklevel=3,
        )
    model = fit.parameters
    _warn_of_unused_classes(log, model.prior)
    posterior = source.find_posteriors(LogWeights.from_model(model, with_votes=False))
    return Aggregation(
        TasksInMemory(log, posterior, predictions),
        model.prior,
        model.confusion,
        model.annotator_model.copied_groups,
        model.annotator_model.evenness,
        chosen.name,
        fit.n_passes,
        fit.converged,
        reason,
    )


def _check_log(log: LabelLog, known: object, *, is_ordered: bool, ordinal: bool) -> LabelLog:
    """Add the known labels to a log, after checks.

    Raises
    ------
    SchemaError
        If no label is among the classes, no known label can be used, or the order of the classes is needed and not
        given.
    """
    _refuse_strange_labels(log)
    if known is not None:
        found = find_known(known, log.tasks, log.classes)
        _warn_of_unknown_labels(found.quarantine, log.classes.to_pylist())
        log = replace(log, known=found)
    if ordinal:
        check_class_order(log.classes.to_pylist(), given=log.is_ordered or is_ordered)
    return log


def _make_reporter(source: LabelsInMemory, plan: CrowdPassPlan) -> OnPass | None:
    """Return a callback that reports each pass; None where progress is not followed."""
    report = find_report()
    if report is None:
        return None
    most_passes = plan.count_most(with_known=source.with_known)

    def report_pass(fit: CrowdState) -> None:
        moved = f"the last pass moved {fit.numbers['moved']:.2g} of the labels"
        report(fit.n_passes, most_passes, moved)

    return report_pass


def _warn_of_single_labels(log: LabelLog) -> None:
    """Warn where the accuracy of workers cannot be estimated: no task has two labels, and none is known."""
    if not log.block.n_observed or log.n_classes < 2 or log.is_known.any():
        return
    if (np.diff(log.block.indptr) < LEAST_LABELS).all():
        warnings.warn(
            f"no task has {LEAST_LABELS} labels, so that the accuracy of workers cannot be estimated and confidence "
            "rests on assumptions; have some tasks labelled again, or pass known labels",
            IdentificationWarning,
            stacklevel=4,
        )


def _warn_of_unknown_labels(quarantine: pa.Table, classes: Sequence[Any]) -> None:
    """Warn of known labels that are no class: probably typing errors."""
    rows = [each for each in quarantine.to_pylist() if each["reason"] == "unknown_label"]
    if not rows:
        return
    first = rows[0]["label"]
    near = list_near(first, list(map(str, classes)), 1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    warnings.warn(
        f"known has {len(rows)} rows whose label is no class, as {first!r}{hint}; they are set aside in "
        "known_quarantine",
        SchemaWarning,
        stacklevel=5,
    )


def _warn_of_unused_classes(log: LabelLog, prior: FloatArray) -> None:
    """Warn of classes with far more labels than tasks."""
    n_labels = np.bincount(log.block.indices % log.n_classes, minlength=log.n_classes)
    for code in list_unused(n_labels, prior):
        warnings.warn(
            f"class {log.classes[code].as_py()!r} has {n_labels[code] / n_labels.sum():.1%} of the labels, but only "
            f"{prior[code]:.1%} of the tasks in the fit; compare with method 'balanced', or pass known labels of it",
            IdentificationWarning,
            stacklevel=4,
        )


def _refuse_strange_labels(log: LabelLog) -> None:
    """Refuse a log without a label that is among the given classes.

    Raises
    ------
    SchemaError
        If all labels were set aside for this reason.
    """
    reasons = log.quarantine["reason"]
    if log.block.n_observed or "unknown_label" not in reasons.unique().to_pylist():
        return
    given = log.quarantine["label"].unique().to_pylist()[:6]
    raise SchemaError(
        f"classes is {log.classes.to_pylist()[:6]}, and no label of the table is among them; the table has {given}: "
        "write the classes as the table does"
    )


def fit_crowd_model(
    log: LabelLog,
    start: AnnotatorModel | CrowdModel | CrowdState,
    *,
    max_passes: int = LABEL_LIMITS.max_passes,
    tol: float = LABEL_LIMITS.tol,
    on_pass: OnPass | None = None,
) -> tuple[CrowdState, FloatArray]:
    """Estimate a crowd model by passes in memory, and the posterior of every task under it.

    Parameters
    ----------
    log
        Labels as codes.
    start
        Crowd model, or the state of earlier passes, to continue from; an annotator model starts from the votes.
    max_passes, tol, on_pass
        As for `pmflib.apps.crowd.dawid_skene.fit_crowd`.

    Returns
    -------
    The state, whose model has intercepts if labels are known and passes were made; and the posterior, float64 of shape
    (n_tasks, n_classes).
    """
    source = LabelsInMemory.from_log(log)
    begun = State(start) if isinstance(start, CrowdModel) else start
    fit = fit_crowd(source, begun, limits=Limits(max_passes, tol), on_pass=on_pass)
    weights = LogWeights.from_model(fit.parameters, with_votes=False)
    return fit, source.find_posteriors(weights)


def take_majority(log: LabelLog) -> Aggregation:
    """Majority vote: the posterior of a task is its shares of the votes.

    Parameters
    ----------
    log
        Labels as codes.
    """
    weights = LogWeights.from_votes(log.n_workers, log.n_classes)
    return count_by_posterior(
        log, LabelsInMemory.from_log(log).find_posteriors(weights), "majority"
    )


def count_by_posterior(
    log: LabelLog,
    posterior: FloatArray,
    method: str,
    *,
    n_passes: int = 0,
    converged: bool = True,
) -> Aggregation:
    """Make the result of a method without confusion matrices: these count each worker's labels by posterior class.

    Parameters
    ----------
    log
        Labels as codes.
    posterior
        float64 of shape (n_tasks, n_classes).
    method, n_passes, converged
        As in `Aggregation`.
    """
    n_labels = np.diff(log.block.indptr)
    counted = np.zeros((log.n_workers * log.n_classes, log.n_classes))
    np.add.at(counted, log.block.indices, posterior[np.repeat(np.arange(log.n_tasks), n_labels)])
    states = posterior[n_labels > 0].sum(axis=0) + 1.0
    model = CrowdModel.from_probabilities(states, counted.reshape(-1, log.n_classes, log.n_classes))
    return Aggregation(
        TasksInMemory(log, posterior),
        model.prior,
        model.confusion,
        method=method,
        n_passes=n_passes,
        converged=converged,
    )
