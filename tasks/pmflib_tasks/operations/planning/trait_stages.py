"""Costs of the stages of traits: their fit, the choice between them and latent classes, and their scores."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from pmflib.cluster.memory import OWN_BYTES, MemoryPlan
from pmflib.cluster.task_plans import plan_tasks
from pmflib.em.memory import choose_tasks
from pmflib.em.traits.fit import DIMENSIONS, PASSES, PATIENCE, SHRINKAGES
from pmflib.em.traits.passes import count_sum_bytes
from pmflib.em.traits.samples import CHOICE_CELLS
from pmflib.fitting.traits import STATES, plan_trait_memory
from pmflib.model.traits.level_scores import LevelScores
from pmflib.schema import Schema
from pmflib_tasks.operations.planning.forest_stages import list_class_ns
from pmflib_tasks.operations.planning.run_basis import PlannedRun
from pmflib_tasks.operations.planning.sizes import TraitSize, block_disk_bytes
from pmflib_tasks.operations.planning.speeds import (
    CHOICE_SECONDS,
    COUNT_NS,
    DIMENSION_SHARE,
    FOLD_TIMES,
    PASS_SECONDS,
    SAVED_BYTES,
    UPDATED_BYTES,
)
from pmflib_tasks.operations.planning.stage_costs import MapWork, StageCost, join_ends
from pmflib_tasks.operations.planning.task_counts import MapTasks
from pmflib_tasks.scoring.comparison import ENOUGH_CELLS, count_rounds


def plan_trait_fit(run: PlannedRun) -> StageCost:
    """Choose on some people, then make passes over the training samples; at least, and at most."""
    size = _find_size(run)
    ends = zip(size.dimensions, size.passes, strict=True)
    return join_ends([_plan_fit(run, size, *each) for each in ends])


def refuse_traits(run: PlannedRun) -> MemoryPlan | None:
    """Plan of a fit of traits that would be left out, for it does not fit in memory and is only compared; else None."""
    if run.fit.traits is None or not run.fit.traits.is_compared:
        return None
    plan, cluster = plan_memory(run), run.cluster
    fits_worker = OWN_BYTES + plan.needed <= cluster.worker_room
    return None if fits_worker and run.client_bytes(plan) <= cluster.client_room else plan


def plan_choice(run: PlannedRun) -> StageCost:
    """Hide the answers of the validation samples in rounds, and predict them by traits and by latent classes."""
    size, log, fit = _find_size(run), run.log, run.fit
    part = run.gather(*run.parts[1])
    n_rounds = count_rounds(size.hide)
    n_scored = min(n_rounds, math.ceil(ENOUGH_CELLS * n_rounds / max(part.n_observed, 1)))
    # groups are assigned to tasks without their costs; both models are tasks of their own
    plan = plan_tasks([1] * max(1, len(part.costs)), run.cluster.n_threads)
    tasks = MapTasks.of_plan(plan, None, None, 0, 0, 0, 0)
    rows = part.n_rows / tasks.leaves
    cells = rows * log.variables * log.observed
    n_states = list_class_counts(size)[-1]

    def plan_end(by_classes: float, dimensions: int) -> StageCost:
        by_traits = FOLD_TIMES * find_cell_ns(run, dimensions)
        seconds = n_scored * cells * (by_classes + by_traits) * 1e-9
        models = 8 * log.levels * (n_states + fit.rank * fit.members)
        work = replace(run.map_blocks(tasks, rows, seconds), copied_bytes=models)
        return run.make_stage(
            "choose",
            [work],
            read_bytes=part.n_rows * block_disk_bytes(log),
            written_bytes=8.0 * log.levels * n_states,
            files=8,
            client_seconds=PASS_SECONDS + models / SAVED_BYTES,
            worker_memory=OWN_BYTES + run.plan_states(n_states).needed,
            client_memory=run.client_bytes(run.em_memory),
        )

    by_classes = list_class_ns(run)
    ends = zip((by_classes[0], by_classes[-1]), size.dimensions, strict=True)
    return join_ends([plan_end(*each) for each in ends])


def list_score_ns(run: PlannedRun) -> list[float]:
    """Nanoseconds of predicting hidden answers of a test sample, for each of its observed cells; at least and at most.

    Samples are folded in, and their log-likelihood is that of the states.
    """
    size = _find_size(run)
    states = list_class_counts(size)[-1] * run.speeds.em_ns
    return [FOLD_TIMES * find_cell_ns(run, each) + states for each in size.dimensions]


def plan_memory(run: PlannedRun) -> MemoryPlan:
    """Memory of the fit in a worker, and in the client, as the stage plans it."""
    size, part = _find_size(run), run.gather(0, run.fit.train)
    return plan_trait_memory(
        _score_levels(run.fit.schema),
        part.costs,
        part.n_rows,
        part.n_observed,
        n_states=size.n_states,
        n_threads=run.cluster.threads,
        n_all_threads=run.cluster.n_threads,
    )


def find_cell_ns(run: PlannedRun, dimensions: int) -> float:
    """Nanoseconds of a pass for an observed cell."""
    return run.speeds.trait_ns * (1 + DIMENSION_SHARE * dimensions)


def list_tried(dimensions: int) -> list[int]:
    """Dimensions of each fit of a choice that ends with so many of them: two more numbers, then other shrinkages."""
    grid = [each for each in DIMENSIONS if each <= dimensions]
    more = DIMENSIONS[len(grid) : len(grid) + PATIENCE]
    return [*grid, *more, *([dimensions] * (len(SHRINKAGES) - 1) if dimensions else [])]


def list_class_counts(size: TraitSize) -> tuple[int, ...]:
    """Numbers of states that are compared, or the one that is given."""
    return STATES if size.n_states == "auto" else (size.n_states,)


def _plan_fit(run: PlannedRun, size: TraitSize, dimensions: int, passes: int) -> StageCost:
    """Cost of a fit that chooses so many dimensions and passes."""
    log, cluster, plan = run.log, run.cluster, plan_memory(run)
    scores, part = _score_levels(run.fit.schema), run.gather(0, run.fit.train)
    n_traits = 2 + dimensions
    sums = count_sum_bytes(scores, n_traits)
    model = 8 * (scores.kinds.size + 3 * n_traits) * (1 + n_traits)
    costs = part.costs or (0,)
    n_tasks = choose_tasks(costs, cluster.n_threads)
    is_kept = part.n_bytes <= run.find_spare(plan)
    cells, cell_ns = log.variables * log.observed, find_cell_ns(run, dimensions)
    offsets = 8 * (log.variables + 1)
    tasks = MapTasks.of_plan(plan_tasks(costs, n_tasks, sums), None)
    assigning, passing = run.hold_blocks(tasks, part, cells * cell_ns * 1e-9, is_kept=is_kept)
    counted = MapTasks.of_plan(plan_tasks(costs, n_tasks), 0, offsets)
    _, counting = run.hold_blocks(counted, part, cells * COUNT_NS * 1e-9, is_kept=is_kept)
    # the people of the choice and of the states, by their hashes
    sampling = MapTasks.of_plan(plan_tasks(costs, cluster.n_threads), None, offsets)
    works: list[MapWork] = [
        assigning,
        replace(counting, result_bytes=8 * log.levels),
        run.map_blocks(sampling, part.n_rows / sampling.leaves, 0.0),
        replace(passing, result_bytes=sums, copied_bytes=model, repeats=passes),
    ]
    n_states = list_class_counts(size)[-1]
    states = 8.0 * log.levels * n_states
    seconds = cells * n_states * run.speeds.em_ns * 1e-9
    works.append(run.measure_fit(seconds, round(states), is_kept=is_kept))
    n_read = 2 if is_kept else 2 + passes
    return run.make_stage(
        "traits",
        works,
        read_bytes=n_read * part.n_rows * block_disk_bytes(log),
        written_bytes=states + passes * model,
        files=8 + passes,
        client_seconds=_choose_seconds(run, dimensions)
        + passes * (PASS_SECONDS + sums / UPDATED_BYTES + model / SAVED_BYTES)
        + states / SAVED_BYTES,
        worker_memory=OWN_BYTES + plan.needed + (-(-part.n_bytes // cluster.workers) * is_kept),
        client_memory=run.client_bytes(plan),
    )


def _choose_seconds(run: PlannedRun, dimensions: int) -> float:
    """Seconds of a choice that ends with so many dimensions, on the client, one of whose cores works."""
    cells = min(run.gather(0, run.fit.train).n_observed, CHOICE_CELLS)
    passes, scores = PASSES[-1] + FOLD_TIMES * len(PASSES), _score_levels(run.fit.schema)
    seconds = cells * sum(list_class_counts(_find_size(run))) * run.speeds.em_ns * 1e-9
    for each in list_tried(dimensions):
        update = CHOICE_SECONDS + count_sum_bytes(scores, 2 + each) / UPDATED_BYTES
        seconds += cells * passes * find_cell_ns(run, each) * 1e-9 + PASSES[-1] * update
    return seconds


def _find_size(run: PlannedRun) -> TraitSize:
    assert run.fit.traits is not None
    return run.fit.traits


@lru_cache(maxsize=1)
def _score_levels(schema: Schema | None) -> LevelScores:
    assert schema is not None
    return LevelScores.make(schema, np.zeros(schema.n_levels))
