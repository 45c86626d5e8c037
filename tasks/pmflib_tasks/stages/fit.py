"""Stage: a first model from the training counts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.base.errors import RankWarning
from pmflib.base.hooks import find_offers
from pmflib.counts.pair_counts import load_shape
from pmflib.counts.zarr_tables import StoredTables
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, stage

# 8: states are in order of size; 7: wide tables start from some of their variables
VERSION = 8

MAX_DIAGNOSED_LEVELS = 2000
"""Maximum number of levels for the diagnosis of the counts, whose singular values take some seconds."""


@stage(name="fit", makes="start")
def fit(config: PipelineConfig, counts: Reference, rank: Reference | None = None) -> Reference:
    """Fit a model to the counts of the training folds.

    Parameters
    ----------
    config
        The pipeline.
    counts
        Reference from `count`.
    rank
        Reference from `select`, if it selected the rank, for the lineage of the model.

    Returns
    -------
    Reference to the model that EM starts from.

    Raises
    ------
    RankError
        If the method is spa or symnmf and the counts do not support the rank.
    """
    store = open_store(config)
    folds = config.fold_split

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        # on most nights the manifest has the start
        from pmflib.counts.groups import load_groups
        from pmflib.fits.auto_method import group_folds
        from pmflib.fits.from_counts import fit as fit_counts
        from pmflib.fits.starts import StoredCounts, extend_model

        path = store.locate(counts) / "pairs"
        n_levels = StoredTables(path).table_schema.n_levels
        groups = group_folds(tuple(folds.train), n_levels, config.model.chosen_rank)
        training = load_groups(path, groups)
        with warnings.catch_warnings():
            # the diagnosis reports whether the rank is too large
            warnings.simplefilter("ignore", RankWarning)
            result = fit_counts(
                training, config.model.chosen_rank, method=config.start_choice, rng=config.seed
            )
        known = StoredCounts(path, folds.train)
        extend_model(result.model, known, load_shape(path)[0]).save(folder / "model")
        summary: dict[str, object] = {
            "method": result.method,
            "rank": result.model.rank,
            "notes": list(result.notes),
            "comparisons": [each.to_json() for each in result.comparisons],
        }
        if result.loss_history:
            summary["loss"] = result.loss_history[-1]
        if 1 < training.schema.n_variables and training.schema.n_levels <= MAX_DIAGNOSED_LEVELS:
            diagnoses = find_offers("count_diagnoses").items()
            summary |= {key: find(training, result.model).to_json() for key, find in diagnoses}
        return summary

    report_progress("fit", 0, 1)
    entry = build_artefact(
        store,
        "start",
        inputs={"counts": counts} | ({} if rank is None else {"rank": rank}),
        options={
            "rank": config.model.chosen_rank,
            "method": config.start_choice,
            "train": list(folds.train),
            "seed": config.seed,
        },
        version=VERSION,
        write=write,
    )
    report_progress("fit", 1, 1, f"{entry.summary['method']}, rank {entry.summary['rank']}")
    return entry.reference
