"""Stage: pairwise co-occurrence counts of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.base.errors import PmfError
from pmflib.base.hooks import find_offers
from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.memory import ClusterMemory
from pmflib.counts.increments import (
    Increment,
    count_stored_changes,
    find_counts,
    needs_workers,
    plan_increment,
)
from pmflib.counts.selection import (
    PAIR_LEVELS,
    Requested,
    bound_levels,
    choose_counted,
    count_stored_levels,
    find_requested,
)
from pmflib.counts.stored_pairs import choose_n_runs, count_stored_pairs, plan_counting
from pmflib.counts.zarr_tables import PAIRS, CountsWriter, Selection, StoredTables
from pmflib.ingest.dataset.design_columns import name_unit
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks, read_source
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import (
    build_artefact,
    load_schema,
    open_store,
    open_workers,
    publish_entry,
    stage,
)

VERSION = 4


@stage(name="count", makes="counts")
def count(
    config: PipelineConfig,
    dataset: Reference,
    address: str = "",
    base: tuple[Reference, Reference] | None = None,
) -> Reference:
    """Count the pairs of levels of all samples, by fold.

    Parameters
    ----------
    config, dataset
        The pipeline, and the reference from `ingest`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    base
        Dataset of an earlier run and its counts, if any. With the same schema and folds, only the difference between
        the two datasets is counted, unless that takes longer; the counts are the same.

    Returns
    -------
    Reference to the counts.

    Raises
    ------
    MemoryPlanError
        If the tables of counts do not fit in memory.
    SchemaError
        If a variable of counts.variables is unknown.
    """
    store, schema = open_store(config), load_schema(config)
    options = {"schema": schema.digest, "folds": config.store.folds}
    options |= name_unit(schema, config.source)
    replicates = read_source(store, dataset).get("replicates", [])
    options |= {"replicates": replicates} if replicates else {}
    requested = _find_requested(config, store, schema, base, address)
    if requested is not None:
        options |= {"pairs": requested} | (
            {"target": target} if (target := config.em.target) else {}
        )
    if base and (known := find_counts(store, dataset, base, options, VERSION)):
        return publish_entry(lambda: known).reference
    increment = plan_increment(store, dataset, base, options, VERSION) if base else None
    entry = build_artefact(
        store,
        "counts",
        inputs={"dataset": dataset} | ({"base": increment.counts} if increment else {}),
        options=options,
        version=VERSION,
        write=lambda folder, work: _write(
            config,
            store,
            (schema, requested),
            dataset,
            increment,
            len(replicates),
            address,
            folder,
            work,
        ),
    )
    return entry.reference


def _find_requested(
    config: PipelineConfig,
    store: Store,
    schema: Schema,
    base: tuple[Reference, Reference] | None,
    address: str,
) -> Requested | None:
    """Find which pairs to count; None for all. What was chosen for the base stays, whatever memory is free today."""
    known = store.find(base[1].identity) if base is not None else None
    if config.counts.variables == "auto":
        if known is not None and isinstance(found := known.options.get("pairs"), dict):
            return found
        if schema.n_levels <= PAIR_LEVELS or config.source.replicates:
            return None
    with open_workers(config, address) as (client, memory):
        n_runs = choose_n_runs(config.store.folds, count_threads(client))
        return find_requested(
            config.counts.variables,
            schema,
            lambda n_levels: memory.check(lambda n: plan_counting(n_levels, n, n_runs)),
        )


def _write(
    config: PipelineConfig,
    store: Store,
    variables: tuple[Schema, Requested | None],
    dataset: Reference,
    increment: Increment | None,
    n_replicates: int,
    address: str,
    folder: Path,
    work: Path,
) -> Mapping[str, Any]:
    n_folds, (schema, requested) = config.store.folds, variables
    offers = find_offers("replicate_counts")
    if n_replicates and not offers:
        raise PmfError(
            f"the dataset has {n_replicates} replicate weights, which this installation of pmflib cannot count by; add "
            "the feature that does to pmflib.features.FEATURES, or leave out source.replicates"
        )
    small = increment is not None and not needs_workers(increment.change)
    in_thread = small and not config.cluster.always
    # work in this thread needs no client
    workers: AbstractContextManager[tuple[Client, ClusterMemory]] = (
        nullcontext((None, ClusterMemory.here(config.cluster.memory_limit)))
        if in_thread
        else open_workers(config, address)
    )
    with workers as (client, memory):
        n_runs = choose_n_runs(n_folds, count_threads(client))
        n_levels = bound_levels(schema, requested)
        memory.check(lambda n: plan_counting(n_levels, n, n_runs))
        if n_replicates:
            plan_replicates = offers["plan"]
            memory.check(lambda n: plan_replicates(schema.n_levels, n_replicates, n))
        report_progress("count", 0, n_folds)

        def on_fold(done: int, n_rows: int) -> None:
            report_progress("count", done, n_folds, f"{n_rows:,} samples")

        facts: dict[str, object]
        if increment is not None:
            facts = count_stored_changes(client, increment, folder / PAIRS, work, on_fold)
        else:
            blocks = {fold: list_dataset_blocks(store, dataset, [fold]) for fold in range(n_folds)}
            selection = None
            if requested is not None:
                every = list_dataset_blocks(store, dataset, None)
                singles = count_stored_levels(client, every, schema, n_folds)
                counted = choose_counted(schema, requested, singles.sum(axis=0), config.em.target)
                selection = Selection(counted, singles)
            writer = CountsWriter(folder / PAIRS, schema, n_folds, selection=selection)
            facts = {"samples": count_stored_pairs(client, blocks, writer, work, on_fold)}
            writer.close()
        if n_replicates:
            every = list_dataset_blocks(store, dataset, None)
            offers["count"](client, every, increment, n_replicates, folder, schema)
    facts |= {"levels": schema.n_levels, "variables": schema.n_variables}
    if requested is not None:
        facts["counted_variables"] = int(StoredTables(folder / PAIRS).counted.size)
    return facts
