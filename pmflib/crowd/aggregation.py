"""Labels of many workers in, true labels out: any method, in memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray
from pmflib.core.defaults import LABEL_LIMITS, Limits
from pmflib.core.errors import ConvergenceWarning, IdentificationWarning, SchemaError
from pmflib.core.methods import CROWD_METHODS, document_methods, find_method
from pmflib.counting.worker_pair_counts import count_worker_pairs
from pmflib.crowd.classifiers import read_classifier
from pmflib.crowd.co_occurrence import fit_worker_pairs
from pmflib.crowd.dawid_skene import CrowdPassPlan, CrowdState, OnPass, fit_crowd, plan_passes
from pmflib.crowd.e_step import LabelsInMemory, LogWeights
from pmflib.crowd.fitting import fit_labels
from pmflib.crowd.known_labels import find_known
from pmflib.crowd.label_log import LabelLog, OnRepeated, OnUnknown, check_class_order, read_labels
from pmflib.crowd.left_out_labels import LEAST_LABELS
from pmflib.crowd.true_labels import Aggregation, TasksInMemory
from pmflib.display.progress import find_report, reports_progress
from pmflib.em.family import State
from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel


@document_methods(CROWD_METHODS)
@reports_progress
def aggregate(
    labels: object,
    method: str = "auto",
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
    """Find true labels, and how good the workers are.

    Parameters
    ----------
    labels
        Columns task, worker, label, or a matrix of tasks by workers with gaps, as for `read_labels`; or a `LabelLog`.
    method
        A name of `pmflib.core.methods.CROWD_METHODS`:
        {methods}
    known
        True labels of some tasks: a mapping, or a table with columns task and label. Their posterior is certain, and
        nearly so in the passes, so that prior and confusion matrices are learnt from them as well; of co-occurrences
        they are no part. They also give the classes intercepts, for mistakes that all workers share: see
        `pmflib.crowd.known_intercepts`. A row of a task that is not in the log, of a label that is no class, or that
        another row contradicts is set aside: see `Aggregation.known_quarantine`.
    classifier
        Class probabilities of a model: columns task, and one for each class. How far they are believed is learnt from
        how they meet the labels; see `pmflib.crowd.classifiers`.
    ordinal
        Whether classes are in order, and mistakes likelier the nearer they are, as far as the log says so: for "auto"
        and "balanced". The order is that of ``classes``, of an ordered categorical column, or of a `LabelLog`;
        of numbers it need not be given.
    em
        Whether a method of co-occurrences is followed by passes of "dawid_skene"; the published tables make ten. They
        start there unless other starts make the labels clearly likelier: see `find_likeliest_start`.
    rng
        For methods of co-occurrences: generator of the starts, or its seed.
    classes, on_repeated, on_unknown
        As for `read_labels`.
    max_passes, tol
        Limit of passes, and the share of labels that a pass may still move between classes; see `fit_crowd`.

    Returns
    -------
    The aggregation.

    Raises
    ------
    SchemaError, PmfError
        If the labels do not fit, none of the known ones can be used, or an argument is out of range.

    Warns
    -----
    ConvergenceWarning
        If the passes did not settle, and tol is above 0. Not for "mv_em", whose passes are a choice.
    IdentificationWarning
        If no task has two labels, and none is known: confidence is then what is assumed of workers.

    Notes
    -----
    The pseudo-count of "auto", "balanced" and "one_coin" is learnt, and the votes are evidence of their own until the
    workers are known. That takes workers to be right on the whole: where they are hardly better than chance but gave
    many labels, "dawid_skene" and the methods of co-occurrences know more.

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
    chosen = find_method(CROWD_METHODS, method)
    log = (
        labels
        if isinstance(labels, LabelLog)
        else read_labels(labels, classes=classes, on_repeated=on_repeated, on_unknown=on_unknown)
    )
    log = _check_log(log, known, is_ordered=isinstance(labels, LabelLog), ordinal=ordinal)
    predictions = (
        None if classifier is None else read_classifier(classifier, log.tasks, log.classes)
    )
    plan = plan_passes(method, max_passes, tol, ordinal=ordinal)
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
        start = fit_worker_pairs(marginals, counts.n_labels, method, score=score, rng=generator)
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
    posterior = source.find_posteriors(LogWeights.from_model(model, with_votes=False))
    return Aggregation(
        TasksInMemory(log, posterior, predictions),
        model.prior,
        model.confusion,
        model.annotator_model.copied_groups,
        method,
        fit.n_passes,
        fit.converged,
        reason,
    )


def _check_log(log: LabelLog, known: object, *, is_ordered: bool, ordinal: bool) -> LabelLog:
    """The log with what is known of it, where it can be worked on.

    Raises
    ------
    SchemaError
        If it has none of the classes given, none of the known labels is of use, or classes are to be in an order that
        nobody has given.
    """
    _refuse_strange_labels(log)
    if known is not None:
        log = replace(log, known=find_known(known, log.tasks, log.classes))
    if ordinal:
        check_class_order(log.classes.to_pylist(), given=log.is_ordered or is_ordered)
    return log


def _make_reporter(source: LabelsInMemory, plan: CrowdPassPlan) -> OnPass | None:
    """Reports each pass where somebody follows the progress."""
    report = find_report()
    if report is None:
        return None
    most_passes = plan.count_most(with_known=source.with_known)

    def report_pass(fit: CrowdState) -> None:
        moved = f"the last pass moved {fit.numbers['moved']:.2g} of the labels"
        report(fit.n_passes, most_passes, moved)

    return report_pass


def _warn_of_single_labels(log: LabelLog) -> None:
    """Warn where nothing in the log says how good its workers are: no task has two labels, and none is known."""
    if not log.block.n_observed or log.n_classes < 2 or log.is_known.any():
        return
    if (np.diff(log.block.indptr) < LEAST_LABELS).all():
        warnings.warn(
            f"no task has {LEAST_LABELS} labels: how good workers are cannot be seen, and confidence is what is "
            "assumed of workers of whom nothing is known; have some tasks labelled again, or pass known labels",
            IdentificationWarning,
            stacklevel=4,
        )


def _refuse_strange_labels(log: LabelLog) -> None:
    """Refuse a log none of whose labels is among the classes that were given: nothing could be found from it.

    Raises
    ------
    SchemaError
        If all labels were set aside for that.
    """
    reasons = log.quarantine["reason"]
    if log.block.n_observed or "unknown_label" not in reasons.unique().to_pylist():
        return
    given = log.quarantine["label"].unique().to_pylist()[:6]
    raise SchemaError(
        f"classes is {log.classes.to_pylist()[:6]}, and no label is among them: there are {given}; write them as the "
        "table does"
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
        Crowd model, or passes made before, to continue from; an annotator model starts from the votes.
    max_passes, tol, on_pass
        As for `pmflib.crowd.dawid_skene.fit_crowd`.

    Returns
    -------
    The passes, whose model has intercepts if labels are known and passes were made, and float64 of shape (n_tasks,
    n_classes).
    """
    source = LabelsInMemory.from_log(log)
    begun = State(start) if isinstance(start, CrowdModel) else start
    fit = fit_crowd(source, begun, limits=Limits(max_passes, tol), on_pass=on_pass)
    weights = LogWeights.from_model(fit.parameters, with_votes=False)
    return fit, source.find_posteriors(weights)


def take_majority(log: LabelLog) -> Aggregation:
    """Take the shares of the votes for posteriors.

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
    """Count each worker's labels by posterior class: the result of a method that estimates no confusion matrices.

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
