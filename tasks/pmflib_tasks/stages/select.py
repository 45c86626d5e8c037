"""Stage: selection of the number of latent states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.base.comparison import Comparison
from pmflib.base.display.progress import report_progress
from pmflib.base.display.summary import tabulate_comparison
from pmflib.base.texts import escape_markdown
from pmflib.counts.groups import load_most_answered
from pmflib.counts.pair_counts import load_shape
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.ranks.by_pairs import MAX_LEVELS
from pmflib.fits.ranks.by_samples import MAX_RANK
from pmflib.fits.ranks.choice import report_ranks
from pmflib.fits.ranks.sample_fits import MOST_SAMPLES
from pmflib.fits.ranks.selection import MOST_CLASSES, split_for_choice
from pmflib.fits.ranks.selection import select as select_fit
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import scale_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.prefect_runs import show_markdown
from pmflib_tasks.stage import build_artefact, open_store, open_workers_late, stage

# 12: ranks are doubled from two, without a search by pairs before
# 15: of latent classes alone, and of few
VERSION = 15

COMPARISONS = "comparisons.json"
"""File of the artefact with all comparisons and scores."""


@stage(name="select", makes="rank")
def select(
    config: PipelineConfig, dataset: Reference, counts: Reference, address: str = ""
) -> Reference:
    """Select the rank on samples of the validation folds; without such folds, on folds of the counts.

    Parameters
    ----------
    config
        The pipeline; its rank is "auto".
    dataset, counts
        References from `ingest` and `count`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to a file with all comparisons; the summary of the entry has the rank, the reasons, and the comparisons.

    Raises
    ------
    PmfError
        If the training folds have too few pairs to fit and hold out, or no held-out sample has the target.
    SchemaError
        If the target is unknown.
    """
    store = open_store(config)
    folds = config.fold_split

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        path = store.locate(counts) / "pairs"
        schema = load_shape(path)[0]
        target = None if config.em.target is None else schema.position(config.em.target)
        options = Options.make(config.model.method, config.em.pseudo_count, config.em.members, 2)
        fit = EMFit(schema, 2, options, config.seed, Passes(), target)
        training, validation = (
            StoredSamples(scale_blocks(list_dataset_blocks(store, dataset, part)), schema)
            for part in (folds.train, folds.validation)
        )
        # comparing small tables takes less time than starting workers
        with open_workers_late(config, address) as client:
            choice = select_fit(
                fit,
                split_for_choice(fit, training, validation),
                partial(load_most_answered, path, [(fold,) for fold in folds.train], MAX_LEVELS),
                # traits are compared with as many classes as are best
                max_rank=MAX_RANK if config.compares_traits else MOST_CLASSES,
                client=client,
                budget=config.model.rank_seconds,
                checkpoint=work,
                on_progress=partial(report_ranks, partial(report_progress, "select")),
            )
        found = choice.to_json()
        (folder / COMPARISONS).write_text(json.dumps(found["comparisons"], indent=1), "utf-8")
        return found

    report_progress("select", 0, 1)
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
            "samples": MOST_SAMPLES,
            "seed": config.seed,
        },
        version=VERSION,
        write=write,
    )
    report_progress("select", 1, 1, f"rank {entry.summary['rank']}")
    # names of targets come from data
    parts = [escape_markdown(entry.summary["verdict"])]
    for each in map(Comparison.from_json, entry.summary["comparisons"]):
        table = tabulate_comparison(each)
        parts += [
            f"## {escape_markdown(table.title)}",
            escape_markdown(each.reason),
            table.to_markdown(),
        ]
    show_markdown("rank-curve", "\n\n".join(parts))
    return entry.reference


def set_rank(config: PipelineConfig, rank: Reference) -> PipelineConfig:
    """Return the configuration with the selected rank."""
    entry = open_store(config).find(rank.identity)
    assert entry is not None
    model = config.model.model_copy(update={"rank": entry.summary["rank"]})
    return config.model_copy(update={"model": model})
