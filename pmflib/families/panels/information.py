"""Scores of latent transition models, and errors of their probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import check_size
from pmflib.base.display.summary import SummaryTable
from pmflib.base.errors import PmfError
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.families.panels.chains import Chain, ChainLayout
from pmflib.families.panels.model import TransitionModel
from pmflib.information.covariance import PMFCovariance, PMFInformation, find_covariance
from pmflib.information.model_information import ModelInformation
from pmflib.information.parameter_errors import (
    FIELDS,
    MAX_ENTRIES,
    ArrayErrors,
    ParameterErrors,
    describe_states,
    find_intervals,
    note_distance,
)
from pmflib.information.scores import (
    iterate_masses,
    merge_information,
    open_entries,
    read_entries,
    sum_scores,
)
from pmflib.store.sample_blocks import BlockGroup


class ChainErrors(ParameterErrors):
    """Errors of the arrays of a transition model: see `pmflib.families.panels.model.TransitionModel`."""

    model: TransitionModel
    headline = "Standard errors of a transition model"
    every_scale: ClassVar[Mapping[str, str]] = {
        "initial": "probabilities",
        "transitions": "probabilities given the state in the wave before",
        "emissions": "probabilities given the state",
    }

    def tabulate(self) -> tuple[SummaryTable, ...]:
        """Initial shares, every distinct transition matrix, and the answers given the state."""
        model = self.model
        rows = describe_states("share in the first wave", self.arrays["initial"], ())
        for wave in range(model.n_waves - 1)[: 1 if model.homogeneous else None]:
            waves = "any wave" if model.homogeneous else f"wave {wave}"
            for state in range(model.n_states):
                name = f"to the next of {waves}, from state {state}"
                rows += describe_states(name, self.arrays["transitions"], (wave, state))
        every, first = range(model.schema.n_variables), model.waves.first_positions.tolist()
        rows += self.describe_levels("emissions", first if model.invariant else every)
        table = SummaryTable(
            "Transitions, and probabilities given the state, with 95 % intervals",
            ("what", ">state", ">probability", ">from", ">to"),
            rows,
            len(rows),
            'errors["transitions"], errors["emissions"]',
        )
        return (table,)


class ChainInformation(ModelInformation):
    """Information on the distinct probabilities of a transition model, in the order of `list_chain`.

    Parameters
    ----------
    model
        From `pmflib.families.fit_transitions`.
    """

    model: TransitionModel

    @property
    def n_states(self) -> int:
        """Number of latent states of a wave."""
        return self.model.n_states

    @property
    def n_entries(self) -> int:
        """Number of distinct probabilities."""
        return list_chain(self.model)[0].size

    def check_design(self) -> None:
        """Refuse all: see `ModelInformation.check_design`."""
        raise PmfError(
            "samples have a design or weights, and model is a transition model, whose errors take samples as "
            "independent, with a weight of 1"
        )

    def find_errors(self, source: BlockSource) -> tuple[ParameterErrors, tuple[str, ...]]:
        """Find standard errors of the parameters, and the notes of which to warn."""
        model = self.model
        solved, (values, _) = find_chain_covariance(model, source), list_chain(model)
        flat = find_intervals(values, *solved.spread(), solved.is_edge, solved.reach)
        entries = [read_entries(getattr(flat, name), model.n_states) for name in FIELDS]
        by_array = zip(*map(model.layout.split, entries), strict=True)
        arrays = {
            name: ArrayErrors(*own) for name, own in zip(Chain._fields, by_array, strict=True)
        }
        counts = {name: (~each.is_determined).sum() for name, each in arrays.items()}
        notes: tuple[str, ...] = ()
        if unknown := [
            f"{count} of {arrays[name].values.size} {name}"
            for name, count in counts.items()
            if count
        ]:
            notes += (
                f"not determined by the samples: {', '.join(unknown)}; these have no errors; take fewer states",
            )
        notes += note_distance(solved.distance, "a smaller tol")
        return ChainErrors(arrays, model, "products of scores", solved.distance, notes), notes


def find_chain_covariance(model: TransitionModel, source: BlockSource) -> PMFCovariance:
    """Find the covariance of the probabilities of a transition model, in the order of `list_chain`.

    Parameters
    ----------
    model
        From `pmflib.families.fit_transitions`.
    source
        The samples it was fitted to.

    Raises
    ------
    MemoryPlanError
        If there are more than ``MAX_ENTRIES`` distinct probabilities.
    PmfError
        If nothing is observed.
    """
    layout, rank = model.layout, model.n_states
    values, starts = list_chain(model)
    hint = "take fewer states or questions, or equal tables in all waves"
    check_size(values.size, MAX_ENTRIES, "probabilities in the model", hint)
    entries = open_entries(values, starts)
    found = source.map_in_turn(
        sum_chain,
        merge_information,
        layout,
        entries,
        rank,
        result_bytes=8 * entries.size**2,
        name="information",
    )
    if not found.mass.any():
        raise PmfError("samples has no observed cell; pass those that the model was fitted to")
    singles = layout.find_singles(read_entries(found.mass, rank)[1].sum(axis=1))
    mean = model.origin.pseudo_count or 0.0
    counts = layout.shape_pseudo_counts(singles, rank, mean)
    added = np.concatenate([np.full(rank, counts.state), np.tile(counts.levels, rank)])
    return find_covariance(entries, starts, found, added)


def list_chain(model: TransitionModel) -> tuple[FloatArray, IntArray]:
    """List the initial shares and the tables of each state of a transition model, and the first entry of each PMF."""
    initial, tables = model.layout.join(model.chain)
    offsets = model.layout.find_offsets(initial.size)[:-1]
    own = initial.size + np.arange(initial.size)[:, None] * len(tables) + offsets
    return np.concatenate([initial, tables.T.ravel()]), np.concatenate([[0], own.ravel()])


def sum_chain(
    group: BlockGroup, layout: ChainLayout, entries: FloatArray, rank: int
) -> PMFInformation:
    """Sum the information of a group of blocks on the entries of `list_chain`."""
    chain = layout.split(read_entries(entries, rank))

    def list_masses(codes: IntArray) -> FloatArray:
        states, tables, _ = layout.count(DenseBlock(codes), chain, n_sums=len(codes))
        return np.hstack([states, tables.transpose(0, 2, 1).reshape(len(codes), -1)])

    blocks = iterate_distinct(group)
    return sum_scores(iterate_masses(blocks, layout.offsets, entries, list_masses), entries.size)
