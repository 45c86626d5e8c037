"""Memory of a fit of traits to stored samples, computed before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pmflib.em.pass_tasks import choose_tasks
from pmflib.em.stored_samples import StoredSamples
from pmflib.running.clients import count_threads
from pmflib.running.grouping import group_blocks, weigh_blocks
from pmflib.running.memory_plan import MemoryPlan
from pmflib.running.task_plans import plan_tasks
from pmflib.store.sample_blocks import BLOCK_BYTES
from pmflib.traits.compiled_fit import STATES
from pmflib.traits.held_out_cells import BATCH_NUMBERS, CHOICE_CELLS, HELD_OUT_SHARE
from pmflib.traits.level_scores import LevelScores
from pmflib.traits.trait_fit import DIMENSIONS, PASSES
from pmflib.traits.trait_passes import PART_CELLS, count_sum_bytes

UPDATE_TABLES = 10
"""Size of what the client holds while it updates the coefficients, as a multiple of the sums of a pass, which are
packed."""
CELL_BYTES = 24
"""Memory of an observed cell of the people that a choice is made by, about: its level, drawn, joined, cut."""
PART_BYTES = 64
"""Memory of a cell while codes are turned into level indices."""


def plan_fit_traits(
    samples: StoredSamples,
    *,
    dimensions: int | Literal["auto"] = "auto",
    n_states: int | Literal["auto"] = "auto",
    n_threads: int = 1,
) -> MemoryPlan:
    """Plan the memory that `pmflib.fit_traits` would need on a worker of stored samples, and here.

    It does not grow with the number of samples: blocks are read again for each pass where they do not fit.

    Parameters
    ----------
    samples
        Samples, with the client that they would be fitted with.
    dimensions, n_states
        As for `pmflib.fit_traits`.
    n_threads
        Threads of the worker.
    """
    schema = samples.schema
    return plan_trait_memory(
        LevelScores.make(schema, np.zeros(schema.n_levels)),
        [weigh_blocks(group) for group in group_blocks(samples.blocks)],
        samples.n_rows,
        samples.n_observed,
        dimensions=dimensions,
        n_states=n_states,
        n_threads=n_threads,
        n_all_threads=count_threads(samples.client),
    )


def plan_trait_memory(
    scores: LevelScores,
    costs: Sequence[int],
    n_rows: int,
    n_observed: int,
    *,
    dimensions: int | Literal["auto"] = "auto",
    n_states: int | Literal["auto"] = "auto",
    n_threads: int = 1,
    n_all_threads: int = 1,
) -> MemoryPlan:
    """Plan the same from sizes alone.

    Parameters
    ----------
    scores
        Directions of the variables; counts have no part in it.
    costs
        Cost of each group of blocks, as `pmflib.running.grouping.weigh_blocks` has it; there may be none.
    n_rows, n_observed
        Samples, and their observed cells.
    dimensions, n_states, n_threads
        As for `plan_fit_traits`.
    n_all_threads
        Threads of all workers.
    """
    n_levels = scores.log_marginals.size
    # two biases of people come on top
    n_traits = 2 + (DIMENSIONS[-1] if dimensions == "auto" else dimensions)
    most_states = STATES[-1] if n_states == "auto" else n_states
    sums = count_sum_bytes(scores, n_traits)
    n_held = plan_tasks(costs or [0], choose_tasks(costs, n_all_threads), sums).n_held
    mean_cells = n_observed // max(n_rows, 1) + 1
    drawn = min(n_observed, max(CHOICE_CELLS, most_states * mean_cells))
    n_tried = len(PASSES) * (len(DIMENSIONS) + 2)
    # levels held out, logarithms of their probabilities under all settings, and the probabilities themselves
    chosen = round(HELD_OUT_SHARE * drawn) * 8 * (n_tried + 3) + 3 * 8 * BATCH_NUMBERS
    return MemoryPlan(
        "fit_traits",
        {
            f"sums of a pass, up to {n_held} to merge by each thread": n_threads * n_held * sums,
            "sample blocks": n_threads * (4 * BLOCK_BYTES + PART_BYTES * PART_CELLS),
            "people who are drawn": n_threads * 2 * CELL_BYTES * drawn,
            f"parameters of {n_levels} levels x {n_traits} traits": 16 * n_levels * (n_traits + 1),
        },
        'Merge levels, use fewer threads, raise cluster.memory_limit, or take model.method = "auto".',
        {
            "coefficients of all variables, before and after a pass": UPDATE_TABLES * sums,
            "the choice by held-out cells": 2 * CELL_BYTES * drawn + chosen,
            f"factors of {most_states} states": 2 * 8 * n_levels * most_states,
        },
    )
