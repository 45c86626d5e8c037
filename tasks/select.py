"""Stage: how many latent states, where the configuration leaves it open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.ranks.rank_progress import report_ranks
from pmflib.ranks.stored_selection import TRAINING_SAMPLES, select_stored_rank
from pmflib.selection.comparison import Comparison
from pmflib.selection.comparison_tables import draw_markdown
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from tasks.prefect_artifacts import show_markdown
from tasks.stage import build_artefact, open_store, open_workers_late, stage
from tasks.stage_progress import report

VERSION = 7

COMPARISONS = "comparisons.json"
"""What was compared, with all scores, in the folder of the choice."""


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
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to the choice: a file with all comparisons; the entry's summary holds the rank, why, and the same.

    Raises
    ------
    PmfError
        If the training folds have too few pairs to fit some and hold out others, or no held-out sample has the target.
    SchemaError
        If there is no such target.
    """
    store = open_store(config)
    folds = config.fold_split

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        # small tables are compared in less time than workers take to start
        with open_workers_late(config, address) as client:
            choice = select_stored_rank(
                store.locate(counts) / "pairs",
                folds.train,
                list_dataset_blocks(store, dataset, folds.train),
                list_dataset_blocks(store, dataset, folds.validation),
                method=config.model.method,
                pseudo_count=config.em.pseudo_count,
                members=config.em.members,
                target=config.em.target,
                seed=config.seed,
                client=client,
                budget=config.model.rank_seconds,
                checkpoint=work,
                on_progress=partial(report_ranks, partial(report, "select")),
            )
        comparisons = [each.to_json() for each in choice.comparisons]
        (folder / COMPARISONS).write_text(json.dumps(comparisons, indent=1), "utf-8")
        return {
            "rank": choice.rank,
            "judged_by_samples": choice.by_samples is not None,
            "rank_by_pairs": choice.by_pairs.rank,
            "pseudo_count": None if choice.by_samples is None else choice.by_samples.pseudo_count,
            "verdict": choice.verdict,
            "reasons": list(choice.reasons),
            "comparisons": comparisons,
        }

    report("select", 0, 1)
    entry = build_artefact(
        store,
        "rank",
        inputs={"dataset": dataset, "counts": counts},
        options={
            "train": list(folds.train),
            "validation": list(folds.validation),
            "method": config.start_method,
            "pseudo_count": config.em.pseudo_count,
            "members": config.em.members,
            "target": config.em.target,
            "budget": config.model.rank_seconds,
            "samples": TRAINING_SAMPLES,
            "seed": config.seed,
        },
        version=VERSION,
        write=write,
    )
    report("select", 1, 1, f"rank {entry.summary['rank']}")
    comparisons = map(Comparison.from_json, entry.summary["comparisons"])
    show_markdown("rank-curve", f"{entry.summary['verdict']}\n\n{draw_markdown(comparisons)}")
    return entry.reference


def settle(config: PipelineConfig, rank: Reference) -> PipelineConfig:
    """Configuration with the rank that `select` chose; how to fit it is for the stages to come."""
    entry = open_store(config).find(rank.identity)
    assert entry is not None
    model = config.model.model_copy(update={"rank": entry.summary["rank"]})
    return config.model_copy(update={"model": model})
