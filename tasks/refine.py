"""Stage: EM passes over the training samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.config import PipelineConfig
from pmflib.counting.marginals import estimate_singles, normalise_singles
from pmflib.counting.pair_counts import PairCounts, count_pairs, load_singles
from pmflib.em.block_groups import judge_group, load_group, run_e_step
from pmflib.em.checkpoint import load_state, save_state
from pmflib.em.in_memory import Samples
from pmflib.em.loop import EMState, open_for_em
from pmflib.em.members import EvaluateModels, Runs, estimate_gain, merge_each, merge_scores
from pmflib.em.statistics import (
    EMStatistics,
    ScoreBlock,
    score_average,
    score_difference,
)
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.from_samples import report_em, tell_target
from pmflib.fitting.recipes import Options, fit_options
from pmflib.fitting.starts import Starts
from pmflib.model import JointPMF
from pmflib.model.evaluation import split_folds
from pmflib.running.clients import Client, count_threads
from pmflib.running.grouping import group_blocks
from pmflib.running.maps import keep_loaded, run_blocks, start_blocks
from pmflib.running.memory_plan import plan_em
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import BlockReference
from tasks.progress import report
from tasks.stage import build_artefact, open_store, open_workers, stage

VERSION = 6

DRAWN_SAMPLES = 100_000
"""Samples drawn from an average to distil it."""


@stage(name="refine")
def refine(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    start: Reference,
    address: str = "",
) -> Reference:
    """Refine a model by EM on the training folds, or average several; held-out folds choose what is left open.

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
    entry = build_artefact(
        store,
        "model",
        inputs={"dataset": dataset, "counts": counts, "start": start},
        options={
            **config.em.model_dump(),
            "method": config.start_method,
            "seed": config.seed,
            "train": list(folds.train),
            "validation": list(folds.validation),
        },
        version=VERSION,
        write=lambda folder, work: _write(
            config, store, (dataset, counts, start), address, folder, work
        ),
    )
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
    folds = split_folds(
        config.store.folds, config.evaluate.validation_folds, config.evaluate.test_folds
    )
    begun = JointPMF.load(store.locate(start) / "model")
    pairs = store.locate(counts) / "pairs"
    rank, offsets = begun.rank, begun.schema.offsets
    blocks = list_dataset_blocks(store, dataset, folds.train)
    held_out = list_dataset_blocks(store, dataset, folds.validation)
    target = None if config.em.target is None else begun.schema.position(config.em.target)
    options = Options.make(config.model.method, config.em.pseudo_count, config.em.members, rank)
    options = options.fit_to(sum(block.n_observed for block in blocks), rank)
    singles = normalise_singles(load_singles(pairs, folds=folds.train), offsets)
    starts = Starts(
        lambda: PairCounts.load_total(pairs, folds=folds.train),
        singles,
        offsets,
        rank,
        config.seed,
        {config.start_method: open_for_em((begun.prior, begun.factors), singles)},
        {config.start_method: begun.origin["method"]},
    )
    with open_workers(config, address) as (client, limit):
        plan = plan_em(begun.schema.n_levels, rank, count_threads(client), options.n_models)
        plan.check(limit)
        spare = (limit - plan.needed) // 2
        # a pass over little is done here in less time than it takes to ask a worker
        worker = None if options.small else client
        judge = None
        # of few samples, none may have fallen to these folds: then nothing is chosen
        if any(block.n_rows for block in held_out):
            groups = _keep_groups(worker, held_out, spare // 8)
            judge = _HeldOutBlocks(worker, groups, offsets, target)
        report("refine", 0, config.em.max_passes)
        runs = Runs(
            _evaluate_on(worker, blocks, offsets, spare),
            judge,
            offsets,
            starts.singles,
            config.em.max_passes,
            config.em.tol,
            config.em.patience,
            config.em.accelerate,
            resume=lambda name: load_state(work / f"state-{name}.npz"),
            on_pass=_keep_and_report(work, config.em.max_passes),
        )
        recipe, model, state = fit_options(runs, starts, options)
        notes = () if judge is None else tell_target(begun.schema, target)
        result = report_em(begun.schema, recipe, model, state, starts, notes)
        if config.em.distil:
            result, state = _distil(config, runs, result.model)
    report("refine", state.n_passes, state.n_passes, _describe(state))
    result.model.save(folder / "model")
    return {
        "method": result.method,
        "rank": result.model.rank,
        "pseudo_count": result.model.origin["pseudo_count"],
        "passes": state.n_passes,
        "best_pass": result.best_pass,
        "converged": result.converged,
        "passes_saved": round(result.passes_saved),
        "log_likelihood_per_row": list(state.log_likelihoods),
        "held_out_per_row": list(state.held_out),
        "notes": list(result.notes),
        "comparisons": [each.to_json() for each in result.comparisons],
    }


def _distil(config: PipelineConfig, runs: Runs, average: JointPMF) -> tuple[FitResult, EMState]:
    """Fit one model to samples drawn from an average; real samples are held out."""
    schema, rank = average.schema, config.em.distil
    drawn = average.sample(DRAWN_SAMPLES, config.seed)
    pairs = count_pairs(drawn, schema)
    starts = Starts(lambda: pairs, estimate_singles(pairs), schema.offsets, rank, config.seed)
    of_drawn = replace(
        runs,
        evaluate=Samples(drawn, schema.offsets, rank).evaluate_each,
        singles=starts.singles,
        resume=lambda name: runs.resume(f"distil-{name}"),
        on_pass=lambda name, state: runs.on_pass(f"distil-{name}", state),
    )
    options = Options.make("auto", config.em.pseudo_count, 1, rank)
    recipe, model, state = fit_options(of_drawn, starts, options)
    note = (
        f"fitted to {len(drawn)} samples drawn from an average of {average.origin['average']} fits"
    )
    return report_em(schema, recipe, model, state, starts, (note,)), state


def _evaluate_on(
    client: Client,
    blocks: Sequence[BlockReference],
    offsets: IntArray,
    spare: int,
) -> EvaluateModels:
    """Statistics of some blocks under each of several models, as a map over groups of blocks.

    Blocks are kept in the workers' memory where they fit. Models are dealt to no more tasks than keep all threads
    busy: a block that is not kept is read once per task.
    """
    items = _keep_groups(client, blocks, spare)
    n_shares = -(-count_threads(client) // max(len(items), 1))

    def evaluate(models: Sequence[Parameters]) -> list[EMStatistics]:
        if not items:
            return [EMStatistics.zero(len(factors), prior.size) for prior, factors in models]
        step = -(-len(models) // min(n_shares, len(models)))
        shares = [models[first : first + step] for first in range(0, len(models), step)]
        pending = [
            start_blocks(client, run_e_step, items, merge_each, offsets, share) for share in shares
        ]
        return [statistics for share in pending for statistics in share.wait()]

    return evaluate


@dataclass(frozen=True, eq=False)
class _HeldOutBlocks:
    """Held-out samples as groups of blocks, at least one, that are mapped over."""

    client: Client
    groups: Sequence[Any]
    offsets: IntArray
    target: int | None

    def score(self, models: Sequence[Parameters]) -> float:
        total, n_samples = self._add_up(score_average, models)
        return float(total / max(n_samples, 1))

    def compare(self, first: Parameters, second: Parameters) -> tuple[float, float]:
        return estimate_gain(self._add_up(score_difference, (first, second)))

    def _add_up(self, score: ScoreBlock, models: Sequence[Parameters]) -> FloatArray:
        shared = self.offsets, score, models, self.target
        return run_blocks(self.client, judge_group, self.groups, merge_scores, *shared)


def _keep_groups(client: Client, blocks: Sequence[BlockReference], spare: int) -> Sequence[Any]:
    """Groups of blocks, in the workers' memory where they fit."""
    groups = group_blocks(blocks)
    fits = sum(block.nbytes for block in blocks) <= spare
    return keep_loaded(client, load_group, groups) if fits else groups


def _keep_and_report(work: Path, max_passes: int) -> Callable[[str, EMState], None]:
    first = began = 0.0
    current = ""

    def on_pass(name: str, state: EMState) -> None:
        nonlocal first, began, current
        save_state(work / f"state-{name}.npz", state)
        text = f"{name}: {_describe(state)}"
        if name == current:
            passes = state.n_passes - first
            left = (max_passes - state.n_passes) * (time.monotonic() - began) / passes
            text += f", at most {left:,.0f} s left"
        else:
            # the first pass also compiles kernels and loads blocks: it says nothing of those to come
            current, first, began = name, state.n_passes, time.monotonic()
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
