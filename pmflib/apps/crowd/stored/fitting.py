"""Stages of a stored label log: counts of pairs, a crowd model from them, passes, and true labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pmflib.apps.crowd.co_occurrence import fit_worker_pairs
from pmflib.apps.crowd.dawid_skene import CrowdPassPlan, CrowdState, OnPass, plan_shrunk
from pmflib.apps.crowd.fitting import fit_labels
from pmflib.apps.crowd.label_counts import list_unused
from pmflib.apps.crowd.labelling import Labelling
from pmflib.apps.crowd.methods import CROWD_METHODS
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.apps.crowd.stored.block_groups import plan_pair_method
from pmflib.apps.crowd.stored.label_tables import (
    choose_asked_workers,
    load_crowd_model,
    save_crowd_model,
)
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.apps.crowd.stored.summaries import LabelSummary, PairsSummary
from pmflib.apps.crowd.stored.worker_models import MODEL, WorkerModel
from pmflib.apps.crowd.worker_pair_counts import WorkerPairCounts
from pmflib.base.method_options import MethodChoice, configure_method
from pmflib.cluster.memory import MemoryPlan
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.model.sufficient_statistics import Assessor

PAIRS = "pairs"
"""Zarr group of the counts of pairs, in the folder of their artefact."""
CROWD_MODEL = "crowd-model"
"""Zarr group of a crowd model, in the folder of its artefact."""
LABELS = "labels"
"""Folder of the true labels, a Parquet file per fold."""
WORKERS = "workers.parquet"
"""Table of the workers, next to the labels."""
LOG_LIKELIHOODS = "log-likelihoods.npz"
"""File name of the checkpoint of the scored crowd models."""


def write_pairs(
    labels: StoredLabels, folder: Path, on_tasks: Callable[[int], None]
) -> PairsSummary:
    """Count the pairs of workers that share tasks, and write the counts.

    Parameters
    ----------
    labels
        The label log.
    folder
        Existing folder.
    on_tasks
        As for `StoredLabels.count_pairs`.

    Raises
    ------
    MemoryPlanError
        If the counts do not fit in memory.
    """
    counts = labels.count_pairs(on_tasks)
    counts.save(folder / PAIRS)
    n_labels, n_label_pairs = int(counts.n_labels.sum()), int(counts.counts.sum())
    return PairsSummary(labels.n_workers, n_labels, counts.n_pairs, n_label_pairs)


def write_crowd_model(
    labels: StoredLabels,
    pairs: Path,
    method: MethodChoice,
    *,
    seed: int,
    folder: Path,
    work: Path,
    on_scored: Callable[[int], None],
) -> dict[str, object]:
    """Estimate a crowd model from the pairs of workers, and write it.

    Parameters
    ----------
    labels
        The label log: its log-likelihood chooses between models that fit the pairs equally well.
    pairs
        Folder written by `write_pairs`.
    method
        As for `fit_worker_pairs`.
    seed
        Seed of the random numbers.
    folder
        Existing folder.
    work
        Folder of checkpoints, from which an interrupted search continues with bitwise equal results.
    on_scored
        Progress callback, given the number of models scored so far.

    Returns
    -------
    Method, number of pairs and class prior.

    Raises
    ------
    MemoryPlanError
        If the pairs do not fit in memory in the form that the method needs.
    """
    counts = WorkerPairCounts.load(pairs / PAIRS)
    sizes = labels.n_workers, labels.n_classes
    chosen, _ = configure_method(CROWD_METHODS, method)
    needed = plan_pair_method(chosen.name, counts.n_pairs, *sizes)

    def plan_worker(n_threads: int) -> MemoryPlan:
        return needed.add(labels.plan_passes(n_threads=n_threads))

    labels.memory.check(plan_worker)
    labels.keep_in_memory(plan_worker)
    kept: Checkpoint[list[float]] = Checkpoint(
        work / LOG_LIKELIHOODS,
        digest_fit(labels.digest(), method, seed),
        lambda found: {"log_likelihoods": np.array(found)},
        lambda arrays: arrays["log_likelihoods"].tolist(),
    )

    score = remember_log_likelihoods(labels.measure_log_likelihood, kept, on_scored)
    n_labels, n_pairs, marginals = counts.n_labels, counts.n_pairs, counts.normalise()
    # the counts take as many bytes as the marginals
    del counts
    rng = np.random.default_rng(seed)
    model = fit_worker_pairs(
        marginals, n_labels, method, score=score, rng=rng, workers=labels.workers
    )
    save_crowd_model(folder / CROWD_MODEL, model, rng)
    return {"method": chosen.name, "pairs": n_pairs, "prior": model.prior.tolist()}


def fit_stored_labels(
    labels: StoredLabels,
    plan: CrowdPassPlan,
    *,
    start: Path | None = None,
    warm: CrowdModel | None = None,
    em: bool = True,
    work: Path,
    on_pass: OnPass,
    on_first_pass: OnPass,
) -> CrowdState:
    """Estimate a crowd model by passes over a stored label log.

    Parameters
    ----------
    labels
        The label log.
    plan
        Annotator model and limits of the passes.
    start
        Folder written by `write_crowd_model`, for passes from the most likely start; None starts from the votes.
    warm
        Model of these workers from which passes continue, with the same number of subclasses; None for another start.
    em
        Whether passes follow the start; if not, the start is the result.
    work
        Folder of checkpoints, from which interrupted passes continue with bitwise equal results.
    on_pass
        Called after each pass.
    on_first_pass
        Called after each pass of the short runs that find the most likely start; their number is not known in advance.

    Returns
    -------
    The final state, as from `pmflib.apps.crowd.fitting.fit_labels`.

    Raises
    ------
    MemoryPlanError
        If parameters and statistics do not fit in memory.
    """
    kind = plan.annotator_model if warm is None else warm.annotator_model
    if start is not None and em:
        # passes are those of the default where labels are too few for the method
        kind = plan_shrunk(plan.max_passes, plan.tol).annotator_model

    def plan_worker(n_threads: int) -> MemoryPlan:
        return labels.plan_passes(kind.n_subclasses, n_threads)

    labels.memory.check(plan_worker)
    model, rng = (warm, None) if start is None else load_crowd_model(start / CROWD_MODEL)
    if em:
        labels.keep_in_memory(plan_worker)
    return fit_labels(
        labels,
        plan,
        model,
        rng=rng,
        em=em,
        work=work,
        on_pass=on_pass,
        on_first_pass=on_first_pass,
    )[0]


def remember_log_likelihoods(
    score: Assessor[CrowdModel], kept: Checkpoint[list[float]], on_scored: Callable[[int], None]
) -> Assessor[CrowdModel]:
    """Wrap a scoring function to save its values in a file, and after a restart to return them in the order of calls.

    Parameters
    ----------
    score
        Function that makes a pass over all tasks. After a restart it must be called with the same models in the same
        order.
    kept
        Checkpoint file of the values.
    on_scored
        Progress callback, given the number of calls so far.
    """
    known = kept.load() or []
    n_calls = 0

    def score_once(model: CrowdModel) -> float:
        nonlocal n_calls
        n_calls += 1
        if n_calls > len(known):
            known.append(score(model))
            kept.save(known)
        on_scored(n_calls)
        return known[n_calls - 1]

    return score_once


def write_worker_model(
    labels: StoredLabels, fit: CrowdState, folder: Path, *, least_folds: int, n_folds: int
) -> dict[str, object]:
    """Write the estimated model of the workers, so that it can be promoted.

    Parameters
    ----------
    labels
        The label log.
    fit
        As from `fit_stored_labels`.
    folder
        Existing folder.
    least_folds, n_folds
        Minimum number of folds to hold out, and number of folds of the log.

    Returns
    -------
    Summary of the model, plain JSON types.
    """
    model = fit.parameters
    held_out = labels.hold_out(model, least_folds, n_folds)
    names = labels.workers, labels.classes
    WorkerModel(model, *names, fit.n_passes, fit.converged, held_out).save(folder / MODEL)
    return {
        "workers": labels.n_workers,
        "classes": list(labels.classes),
        "prior": model.prior.tolist(),
        "pseudo_count": model.pseudo_count,
        "subclasses": model.annotator_model.n_subclasses,
        "passes": fit.n_passes,
        "converged": fit.converged,
        "held_out_folds": len(held_out),
    }


def write_labels(
    labels: StoredLabels, found: WorkerModel, folder: Path, on_fold: Callable[[int, int], None]
) -> LabelSummary:
    """Write the true labels of all tasks, and the table of the workers.

    Parameters
    ----------
    labels
        The label log.
    found
        Model of these workers.
    folder
        Existing folder.
    on_fold
        As for `pmflib.apps.crowd.stored.stored_labels.StoredTasks.label`.

    Returns
    -------
    Summary of the labels, without the method and the number of known labels.
    """
    (folder / LABELS).mkdir()
    model = found.model
    tasks = labels.score_under(model)
    kind = model.annotator_model
    labelling = Labelling(tasks, model.prior, model.confusion, kind.copied_groups, kind.evenness)
    calibration, worth = labelling.calibration, labelling.classifier
    counts, uncertain = tasks.label(labelling.rule, folder / LABELS, on_fold)
    n_labels = counts.given.sum(axis=1)
    table = labelling.make_worker_table(n_labels, with_confusion=True)
    pq.write_table(table, folder / WORKERS, compression="zstd")
    return LabelSummary(
        tasks=labels.n_tasks,
        labels=int(n_labels.sum()),
        workers=labels.n_workers,
        classes=list(labels.classes),
        prior=model.prior.tolist(),
        pseudo_count=model.pseudo_count,
        subclasses=model.annotator_model.n_subclasses,
        passes=found.passes,
        converged=found.converged,
        power=calibration.power,
        left_out_power=calibration.left_out_power,
        shared_error=calibration.shared_error,
        classifier_power=None if worth is None else worth.power,
        alpha=counts.alpha,
        compared_labels=round(float(counts.coincidences.sum())),
        majority_agreement=counts.majority_agreement,
        confidence=counts.confidence / labels.n_tasks if labels.n_tasks else None,
        unused_classes=[
            labels.classes[code] for code in list_unused(counts.given.sum(axis=0), model.prior)
        ],
        ask_again=choose_asked_workers(uncertain, calibration, labels.workers, labels.classes),
        suspicious_workers=labelling.find_suspicious(counts),
    )
