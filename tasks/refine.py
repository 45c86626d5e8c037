"""Stage: EM passes over the training samples."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pmflib.arrays import FloatArray, IntArray
from pmflib.checkpoint import load_state, save_state
from pmflib.config import PipelineConfig
from pmflib.counts import load_singles
from pmflib.em import EMState, EMStatistics, Evaluate, Smoothing, open_start, run_em
from pmflib.errors import ConvergenceWarning
from pmflib.evaluation import split_folds
from pmflib.fitting import choose_smoothing, finish_em
from pmflib.marginals import smooth_singles
from pmflib.model import JointPMF
from pmflib.parallel import Client, count_threads, keep_loaded, run_blocks
from pmflib.passes import load_group, run_e_step
from pmflib.plan import group_blocks, plan_em
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.stage import open_store, open_workers, publish_facts, report, stage, timed

VERSION = 3


@stage(name="refine")
def refine(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    start: Reference,
    address: str = "",
) -> Reference:
    """Refine a model by EM on the training folds; held-out folds choose the number of passes.

    Parameters
    ----------
    config
        The pipeline.
    dataset, counts, start
        What `ingest`, `count` and `fit` returned.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to the model.

    Raises
    ------
    MemoryPlanError
        If the parameters and statistics would not fit.
    """
    store = open_store(config)
    folds = split_folds(
        config.store.folds, config.evaluate.validation_folds, config.evaluate.test_folds
    )
    with timed() as seconds:
        entry = store.build(
            "model",
            inputs={"dataset": dataset, "counts": counts, "start": start},
            options={
                **config.em.model_dump(),
                "train": list(folds.train),
                "validation": list(folds.validation),
            },
            version=VERSION,
            write=lambda folder, work: _write(
                config, store, (dataset, counts, start), address, folder, work
            ),
        )
        publish_facts(entry, seconds())
    return entry.reference


def _write(
    config: PipelineConfig,
    store: Store,
    inputs: tuple[Reference, Reference, Reference],
    address: str,
    folder: Path,
    work: Path,
) -> Mapping[str, Any]:
    """Make passes from the start, or from where a killed run stood, and save the model."""
    dataset, counts, start = inputs
    em = config.em
    folds = split_folds(
        config.store.folds, config.evaluate.validation_folds, config.evaluate.test_folds
    )
    begun = JointPMF.load(store.locate(start) / "model")
    offsets = begun.schema.offsets
    held_out = [*folds.validation, *folds.test]
    seen = load_singles(store.locate(counts) / "pairs", without=held_out)
    singles = smooth_singles(seen, offsets)
    with open_workers(config, address) as (client, limit):
        plan = plan_em(begun.schema.n_levels, begun.rank, count_threads(client))
        plan.check(limit)
        spare = (limit - plan.needed) // 2
        validate = None
        # of few samples, none may have fallen to these folds: then the tolerance alone stops the passes
        if any(block.n_rows for block in list_dataset_blocks(store, dataset, folds.validation)):
            validate = _evaluate_on(client, store, dataset, folds.validation, offsets, spare // 8)
        report("refine", 0, em.max_passes)
        state = run_em(
            _evaluate_on(client, store, dataset, folds.train, offsets, spare),
            load_state(work / "state.npz") or open_start(begun.prior, begun.factors, singles),
            offsets,
            smoothing=Smoothing.shaped_by(singles, offsets, choose_smoothing(em.smoothing)),
            max_passes=em.max_passes,
            tol=em.tol,
            validate=validate,
            patience=em.patience,
            accelerate=em.accelerate,
            on_pass=_keep_and_report(work / "state.npz", em.max_passes),
        )
    report("refine", state.n_passes, state.n_passes, _describe(state))
    with warnings.catch_warnings():
        # a limit of passes is an option of the pipeline: the summary says whether it was met
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = finish_em(
            state, begun.schema, start=str(begun.origin["method"]), max_passes=em.max_passes
        )
    result.model.save(folder / "model")
    return {
        "method": result.method,
        "rank": result.model.rank,
        "passes": state.n_passes,
        "best_pass": result.best_pass,
        "converged": result.converged,
        "passes_saved": round(result.passes_saved),
        "log_likelihood_per_row": list(state.log_likelihoods),
        "held_out_per_row": list(state.held_out),
    }


def _evaluate_on(
    client: Client,
    store: Store,
    dataset: Reference,
    folds: Sequence[int],
    offsets: IntArray,
    spare: int,
) -> Evaluate:
    """Statistics of some folds as a map over their blocks, kept in the workers' memory where they fit."""
    blocks = list_dataset_blocks(store, dataset, folds)
    groups = group_blocks(blocks)
    fits = sum(block.nbytes for block in blocks) <= spare
    items = keep_loaded(client, load_group, groups) if fits else groups

    def evaluate(prior: FloatArray, factors: FloatArray) -> EMStatistics:
        if not items:
            return EMStatistics.zero(len(factors), len(prior))
        return run_blocks(client, run_e_step, items, EMStatistics.merge, offsets, prior, factors)

    return evaluate


def _keep_and_report(checkpoint: Path, max_passes: int) -> Callable[[EMState], None]:
    first = began = 0.0

    def on_pass(state: EMState) -> None:
        nonlocal first, began
        save_state(checkpoint, state)
        text = _describe(state)
        if began:
            passes = state.n_passes - first
            left = (max_passes - state.n_passes) * (time.monotonic() - began) / passes
            text += f", at most {left:,.0f} s left"
        else:
            # the first pass also compiles kernels and loads blocks: it says nothing of those to come
            first, began = state.n_passes, time.monotonic()
        if state.n_passes < max_passes:
            report("refine", state.n_passes, max_passes, text)

    return on_pass


def _describe(state: EMState) -> str:
    """Log-likelihoods per row, nats."""
    parts = []
    if state.log_likelihoods:
        parts.append(f"log-likelihood {state.log_likelihoods[-1]:.4f}")
    if state.held_out:
        best = max(state.held_out)
        parts.append(f"held out {state.held_out[-1]:.4f}")
        if best > state.held_out[-1]:
            parts[-1] += f" (best {best:.4f})"
    return ", ".join(parts)
