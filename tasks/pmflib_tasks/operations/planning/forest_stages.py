"""Cost of forests: the search for them on some of the samples, and passes over all of them."""

from __future__ import annotations

import math
from dataclasses import replace

from pmflib.cluster.memory import OWN_BYTES
from pmflib.cluster.task_plans import plan_tasks
from pmflib.em.forests.em import LEAST_PASSES
from pmflib.em.forests.samples import choose_states, measure_tables
from pmflib.em.memory import choose_tasks
from pmflib.fitting.dependence import count_searched
from pmflib.fitting.forest_search import REFIT_PASSES
from pmflib.fitting.tree_fit import ROUNDS, START_ROWS, count_starts
from pmflib_tasks.operations.planning.run_basis import PlannedRun
from pmflib_tasks.operations.planning.sizes import block_disk_bytes, table_disk_bytes
from pmflib_tasks.operations.planning.speeds import (
    PASS_SECONDS,
    RESIDUAL_NS,
    SAVED_BYTES,
    SCORED_SHARE,
    VARIED_PASSES,
)
from pmflib_tasks.operations.planning.stage_costs import MapWork, StageCost, join_ends
from pmflib_tasks.operations.planning.task_counts import FoldPart, MapTasks

LONG_RUNS = ROUNDS[-1][1] + 1
"""Runs of a search that pass over all of its samples until they end: the best, and the best of the other sharing."""
CANDIDATES, DIFFERENCES = 2, 3
"""Maps over the held-out samples that score the model with forests and the one without, and that compare the two."""
HIDDEN = 0.2
"""Share of the observed cells that are hidden at a time where answers are predicted, about."""


def plan_forest_stage(run: PlannedRun) -> StageCost:
    """Look at the residuals of the pairs, search on some of the samples, and pass over all; at least, and at most."""
    forests, rank = run.fit.forests, run.fit.rank
    assert forests is not None
    most = _plan_passes(run, rank)
    return most if forests.is_forced else join_ends([_plan_residuals(run), most])


def find_state_ns(run: PlannedRun, observed: float) -> float:
    """Nanoseconds of a pass with forests for a cell, observed or missing, and a latent state."""
    return run.speeds.tree_ns + run.speeds.tree_gap_ns * (1 - observed)


def list_class_ns(run: PlannedRun) -> list[float]:
    """Nanoseconds of predicting hidden answers by latent classes, for an observed cell: without forests, and with."""
    observed, n_states = run.log.observed, run.fit.rank * run.fit.members
    found = [n_states * run.speeds.evaluate_ns]
    if run.forest_memory is not None:
        shown = observed * (1 - HIDDEN)
        each = find_state_ns(run, shown) + run.speeds.belief_ns * math.sqrt(1 - shown)
        found.append(n_states * (run.speeds.evaluate_ns + each / max(observed, 1e-300)))
    return found


def count_searches(passes: int) -> int:
    """Searches for the forests in so many passes, at most: their distances double."""
    number, gap, found = 0, LEAST_PASSES, 0
    while number < passes:
        found, number, gap = found + 1, number + gap, 2 * gap
    return found


def _plan_residuals(run: PlannedRun) -> StageCost:
    """Cost of comparing the stored counts of all pairs with a model, by the client."""
    # the counts of the training folds
    stored = run.fit.train * table_disk_bytes(run.log, run.log.samples / run.fit.folds)
    seconds = run.log.levels**2 * RESIDUAL_NS * 1e-9 + stored / SAVED_BYTES
    assert run.forest_memory is not None
    return StageCost(
        "forests",
        read_bytes=stored,
        client_seconds=seconds,
        wall_seconds=seconds,
        client_memory=run.client_bytes(run.forest_memory),
        parts={"client": seconds},
    )


def _plan_passes(run: PlannedRun, rank: int) -> StageCost:
    """Cost of a search, and of passes over all samples."""
    log, fit, residuals = run.log, run.fit, _plan_residuals(run)
    training, held_out = (run.gather(*part) for part in run.parts)
    n_search = count_searched(training.n_rows, log.variables, fit.rank)
    n_validation = min(held_out.n_rows, n_search)
    searching = _search_seconds(run, rank, n_search)
    searching += (fit.members - 1) * fit.passes * _pass_seconds(run, rank, n_search)
    read = (n_search + n_validation) * block_disk_bytes(log)
    works: list[MapWork] = []
    n_passes = 0
    if not held_out.n_rows or (n_search, n_validation) != (training.n_rows, held_out.n_rows):
        n_passes = fit.passes if held_out.n_rows else min(REFIT_PASSES, fit.passes)
        works = _list_works(run, rank, n_passes)
        for part, is_kept in zip((training, held_out), run.keeps, strict=True):
            read += part.n_rows * block_disk_bytes(log) * (1 if is_kept else fit.members * n_passes)
    memory = run.forest_memory
    assert memory is not None
    saved = 4.0 * _table_bytes(run, rank)
    return run.make_stage(
        "forests",
        works,
        read_bytes=residuals.read_bytes + read,
        written_bytes=saved * (1 + fit.members * n_passes),
        files=1 + fit.members * n_passes,
        client_seconds=residuals.client_seconds
        + searching
        + fit.members * n_passes * (PASS_SECONDS + saved / SAVED_BYTES),
        worker_memory=OWN_BYTES + memory.needed + run.kept_bytes if works else 0,
        client_memory=run.client_bytes(memory),
    )


def _list_works(run: PlannedRun, rank: int, n_passes: int) -> list[MapWork]:
    """Maps of the passes over all samples: sufficient statistics, counts of all pairs, held-out scores."""
    log, fit = run.log, run.fit
    training, held_out = (run.gather(*part) for part in run.parts)
    keeps, offsets, table = run.keeps, 8 * (log.variables + 1), _table_bytes(run, rank)
    row_seconds = log.variables * rank * find_state_ns(run, log.observed) * 1e-9
    n_states = min(rank, choose_states(log.levels))
    n_chunks = -(-rank // n_states)
    n_pairs = (log.variables * log.observed) ** 2 / 2
    pair_bytes = 8 * n_states * log.levels**2

    def plan_map(part: FoldPart, result_bytes: int, *shared: int | None) -> MapTasks:
        costs = part.costs or (0,)
        n_tasks = choose_tasks(costs, run.cluster.n_threads)
        return MapTasks.of_plan(plan_tasks(costs, n_tasks, result_bytes), *shared)

    adding = plan_map(training, table, offsets, None)
    _, passing = run.hold_blocks(adding, training, row_seconds, is_kept=keeps[0])
    # the first state, and their number, are sent along
    counted = plan_map(training, pair_bytes, offsets, None, 0, 0)
    seconds = row_seconds + n_states * n_pairs * run.speeds.pair_ns * 1e-9
    _, counting = run.hold_blocks(counted, training, seconds, is_kept=keeps[0])
    # where the pairs of all states are not in memory at once, they are counted again for the tables
    n_counts = count_searches(n_passes) * (n_chunks if n_chunks == 1 else 2 * n_chunks)
    # one more pass says how far the model is from its end: an average has none
    n_ends = int(fit.members == 1)
    works = [
        replace(
            passing, result_bytes=table, copied_bytes=table, repeats=fit.members * n_passes + n_ends
        ),
        run.measure_fit(row_seconds, table),
        replace(
            counting, result_bytes=pair_bytes, copied_bytes=table, repeats=fit.members * n_counts
        ),
    ]
    if not held_out.n_rows:
        return works
    # what scores and adds up is sent along, the models are a task of their own
    scored_tasks = plan_map(held_out, 0, offsets, 0, 0, None, 0)
    seconds = SCORED_SHARE * row_seconds
    assigning, scoring = run.hold_blocks(scored_tasks, held_out, seconds, is_kept=keeps[1])
    n_scores = fit.members * (n_passes + 1) + CANDIDATES + 1
    _, comparing = run.hold_blocks(scored_tasks, held_out, 2 * seconds, is_kept=keeps[1])
    return [
        *works,
        assigning,
        replace(scoring, copied_bytes=table, repeats=n_scores),
        replace(comparing, copied_bytes=2 * table, repeats=DIFFERENCES),
    ]


def _search_seconds(run: PlannedRun, rank: int, n_search: int) -> float:
    """Seconds of a search of one rank, on the client, one of whose cores works."""
    cells = min(n_search, START_ROWS) * run.log.variables * run.log.observed
    n_starts = count_starts(cells, rank)
    # starts, and the model without forests, each with one forest and with a forest per state
    rounds = (2 * (n_starts + 1), ROUNDS[0][1])
    tried = sum(
        n * min(passes, run.fit.passes) for n, (passes, _) in zip(rounds, ROUNDS, strict=True)
    )
    longer = LONG_RUNS * run.fit.passes + VARIED_PASSES
    few = min(n_search, START_ROWS)
    return tried * _pass_seconds(run, rank, few) + longer * _pass_seconds(run, rank, n_search)


def _pass_seconds(run: PlannedRun, rank: int, n_rows: int) -> float:
    """Seconds of a pass over samples in memory, and of its score."""
    held_out = run.gather(*run.parts[1]).n_rows
    n_scored = SCORED_SHARE * min(held_out, n_rows)
    cells = (n_rows + n_scored) * run.log.variables
    return cells * rank * find_state_ns(run, run.log.observed) * 1e-9


def _table_bytes(run: PlannedRun, rank: int) -> int:
    """Bytes of the tables of forests, at most."""
    assert run.fit.schema is not None
    return measure_tables(run.fit.schema.offsets, rank)
