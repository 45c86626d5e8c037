"""Standard errors of latent transition models, from the products of the scores of people."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, Parameters
from pmflib.core.blocks import DenseBlock, weigh_rows
from pmflib.core.errors import MemoryPlanError, PmfError, SchemaError
from pmflib.em.block_source import BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.stored_samples import StoredSamples
from pmflib.em.transitions import Transitions, measure_singles
from pmflib.fitting.parameter_errors import (
    FIELDS,
    MAX_ENTRIES,
    ArrayErrors,
    find_intervals,
    reshape_errors,
)
from pmflib.model.information import BATCH_SCORES, merge_information
from pmflib.model.transitions import Chain, ChainLayout, TransitionModel, sum_paths
from pmflib.solvers.numeric.information import (
    OPENED,
    PMFCovariance,
    PMFInformation,
    find_covariance,
)
from pmflib.store.sample_blocks import BlockGroup


def find_transition_errors(
    model: TransitionModel, samples: object
) -> tuple[dict[str, ArrayErrors], PMFCovariance]:
    """Compute errors of initial shares, transitions and emissions: see `pmflib.standard_errors`.

    Parameters
    ----------
    model
        The model.
    samples
        Those it was fitted to, in memory or stored.

    Returns
    -------
    Errors by the name of the array, and the covariance of all distinct probabilities.
    """
    if isinstance(samples, StoredSamples):
        if samples.schema.digest != model.schema.digest:
            raise SchemaError(
                "model and samples have different schemas; give those it was fitted to"
            )
        source: BlockSource = samples
    else:
        codes = DenseBlock(model.schema.encode(samples))
        source = BlocksInMemory.cut(codes, model.schema.offsets, model.n_states)
    layout, rank = model.layout, model.n_states
    parameters = layout.join(model.chain)
    offsets = layout.find_offsets(rank)
    entries, starts = _list_entries(parameters, offsets)
    if entries.size > MAX_ENTRIES:
        raise MemoryPlanError(
            f"the model has {entries.size} probabilities, above {MAX_ENTRIES}; take fewer states or questions, or "
            "equal tables in all waves"
        )
    found = source.map_in_turn(
        _sum_group,
        merge_information,
        layout,
        entries,
        rank,
        result_bytes=8 * entries.size**2,
        name="information",
    )
    if not found.mass.any():
        raise PmfError("samples has no observed cell; give those that the model was fitted to")
    singles = measure_singles(source, layout)
    mean = float(model.origin.get("pseudo_count", 0.0))
    counts = Transitions.make(layout, singles, rank, mean).pseudo_counts
    added = np.concatenate([np.full(rank, counts.state), np.tile(counts.levels, rank)])
    solved = find_covariance(entries, starts, found, added)
    values = np.concatenate([parameters[0], parameters[1].T.ravel()])
    flat = find_intervals(values, *solved.spread(), solved.is_edge, solved.reach)
    initial, tables = (
        reshape_errors(flat, slice(0, rank)),
        reshape_errors(flat, slice(rank, None), (rank, -1)),
    )
    parts = [layout.split((getattr(initial, name), getattr(tables, name).T)) for name in FIELDS]
    return {
        name: ArrayErrors(*(getattr(part, name) for part in parts)) for name in Chain._fields
    }, solved


def _list_entries(parameters: Parameters, offsets: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the initial shares and the tables of each state, open at 0, and the first entry of each PMF."""
    initial, tables = parameters
    own = initial.size + np.arange(initial.size)[:, None] * len(tables) + offsets[:-1]
    starts = np.concatenate([[0], own.ravel()])
    entries = np.maximum(np.concatenate([initial, tables.T.ravel()]), OPENED)
    sizes = np.diff(np.append(starts, entries.size))
    return entries / np.repeat(np.add.reduceat(entries, starts), sizes), starts


def _sum_group(
    group: BlockGroup, layout: ChainLayout, entries: FloatArray, rank: int
) -> PMFInformation:
    """Sum scores of people, expected counts over probabilities, and their products."""
    chain = layout.split((entries[:rank], entries[rank:].reshape(rank, -1).T)).log_emissions()
    outer = np.zeros((entries.size, entries.size))
    gradient, mass = np.zeros((2, entries.size))
    step = max(1, BATCH_SCORES // entries.size)
    for block in iterate_distinct(group):
        for start in range(0, block.n_rows, step):
            part = block.cut(start, min(start + step, block.n_rows))
            weights, n_rows = weigh_rows(part), part.n_rows
            alone = replace(part, weights=None)
            states = np.zeros((n_rows, rank))
            tables = np.zeros((n_rows, entries.size // rank - 1, rank))
            sum_paths(alone, layout, chain, states, tables)
            held = np.hstack([states, tables.transpose(0, 2, 1).reshape(n_rows, -1)])
            scores = held / entries
            weighted = scores * weights[:, None]
            outer += weighted.T @ scores
            gradient += weighted.sum(axis=0)
            mass += weights @ held
    return PMFInformation(outer, None, gradient, mass)
