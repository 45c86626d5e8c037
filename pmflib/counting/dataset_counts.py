"""Counts of a dataset, of all of its samples or from those of an earlier one; those of replicates beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pmflib.cluster.clients import Client
from pmflib.core.errors import SourceError
from pmflib.counting.increments import Increment, count_stored_changes
from pmflib.counting.replicate_counts import ReplicateCounts, count_replicates
from pmflib.counting.stored_pairs import count_stored_pairs
from pmflib.counting.stored_tables import PAIRS, CountsWriter
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import BlockReference, add_sums


def count_dataset(
    client: Client,
    store: Store,
    dataset: Reference,
    schema: Schema,
    n_folds: int,
    increment: Increment | None,
    n_replicates: int,
    folder: Path,
    work: Path,
    on_fold: Callable[[int, int], None],
) -> dict[str, object]:
    """Count the pairs of levels of a dataset, by fold, and for each replicate of its weights.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the counts are the same.
    store, dataset, schema, n_folds
        The dataset, its variables and its folds.
    increment
        Counts to start from, and what comes and goes; None counts all samples.
    n_replicates
        Number of replicate weights of each sample; 0 where there are none.
    folder, work
        Existing folders for the counts, and for checkpoints.
    on_fold
        As for `count_stored_pairs`.

    Returns
    -------
    Plain JSON types: samples in all folds, and what `count_stored_changes` says.

    Raises
    ------
    PmfError
        If weights add up to what cannot be held.
    SourceError
        If all weights of a replicate are 0.
    StoreError
        If the samples or the counts to start from cannot be read.
    """
    facts: dict[str, object]
    if increment is not None:
        facts = count_stored_changes(client, increment, folder / PAIRS, work, on_fold)
    else:
        blocks = {fold: list_dataset_blocks(store, dataset, [fold]) for fold in range(n_folds)}
        writer = CountsWriter(folder / PAIRS, schema, n_folds)
        facts = {"samples": count_stored_pairs(client, blocks, writer, work, on_fold)}
        writer.close()
    if n_replicates:
        every = list_dataset_blocks(store, dataset, None)
        count_replicates(client, every, increment, n_replicates, folder, schema)
        _check_replicates(every, ReplicateCounts(folder))
    return facts


def _check_replicates(blocks: Sequence[BlockReference], counts: ReplicateCounts) -> None:
    """Refuse replicates in which no sample has a weight, by which nothing can be estimated."""
    sums = add_sums(blocks)
    whole = 0 if sums is None else sum(sums.totals)
    empty = [place for place, more in enumerate(counts.totals, 1) if whole and whole + more == 0]
    if empty:
        raise SourceError(
            f"source.replicates: {len(empty)} of {counts.n_replicates} replicates weigh every sample 0, first number "
            f"{empty[0]}, and of such nothing can be estimated; deliver these columns again, or take them out of "
            "source.replicates"
        )
