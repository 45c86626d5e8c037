"""Stage: how many latent states, where the configuration leaves it open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from prefect.artifacts import create_markdown_artifact
from prefect.context import TaskRunContext

from pmflib.arrays import IntArray
from pmflib.config import PipelineConfig
from pmflib.counting.pair_counts import PairCounts
from pmflib.model.evaluation import split_folds
from pmflib.ranks.rows import MAX_RANK, PSEUDO_COUNTS, RowChoice, select_rank_by_rows
from pmflib.ranks.selection import (
    MAX_LEVELS,
    RankChoice,
    narrow_counts,
    pick_variables,
    select_rank,
)
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import read_block
from tasks.curves import draw_curves, tabulate_curves
from tasks.progress import report
from tasks.stage import build_artefact, open_store, open_workers, stage

VERSION = 5

TRAINING_ROWS = 20_000
"""Training samples that ranks are compared on; as many as a quarter of them are held out."""

CURVE = "curve.json"

# Blocks that samples are taken from, spread over the dataset: sources are often sorted.
_BLOCKS = 16


@stage(name="select")
def select(
    config: PipelineConfig, dataset: Reference, counts: Reference, address: str = ""
) -> Reference:
    """Choose the rank on held-out folds of the training counts, then on samples of the validation folds.

    Parameters
    ----------
    config
        The pipeline; its rank is "auto".
    dataset, counts
        What `ingest` and `count` returned.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to the choice: a file with both curves; the entry's summary holds rank, pseudo_count and why.

    Raises
    ------
    PmfError
        If the training folds have too few pairs to fit some and hold out others.
    """
    store = open_store(config)
    folds = split_folds(
        config.store.folds, config.evaluate.validation_folds, config.evaluate.test_folds
    )
    report("select", 0, 1)
    entry = build_artefact(
        store,
        "rank",
        inputs={"dataset": dataset, "counts": counts},
        options={
            "train": list(folds.train),
            "validation": list(folds.validation),
            "pseudo_count": config.em.pseudo_count,
            "rows": TRAINING_ROWS,
            "seed": config.seed,
        },
        version=VERSION,
        write=lambda folder, work: _write(config, store, (dataset, counts), address, folder),
    )
    report("select", 1, 1, f"rank {entry.summary['rank']}")
    _publish_curves(entry)
    return entry.reference


def settle(config: PipelineConfig, rank: Reference) -> PipelineConfig:
    """Configuration with the rank that `select` chose; how to fit it is for the stages to come."""
    entry = open_store(config).find(rank.identity)
    assert entry is not None
    model = config.model.model_copy(update={"rank": entry.summary["rank"]})
    return config.model_copy(update={"model": model})


def _write(
    config: PipelineConfig,
    store: Store,
    inputs: tuple[Reference, Reference],
    address: str,
    folder: Path,
) -> Mapping[str, Any]:
    dataset, counts = inputs
    path = store.locate(counts) / "pairs"
    folds = split_folds(
        config.store.folds, config.evaluate.validation_folds, config.evaluate.test_folds
    )
    training, notes = _load_folds(path, config.store.folds, tuple(folds.train))
    with open_workers(config, address) as (client, _):
        pairs = select_rank(training, rng=config.seed, client=client)
    report("select", 0, 1, f"by pairs: {pairs.rank}")
    total = PairCounts.load_total(path, without=set(range(config.store.folds)) - set(folds.train))
    held_out = _take_rows(store, dataset, folds.validation, total.schema, TRAINING_ROWS // 4)
    rows = None
    if len(held_out):
        codes = _take_rows(store, dataset, folds.train, total.schema, TRAINING_ROWS)
        given = config.em.pseudo_count
        rows = select_rank_by_rows(
            codes,
            held_out,
            total,
            first=min(pairs.rank, MAX_RANK),
            pseudo_counts=PSEUDO_COUNTS if given == "auto" else (given,),
            rng=config.seed,
        )
    content = {"pairs": asdict(pairs), "rows": None if rows is None else asdict(rows)}
    (folder / CURVE).write_text(json.dumps(content, indent=1, sort_keys=True), "utf-8")
    return {**_summarise(pairs, rows, notes), "curves": tabulate_curves(content)}


def _summarise(pairs: RankChoice, rows: RowChoice | None, notes: Sequence[str]) -> dict[str, Any]:
    reasons = [f"by pairs: {pairs.reason}", *notes]
    if rows is not None:
        reasons.append(f"by samples: {rows.reason}")
    return {
        "rank": pairs.rank if rows is None else rows.rank,
        "rank_by_pairs": pairs.rank,
        "pseudo_count": None if rows is None else rows.pseudo_count,
        "reasons": reasons,
    }


def _load_folds(
    path: Path, n_folds: int, folds: tuple[int, ...]
) -> tuple[PairCounts, tuple[str, ...]]:
    """Training counts by fold, of the variables with most answers where all would be too many."""
    total = PairCounts.load_total(path, without=set(range(n_folds)) - set(folds))
    schema, kept = total.schema, None
    notes: tuple[str, ...] = ()
    if schema.n_levels > MAX_LEVELS:
        kept = pick_variables(schema, np.diagonal(total.tables[0]))
        schema = Schema(tuple(schema.variables[place] for place in kept))
        notes = (
            f"pairs of the {kept.size} variables with most answers, of {total.schema.n_variables}",
        )
    loaded = PairCounts.zero(schema, len(folds))
    for number, fold in enumerate(folds):
        part = PairCounts.load_total(path, without=set(range(n_folds)) - {fold})
        if kept is not None:
            part = narrow_counts(part, kept)
        loaded.tables[number], loaded.n_rows[number] = part.tables[0], part.n_rows[0]
    return loaded, notes


def _take_rows(
    store: Store, dataset: Reference, folds: Sequence[int], schema: Schema, n_rows: int
) -> IntArray:
    """Codes of some samples of some folds, from blocks spread over the dataset."""
    blocks = [b for b in list_dataset_blocks(store, dataset, folds) if b.n_rows]
    taken = [np.empty((0, schema.n_variables), schema.code_dtype)]
    wanted = np.unique(np.linspace(0, len(blocks) - 1, min(_BLOCKS, len(blocks))).astype(np.int64))
    # a few blocks may be small: the others give more
    sizes = [blocks[place].n_rows for place in wanted]
    share = n_rows if sum(sizes) <= n_rows else n_rows // len(sizes)
    for place in wanted:
        taken.append(read_block(blocks[place]).to_codes(schema.offsets)[:share])
    return np.concatenate(taken)


def _publish_curves(entry: Entry) -> None:
    """Show both curves in Prefect."""
    if TaskRunContext.get() is not None:
        drawn = draw_curves(entry.summary["curves"])
        create_markdown_artifact(key="pmf-rank-curve", markdown=drawn, description="rank")
