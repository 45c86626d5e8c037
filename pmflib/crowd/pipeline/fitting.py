"""What the stages of a stored label log make: counts of pairs, a crowd model from them, passes, and true labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pmflib.counting.worker_pair_counts import WorkerPairCounts
from pmflib.crowd.co_occurrence import fit_worker_pairs
from pmflib.crowd.e_step import make_judge
from pmflib.crowd.known_intercepts import add_intercepts
from pmflib.crowd.likeliest_start import find_likeliest_start
from pmflib.crowd.pass_methods import PassPlan
from pmflib.crowd.passes import (
    CrowdFit,
    begin_without_known,
    ignore_known,
    run_passes,
    start_from_votes,
)
from pmflib.crowd.pipeline.checkpoint import (
    RunFiles,
    load_fit,
    remember_log_likelihoods,
    save_fit,
)
from pmflib.crowd.pipeline.crowd_model_files import load_crowd_model, save_crowd_model
from pmflib.crowd.pipeline.label_tables import choose_asked_workers, make_worker_table
from pmflib.crowd.pipeline.memory import join_plans, plan_pair_method
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.running.memory_plan import MemoryPlan

PAIRS = "pairs"
"""Zarr group of the counts of pairs, in the folder of their artefact."""
CROWD_MODEL = "crowd-model"
"""Zarr group of a crowd model, in the folder of its artefact."""
LABELS = "labels"
"""Folder of the true labels, a Parquet file per partition."""
WORKERS = "workers.parquet"
"""Table of the workers, beside the labels."""
STATE = "state.npz"
"""Checkpoint of the passes, in the folder of work under way."""
WITHOUT_KNOWN = "without-known.npz"
"""Checkpoint of the passes that are made before labels are known."""
LOG_LIKELIHOODS = "log-likelihoods.npz"
"""Checkpoint of the judged crowd models, in the folder of work under way."""


def write_pairs(
    labels: StoredLabels, folder: Path, on_tasks: Callable[[int], None]
) -> dict[str, Any]:
    """Count the pairs of workers that share tasks, and write the counts.

    Parameters
    ----------
    labels
        The label log.
    folder
        Existing folder.
    on_tasks
        As for `StoredLabels.count_pairs`.

    Returns
    -------
    Number of workers, of their labels, of pairs that share tasks, and of pairs of labels of the same task.

    Raises
    ------
    MemoryPlanError
        If the counts do not fit in memory.
    """
    counts = labels.count_pairs(on_tasks)
    counts.save(folder / PAIRS)
    return {
        "workers": labels.n_workers,
        "labels": int(counts.n_labels.sum()),
        "pairs": counts.n_pairs,
        "label_pairs": int(counts.counts.sum()),
    }


def write_crowd_model(
    labels: StoredLabels,
    pairs: Path,
    method: str,
    *,
    seed: int,
    folder: Path,
    work: Path,
    on_judged: Callable[[int], None],
) -> dict[str, Any]:
    """Find a crowd model from the pairs of workers, and write it.

    Parameters
    ----------
    labels
        The label log: passes over it judge what the pairs leave open.
    pairs
        Folder that `write_pairs` has written.
    method
        As for `fit_worker_pairs`.
    seed
        Seed of what is drawn.
    folder
        Existing folder.
    work
        Folder of checkpoints: a search that was killed continues from there, to the same bits.
    on_judged
        Called with the number of models judged so far, after each: progress.

    Returns
    -------
    Method, number of pairs and class prior.

    Raises
    ------
    MemoryPlanError
        If the pairs do not fit in memory as the method needs them.
    """
    counts = WorkerPairCounts.load(pairs / PAIRS)
    sizes = labels.n_workers, labels.n_classes
    needed = plan_pair_method(method, counts.n_pairs, *sizes)

    def plan_worker(n_threads: int) -> MemoryPlan:
        return join_plans(needed, labels.plan_passes(n_threads=n_threads))

    labels.memory.check(plan_worker)
    labels.keep_in_memory(plan_worker)
    judge = remember_log_likelihoods(make_judge(labels.evaluate), work / LOG_LIKELIHOODS, on_judged)
    n_labels, n_pairs, marginals = counts.n_labels, counts.n_pairs, counts.normalise()
    # as many bytes as the marginals themselves
    del counts
    rng = np.random.default_rng(seed)
    model = fit_worker_pairs(marginals, n_labels, method, judge=judge, rng=rng)
    save_crowd_model(folder / CROWD_MODEL, model, rng)
    return {"method": method, "pairs": n_pairs, "prior": model.prior.tolist()}


def fit_stored_labels(
    labels: StoredLabels,
    plan: PassPlan,
    *,
    start: Path | None = None,
    em: bool = True,
    work: Path,
    on_pass: Callable[[CrowdFit], None],
    on_first_pass: Callable[[CrowdFit], None],
) -> CrowdFit:
    """Estimate a crowd model by passes over a stored label log.

    Parameters
    ----------
    labels
        The label log.
    plan
        What the passes estimate, and when they end.
    start
        Folder that `write_crowd_model` has written, for passes from the likeliest start; None starts from the votes.
    em
        Whether passes are made after a start; without them the start is the result.
    work
        Folder of checkpoints: passes that were killed continue from there, to the same bits.
    on_pass
        Called after each pass: progress.
    on_first_pass
        Called after each pass of the short runs that find the likeliest start; it is not known how many they are.

    Returns
    -------
    The state at the end; where labels are known and passes were made, its model has intercepts: see
    `pmflib.crowd.known_intercepts`.

    Raises
    ------
    MemoryPlanError
        If parameters and statistics do not fit in memory.
    """
    n_subclasses = plan.annotator_model.n_subclasses

    def plan_worker(n_threads: int) -> MemoryPlan:
        return labels.plan_passes(n_subclasses, n_threads)

    labels.memory.check(plan_worker)
    found = None if start is None else load_crowd_model(start / CROWD_MODEL)
    if found is not None and not em:
        return CrowdFit.from_model(found[0], converged=True)
    labels.keep_in_memory(plan_worker)
    max_passes, without_known = plan.max_passes, None
    if found is None and labels.known and plan.annotator_model.votes:
        without_known = _begin_without_known(labels, plan, work / WITHOUT_KNOWN, on_pass)
        max_passes += without_known.n_passes
    if (saved := load_fit(work / STATE, plan.annotator_model)) is not None:
        fit = saved
    elif without_known is not None:
        fit = replace(without_known, converged=False)
    elif found is None:
        sizes = labels.n_workers, labels.n_classes
        fit = start_from_votes(labels.evaluate, *sizes, plan.annotator_model)
    else:
        fit = find_likeliest_start(
            labels.evaluate,
            *found,
            max_passes=plan.max_passes,
            tol=plan.tol,
            checkpoints=RunFiles(work, plan.annotator_model, on_first_pass),
        )

    def keep(fit: CrowdFit) -> None:
        save_fit(work / STATE, fit)
        on_pass(fit)

    fit = run_passes(labels.evaluate, fit, max_passes=max_passes, tol=plan.tol, on_pass=keep)
    if not labels.known or not fit.n_passes:
        return fit
    return replace(fit, model=add_intercepts(fit.model, labels.score_known(fit.model)))


def _begin_without_known(
    labels: StoredLabels, plan: PassPlan, path: Path, on_pass: Callable[[CrowdFit], None]
) -> CrowdFit:
    """Make the passes of `begin_without_known`, or what is left of them after a checkpoint."""
    fit = load_fit(path, plan.annotator_model)
    if fit is None:
        sizes = labels.n_workers, labels.n_classes
        fit = start_from_votes(ignore_known(labels.evaluate), *sizes, plan.annotator_model)

    def keep(fit: CrowdFit) -> None:
        save_fit(path, fit)
        on_pass(fit)

    return begin_without_known(
        labels.evaluate, fit, max_passes=plan.max_passes, tol=plan.tol, on_pass=keep
    )


def write_labels(
    labels: StoredLabels, fit: CrowdFit, folder: Path, on_partition: Callable[[int, int], None]
) -> dict[str, Any]:
    """Write the true labels of all tasks, and what is known of the workers.

    Parameters
    ----------
    labels
        The label log.
    fit
        Crowd model, and how it was found.
    folder
        Existing folder.
    on_partition
        As for `StoredLabels.label`.

    Returns
    -------
    Number of tasks, labels and workers; classes and their prior; pseudo-count, number of passes, and whether they
    converged; power of the labels in their probabilities, the one that predicts left-out labels best, and the share of
    shared errors; Krippendorff's alpha, the share of tasks whose label is the majority's, tasks to ask again and
    whom, and suspicious workers.
    """
    (folder / LABELS).mkdir()
    calibration = labels.calibrate(fit.model)
    tally, uncertain = labels.label(fit.model, calibration, folder / LABELS, on_partition)
    copies = labels.find_copies(fit.model, calibration)
    n_labels = tally.given.sum(axis=1)
    table = make_worker_table(labels.workers, fit.model, calibration, n_labels, labels.classes)
    pq.write_table(table, folder / WORKERS, compression="zstd")
    return {
        "tasks": labels.n_tasks,
        "labels": int(n_labels.sum()),
        "workers": labels.n_workers,
        "classes": list(labels.classes),
        "prior": fit.model.prior.tolist(),
        "pseudo_count": fit.model.pseudo_count,
        "passes": fit.n_passes,
        "converged": fit.converged,
        "power": calibration.power,
        "left_out_power": calibration.left_out_power,
        "shared_error": calibration.shared_error,
        "alpha": tally.alpha,
        "majority_agreement": tally.majority_agreement,
        "ask_again": choose_asked_workers(uncertain, calibration, labels.workers, labels.classes),
        "suspicious_workers": tally.find_suspicious(
            labels.workers, labels.classes, fit.model.prior, copies
        ),
    }
