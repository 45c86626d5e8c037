"""Costs of the stages of a run: read, sort, count, fit, refine, evaluate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pmflib.cluster.memory import OWN_BYTES, MemoryPlan, find_least_limit
from pmflib.cluster.task_plans import plan_tasks
from pmflib.counting.stored_pairs import count_folds_ahead, plan_fold_merges, plan_fold_runs
from pmflib.em.memory import choose_tasks
from pmflib.fitting.auto_method import SETTINGS
from pmflib.store.sample_blocks import COUNTING_COARSENESS
from pmflib_tasks.operations.planning.forest_stages import list_class_ns, plan_forest_stage
from pmflib_tasks.operations.planning.run_basis import PlannedRun
from pmflib_tasks.operations.planning.sizes import SPILL_FILES, block_disk_bytes, table_disk_bytes
from pmflib_tasks.operations.planning.speeds import (
    BLOCK_RECORD,
    ENTRY_BYTES,
    FIT_SECONDS,
    FIT_TABLES,
    HASH_BYTES,
    JOB_BYTES,
    LEVEL_BYTES,
    LOOK_BYTES,
    OPENING_SECONDS,
    PASS_SECONDS,
    READING_BYTES,
    REFERENCE_BYTES,
    ROOT_BYTES,
    SAVED_BYTES,
    SCORED_SHARE,
    SORTED_TIMES,
)
from pmflib_tasks.operations.planning.stage_costs import MapWork, StageCost, join_ends
from pmflib_tasks.operations.planning.task_counts import MapTasks
from pmflib_tasks.operations.planning.trait_stages import (
    list_class_counts,
    list_score_ns,
    plan_choice,
    plan_memory,
    plan_trait_fit,
    refuse_traits,
)

RUN_STAGES = {"read": "ingest", "sort": "ingest", "traits": "fit_traits", "forests": "refine"}
"""Rows of a plan that are a stage of another name in a run, or a part of one."""


@dataclass(frozen=True)
class Planner(PlannedRun):
    """Plans the stages of one run.

    Parameters
    ----------
    log, fit, cluster, speeds
        Sizes and speeds.
    """

    def plan(self) -> list[StageCost]:
        """Costs of all stages, in order, with what each takes to load what it needs, and to start."""
        speeds = self.speeds
        starting, held = dict(speeds.starting), dict(speeds.client_held)
        found: list[StageCost] = []
        begun = set()
        for stage in self._plan_work():
            name = RUN_STAGES.get(stage.stage, stage.stage)
            own = round(held.get(name, speeds.client_bytes)) - speeds.client_bytes
            if own and stage.client_memory:
                stage = replace(stage, client_memory=stage.client_memory + own)
            if name not in begun:
                loading, later = speeds.find_loading(name), starting.get(name, 0.0)
                stage = stage.start_later(later, loading, self.cluster.workers)
            begun.add(name)
            found.append(stage)
        return found

    def _plan_work(self) -> list[StageCost]:
        stages = [*self.plan_ingest(), self.plan_counts()]
        if self.fit.has_classes:
            stages += [self.plan_start(), self.plan_refine()]
            if self.forest_memory is not None:
                stages.append(plan_forest_stage(self))
        if self.fits_traits:
            stages.append(plan_trait_fit(self))
            if self.fit.has_classes:
                stages.append(plan_choice(self))
        return [*stages, self.plan_evaluate()]

    @cached_property
    def fits_traits(self) -> bool:
        """Whether traits are fitted: where they are only compared, not if they would not fit in memory."""
        return self.fit.traits is not None and refuse_traits(self) is None

    @property
    def least_memory(self) -> int:
        """Least memory of a worker in which counting and passes fit, bytes; blocks are then read in each pass."""
        plans = [self.counting_memory]
        if self.fit.has_classes:
            plans.append(self.refine_memory)
        if self.fits_traits:
            plans.append(plan_memory(self))
        return max(map(find_least_limit, plans))

    def plan_ingest(self) -> tuple[StageCost, StageCost]:
        """Read raw files, and sort their rows into samples."""
        log, speeds, cluster, shape = self.log, self.speeds, self.cluster, self.shape
        # every file is hashed; large ones are looked through for positions to split at; then they are read
        hashing = MapWork(
            # the root of the store, and whether to hash again
            MapTasks.of_items(shape.files, ROOT_BYTES, 0),
            leaf_seconds=log.raw_bytes / shape.files / HASH_BYTES,
            leaf_read=log.raw_bytes / shape.files,
            leaf_requests=1,
        )
        looked = log.raw_bytes if shape.split_files else 0
        looking = MapWork(
            # the delimiter
            MapTasks.of_items(max(1, shape.looks), 1),
            leaf_seconds=looked / max(1, shape.looks) / LOOK_BYTES,
            leaf_read=looked / max(1, shape.looks),
            leaf_requests=1,
        )
        sample_bytes, spill_bytes = self.sample_bytes, self.spill_bytes
        partition_files = self.count_sample_files()
        chunk_files = SPILL_FILES if log.identified else partition_files / shape.chunks + 1
        encoding = MapWork(
            MapTasks.of_items(shape.chunks, None),
            leaf_seconds=log.csv_bytes / shape.chunks / speeds.read_bytes,
            leaf_read=log.raw_bytes / shape.chunks,
            leaf_requests=1 + chunk_files,
            leaf_written=(spill_bytes or sample_bytes) / shape.chunks,
            copied_bytes=JOB_BYTES + LEVEL_BYTES * log.levels,
        )
        works = [hashing, *([looking] if shape.looks else []), encoding]
        entries = shape.files + shape.split_files + shape.chunks
        n_files = round(entries + 2 * shape.split_files + chunk_files * shape.chunks)
        read = self.make_stage(
            "read",
            works,
            read_bytes=2.0 * log.raw_bytes + looked,
            written_bytes=spill_bytes or sample_bytes,
            files=n_files,
            client_seconds=entries * speeds.artefact_seconds,
            worker_memory=OWN_BYTES + READING_BYTES * cluster.threads,
            client_memory=self.speeds.client_bytes + entries * ENTRY_BYTES,
        )
        if not log.identified:
            return read, StageCost("sort")
        n_parts = shape.partitions
        opened = shape.openings / n_parts
        sorting = MapWork(
            # the settings, and the list of spills
            MapTasks.of_items(n_parts, None, None),
            leaf_seconds=spill_bytes / n_parts / speeds.sort_bytes + opened * OPENING_SECONDS,
            leaf_read=spill_bytes / n_parts,
            leaf_requests=3 * opened + partition_files / n_parts,
            leaf_written=sample_bytes / n_parts,
            copied_bytes=JOB_BYTES + LEVEL_BYTES * log.levels,
        )
        # the list of spills, and the entry of the dataset
        listed = REFERENCE_BYTES * (2 * shape.chunks + n_parts)
        written = sample_bytes + n_parts * ENTRY_BYTES + listed
        sort = self.make_stage(
            "sort",
            [sorting],
            read_bytes=spill_bytes,
            written_bytes=written,
            files=n_parts + partition_files + 3,
            client_seconds=2 * n_parts * speeds.artefact_seconds + listed / SAVED_BYTES,
            worker_memory=OWN_BYTES + round(SORTED_TIMES * spill_bytes / n_parts) * cluster.threads,
            client_memory=round(
                self.speeds.client_bytes
                + n_parts * ENTRY_BYTES
                + 2 * listed
                + self.n_blocks * BLOCK_RECORD
            ),
        )
        return read, sort

    def list_maps(self) -> dict[str, MapWork]:
        """Maps of counting, of a pass and of its score: what the simulation plays."""
        passing, scoring, _ = self._list_passes()
        maps = {"count": self._list_counts()[0], "pass": passing[-1]}
        if scoring:
            maps["score"] = scoring[-1]
        if self.scores_beside:
            beside = replace(scoring[-1], repeats=passing[-1].repeats)
            maps["pass and score"] = replace(passing[-1], beside=beside)
        return maps

    def _list_counts(self) -> tuple[MapWork, int]:
        """Map over the blocks of all folds, each with a result of its own; and the number of folds."""
        log, n_threads = self.log, self.cluster.n_threads
        table = 8 * log.levels**2
        folds = [self.gather(fold, fold + 1, COUNTING_COARSENESS) for fold in range(self.fit.folds)]
        filled = [part for part in folds if part.n_rows]
        plans = [
            plan_fold_runs(part.block_costs, len(part.costs), len(filled), n_threads)
            for part in filled
        ]
        merges = [plan_fold_merges(plan.n_runs, log.levels) for plan in plans]
        n_ahead = count_folds_ahead(max(1, len(filled)), n_threads, log.levels)
        tasks = MapTasks.of_plans(plans, merges, n_ahead, 8 * (log.variables + 1))
        rows_of_leaf = log.samples / tasks.leaves
        work = replace(
            self.map_blocks(tasks, rows_of_leaf, rows_of_leaf * self.count_row_seconds()),
            result_bytes=table,
            calls=1 + max(0, len(filled) - n_ahead),
        )
        return work, len(filled)

    def plan_counts(self) -> StageCost:
        """Count the pairs of levels of each fold."""
        log, plan, table = self.log, self.counting_memory, 8 * self.log.levels**2
        work, n_maps = self._list_counts()
        stored = table_disk_bytes(log, log.samples / max(n_maps, 1))
        return self.make_stage(
            "count",
            [work],
            read_bytes=log.samples * block_disk_bytes(log),
            written_bytes=2 * n_maps * stored,
            files=14 + 2 * n_maps,
            client_seconds=n_maps * (3 * stored / SAVED_BYTES + table / self.speeds.table_bytes),
            # a fold is saved while workers count the next
            side_by_side=max(1, n_maps),
            worker_memory=OWN_BYTES + plan.needed,
            client_memory=self.client_bytes(plan),
        )

    def plan_start(self) -> StageCost:
        """Fit the first model to the counts: the client alone."""
        log, fit = self.log, self.fit
        table = 8 * log.levels**2
        stored = table_disk_bytes(log, log.samples / fit.folds)
        # the counts are read; a random start needs little else
        reading = fit.train * (stored / SAVED_BYTES + table / self.speeds.table_bytes)
        work = 0 if fit.start == "random" else SETTINGS.plan_work(log.levels, fit.rank)
        seconds = reading + (
            FIT_SECONDS + work * self.speeds.fit_ns * 1e-9 if work else PASS_SECONDS
        )
        return StageCost(
            "fit",
            read_bytes=fit.train * stored,
            written_bytes=8.0 * log.levels * (fit.rank + 1),
            files=8,
            requests=8.0 + fit.train,
            client_seconds=seconds,
            wall_seconds=seconds,
            client_memory=self.speeds.client_bytes + FIT_TABLES * table,
            parts={"client": seconds},
        )

    def _list_passes(self) -> tuple[list[MapWork], list[MapWork], float]:
        """Maps that load blocks and make passes over them; the same that score held-out ones; bytes read in all."""
        log, fit, n_threads = self.log, self.fit, self.cluster.n_threads
        model = self.model_bytes
        runs = fit.runs if fit.validation else 1
        passes, scores = runs * fit.passes, runs * (fit.passes + 1)
        cell_seconds = (
            log.variables * log.observed * fit.rank * fit.members * self.speeds.em_ns * 1e-9
        )
        training, held_out = (self.gather(*part) for part in self.parts)
        offsets = 8 * (log.variables + 1)
        passing = MapTasks.of_plan(self.pass_plan.tasks, offsets, model)
        plan = plan_tasks(held_out.costs or (0,), choose_tasks(held_out.costs, n_threads))
        # the function that scores, and the target, are sent along
        scoring = MapTasks.of_plan(plan, offsets, 0, model, 0)
        listed: list[list[MapWork]] = [[], []]
        read = 0.0
        for name, tasks, part, share, repeats, result in (
            ("train", passing, training, 1.0, passes, model),
            ("score", scoring, held_out, SCORED_SHARE, scores, 16),
        ):
            if name == "score" and not part.n_rows:
                continue
            works = listed[name == "score"]
            kept = self.keeps[name == "score"]
            assigning, work = self.hold_blocks(tasks, part, cell_seconds * share, is_kept=kept)
            works.append(assigning)
            read += part.n_rows * block_disk_bytes(log) * (1 if kept else repeats)
            works.append(
                replace(
                    work,
                    result_bytes=result,
                    copied_bytes=model,
                    repeats=repeats,
                    side_by_side=self.n_side_by_side,
                )
            )
        return listed[0], listed[1], read

    def plan_refine(self) -> StageCost:
        """Make passes of EM over the training samples, each scored on the held-out ones."""
        log, fit, plan, model = self.log, self.fit, self.em_memory, self.model_bytes
        passing, scoring, read = self._list_passes()
        if self.scores_beside:
            # each model but the first of a run is scored while the next pass is made
            *assigning, made = passing
            *others, score = scoring
            beside = replace(score, repeats=made.repeats)
            left = replace(score, repeats=score.repeats - made.repeats)
            works = [*assigning, *others, replace(made, beside=beside), left]
        else:
            works = [*passing, *scoring]
        # a last pass says how likely the samples are, and how far another one would move the model
        works.append(replace(passing[-1], repeats=1, side_by_side=1))
        passes = fit.passes * (fit.runs if fit.validation else 1)
        a_pass = PASS_SECONDS + 4 * model / SAVED_BYTES
        return self.make_stage(
            "refine",
            works,
            read_bytes=read,
            written_bytes=4.0 * model * passes,
            files=8 + passes,
            client_seconds=passes * a_pass,
            side_by_side=self.n_side_by_side,
            worker_memory=OWN_BYTES + plan.needed + self.kept_bytes,
            client_memory=self.client_bytes(plan) + FIT_TABLES * 8 * log.levels**2,
        )

    def plan_evaluate(self) -> StageCost:
        """Hide answers of the test samples, and predict them."""
        log, fit = self.log, self.fit
        test = self.gather(fit.train + fit.validation, fit.folds)
        if not test.n_rows:
            return StageCost("evaluate")
        # groups are assigned to tasks without their costs
        plan = plan_tasks([1] * len(test.costs), self.cluster.n_threads)
        tasks = MapTasks.of_plan(plan, None, 8 * log.levels, 0, 0)
        rows = test.n_rows / tasks.leaves
        cells = rows * log.variables * log.observed

        def plan_model(cell_ns: float, n_states: int, memory: MemoryPlan) -> StageCost:
            work = replace(
                self.map_blocks(tasks, rows, cells * cell_ns * 1e-9),
                copied_bytes=8 * (log.levels + 1) * n_states,
                result_bytes=100 * log.variables,
            )
            return self.make_stage(
                "evaluate",
                [work],
                read_bytes=test.n_rows * block_disk_bytes(log),
                written_bytes=2000.0 * log.variables,
                files=3,
                client_seconds=0.05,
                worker_memory=OWN_BYTES + memory.needed,
                client_memory=self.client_bytes(memory),
            )

        found: list[StageCost] = []
        if fit.has_classes:
            n_states = fit.rank * fit.members
            found += [plan_model(each, n_states, self.em_memory) for each in list_class_ns(self)]
        if self.fits_traits and fit.traits is not None:
            n_states = list_class_counts(fit.traits)[-1]
            memory = self.plan_states(n_states)
            found += [plan_model(each, n_states, memory) for each in list_score_ns(self)]
        return join_ends(found)
