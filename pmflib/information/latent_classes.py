"""Scores, second derivatives, constraints and errors of latent classes, whose parameters are PMFs in each state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, sum_blocks
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.constraints import check_size
from pmflib.base.errors import PmfError
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.information.covariance import (
    LEAST_MASS,
    PMFCovariance,
    PMFInformation,
    find_covariance,
    span_steps,
)
from pmflib.information.model_information import ModelInformation
from pmflib.information.parameter_errors import (
    FAR,
    FIELDS,
    MAX_ENTRIES,
    ArrayErrors,
    ParameterErrors,
    find_intervals,
    name_parameters,
    reshape_errors,
)
from pmflib.information.scores import (
    RowScores,
    StateRows,
    iterate_masses,
    merge_information,
    open_entries,
    read_entries,
    sum_scores,
)
from pmflib.model.mixture import Mixture
from pmflib.store.sample_blocks import BlockGroup

LEAST_ENTRY = 1e-6
"""Probability below which an entry is at its edge and fixed."""
LEAST_HELD = 1.0
"""Minimum expected number of samples with an entry for it to be a free parameter."""


class ClassInformation(ModelInformation):
    """Information on the entries of prior and tables: the PMFs of all states, each of some entries in a row.

    The tables of latent classes are the PMFs of all variables given a state, state after state. Models with other
    tables derive from this class.

    Parameters
    ----------
    model
        Latent classes, or a model with tables.
    """

    has_free_factors = True
    errors_type: ClassVar[type[ParameterErrors]] = ParameterErrors
    """Class of the errors."""
    model: Mixture

    @property
    def n_entries(self) -> int:
        """Number of entries of prior and tables."""
        return self.n_states + self.tables.size

    @cached_property
    def tables(self) -> FloatArray:
        """The PMFs of all states: float64, concatenated."""
        return self.model.factors.T.ravel()

    @cached_property
    def starts(self) -> IntArray:
        """First entry of each PMF, that of the prior first: int64 of shape (n_pmfs,)."""
        own = self.n_states + np.arange(self.n_states)[:, None] * self.model.schema.n_levels
        return np.concatenate([[0], (own + self.model.schema.offsets[:-1]).ravel()])

    @cached_property
    def entries(self) -> FloatArray:
        """Entries of prior and tables, raised to `pmflib.information.covariance.OPENED` if smaller: (n_entries,)."""
        return open_entries(np.concatenate([self.model.prior, self.tables]), self.starts)

    @cached_property
    def states(self) -> IntArray:
        """State of each entry: int64 of shape (n_entries,)."""
        each = np.arange(self.n_states)
        return np.concatenate([each, np.repeat(each, self.model.schema.n_levels)])

    @property
    def has_second_derivatives(self) -> bool:
        """Whether an entry affects the probability of a row only through its own state."""
        return True

    def list_masses(self, codes: IntArray) -> FloatArray:
        """Compute each row's posteriors of the states, and of its observed levels in each: (n_rows, n_entries)."""
        prior, factors = self.entries[: self.n_states], self._opened_factors
        # with so few entries, loading compiled code would take longer than computing the answer
        held = mark_levels(codes, self.model.schema.offsets)
        logs = held @ np.log(factors) + np.log(prior)
        posteriors = np.exp(logs - logs.max(axis=1, keepdims=True))
        posteriors /= posteriors.sum(axis=1, keepdims=True)
        levels = posteriors[:, :, None] * held[:, None, :]
        return np.hstack([posteriors, levels.reshape(len(codes), self.tables.size)])

    @property
    def _opened_factors(self) -> FloatArray:
        return self.entries[self.n_states :].reshape(self.n_states, -1).T

    def iterate_scores(self, blocks: Iterable[Block]) -> Iterator[RowScores]:
        """Return the scores of the rows of blocks of valid samples, in batches."""
        return iterate_masses(blocks, self.model.schema.offsets, self.entries, self.list_masses)

    def sum_information(self, blocks: Iterable[Block]) -> PMFInformation:
        """Sum the information of some blocks of samples.

        Parameters
        ----------
        blocks
            Valid samples, whose rows may have weights; missing cells are summed out.

        Returns
        -------
        Their information. Second derivatives are computed only for models in which an entry affects the probability of
        a row through its own state alone; with edges, missing cells would need the posteriors of pairs of tables.
        """
        add_crossed = self._add_crossed if self.has_second_derivatives else None
        return sum_scores(self.iterate_scores(blocks), self.entries.size, add_crossed)

    def _add_crossed(self, rows: RowScores, crossed: FloatArray) -> None:
        """Add second derivatives for two PMFs of one state, or for a PMF and the prior; within one PMF they are 0."""
        offsets, rank = self.model.schema.offsets, self.n_states
        n_levels, held = int(offsets[-1]), mark_levels(rows.codes, offsets)
        for state in range(rank):
            own = slice(rank + state * n_levels, rank + (state + 1) * n_levels)
            mine = rows.scores[:, own] * rows.weights[:, None]
            pairs = mine.T @ held / self.entries[own]
            np.fill_diagonal(pairs, 0.0)
            crossed[own, own] += pairs
            with_prior = mine.sum(axis=0) / self.entries[state]
            crossed[own, state] += with_prior
            crossed[state, own] += with_prior

    def gather(self, source: BlockSource) -> PMFInformation:
        """Sum the information of samples on prior and tables, in one pass.

        Raises
        ------
        MemoryPlanError
            If prior and tables have more than ``MAX_ENTRIES`` entries.
        """
        hint = "lower the rank, merge levels, or ask questions: answers have errors of their own"
        check_size(self.n_entries, MAX_ENTRIES, "entries of prior and tables", hint)
        return source.map_in_turn(
            _sum_group,
            merge_information,
            self,
            result_bytes=16 * self.n_entries**2,
            name="information",
        )

    def invert(self, found: PMFInformation) -> PMFCovariance:
        """Covariances of prior and tables, from the observed information."""
        pseudo_counts = self.find_pseudo_counts(found.mass)
        return find_covariance(self.entries, self.starts, found, pseudo_counts)

    def find_pseudo_counts(self, mass: FloatArray) -> FloatArray:
        """Find the pseudo-counts of each entry of prior and tables, given the samples expected in each."""
        offsets = self.model.schema.offsets
        mean = self.model.origin.pseudo_count or 0.0
        held = self.sum_levels(mass).sum(axis=1)
        totals = np.repeat(sum_blocks(held, offsets), np.diff(offsets))
        singles = np.where(totals > 0, held / np.where(totals > 0, totals, 1.0), 0.0)
        added = PseudoCounts.shaped_by(singles, offsets, mean)
        return np.concatenate(
            [np.full(self.n_states, added.state), self.spread_levels(added.levels)]
        )

    def sum_levels(self, mass: FloatArray) -> FloatArray:
        """Sum masses of the entries by level and state: float64 of shape (n_levels, rank)."""
        return read_entries(mass, self.n_states)[1]

    def spread_levels(self, levels: FloatArray) -> FloatArray:
        """Pseudo-counts of the tables, from those of the levels."""
        return np.tile(levels, self.n_states)

    def make_arrays(self, solved: PMFCovariance) -> dict[str, ArrayErrors]:
        """Errors of the arrays of the model: of prior and factors."""
        prior, tables = self._split_errors(solved)
        # states come first in tables, and last in factors
        by_state = reshape_errors(tables, slice(None), self.model.factors.shape[::-1])
        fields = (getattr(by_state, name).T for name in FIELDS)
        return {"prior": prior, "factors": ArrayErrors(*fields)}

    def _split_errors(self, solved: PMFCovariance) -> tuple[ArrayErrors, ArrayErrors]:
        """Errors of the prior, and of the tables."""
        values = np.concatenate([self.model.prior, self.tables])
        found = find_intervals(values, *solved.spread(), solved.is_edge, solved.reach)
        parts = slice(0, self.n_states), slice(self.n_states, None)
        prior, tables = (reshape_errors(found, own) for own in parts)
        return prior, tables

    def find_errors(self, source: BlockSource) -> tuple[ParameterErrors, tuple[str, ...]]:
        """Find standard errors of the parameters, and the notes of which to warn."""
        found = self.gather(source)
        if not found.mass.any():
            raise PmfError("samples has no observed cell; pass those that the model was fitted to")
        solved = self.invert(found)
        arrays = self.make_arrays(solved)
        found_by = "products of scores" if found.crossed is None else "observed information"
        notes = cautions = self._write_notes(arrays, solved)
        if n_edges := sum(int(each.is_edge.sum()) for each in arrays.values()):
            notes += (
                f"{n_edges} probabilities are at 0 or 1, and taken as fixed: they have intervals, but no errors",
            )
        errors = self.errors_type(arrays, self.model, found_by, solved.distance, notes)
        return errors, cautions

    def _write_notes(
        self, arrays: Mapping[str, ArrayErrors], solved: PMFCovariance
    ) -> tuple[str, ...]:
        """Notes on undetermined parameters and on whether the model is at a maximum."""
        notes = []
        if unknown := self.name_undetermined(arrays, solved):
            notes.append(f"{unknown}: these have no errors; lower the rank, or add variables")
        if not solved.is_maximum:
            notes.append(
                "the model is no maximum of the likelihood of these samples: errors are of the products of scores; "
                "refine it by fit_em(samples, model, pseudo_count=...) until it has converged"
            )
        elif solved.distance > FAR:
            notes.append(
                f"the parameters are up to {solved.distance:.2g} standard errors from the maximum of the likelihood of "
                "these samples: errors are of the fit there; refine the model by fit_em(samples, model) with a smaller "
                "tol"
            )
        return tuple(notes)

    def note_undetermined(self, found: PMFInformation) -> str:
        """Name the parameters that the samples of some information leave open; "" if there are none."""
        solved = self.invert(found)
        if not solved.loose.shape[1]:
            return ""
        return self.name_undetermined(self.make_arrays(solved), solved)

    def name_undetermined(self, arrays: Mapping[str, ArrayErrors], solved: PMFCovariance) -> str:
        """Name the undetermined parameters and the reason; "" if there are none."""
        unknown = name_parameters(
            self.model.schema, ~arrays["prior"].is_determined, ~arrays["factors"].is_determined
        )
        if not unknown:
            return ""
        n_loose = solved.loose.shape[1]
        why = f"{n_loose} directions leave all probabilities as they are"
        if not n_loose:
            why = "their errors are above .29, that of a guess"
        return f"the samples do not determine {unknown} ({why})"

    def iterate_rows(
        self, blocks: Iterable[DenseBlock], free: list[IntArray]
    ) -> Iterator[StateRows]:
        """Return the rows of blocks in batches."""
        offsets = self.model.schema.offsets
        chances = [self.model.factors[offsets[k] + own].T for k, own in enumerate(free)]
        for rows in self.iterate_scores(blocks):
            mass, posteriors = rows.weights @ rows.masses, rows.masses[:, : self.n_states]
            yield StateRows(rows.codes, rows.weights, posteriors, rows.scores, mass, chances)

    def find_steps(self, outer: FloatArray, mass: FloatArray) -> FloatArray:
        """Compute the steps that keep the sums of PMFs, scaled by the errors of observed states."""
        entries, starts = self.entries, self.starts
        sizes = np.diff(np.append(starts, entries.size))
        samples = np.repeat(np.add.reduceat(mass, starts), sizes)
        scales = np.sqrt(entries / np.maximum(samples, LEAST_MASS))
        is_moving = (entries > LEAST_ENTRY) & (samples >= LEAST_MASS) & np.repeat(sizes > 1, sizes)
        # near an edge, where only pseudo-counts keep a probability above 0, one Newton step does not reach the maximum
        is_moving &= mass >= LEAST_HELD
        return np.asarray(scales[:, None] * span_steps(scales, starts, sizes, is_moving))


def _sum_group(group: BlockGroup, information: ClassInformation) -> PMFInformation:
    return information.sum_information(iterate_distinct(group))


def mark_levels(codes: IntArray, offsets: IntArray) -> FloatArray:
    """Return an indicator matrix of the observed levels: (n_rows, n_levels), 1 if the row has the level, else 0."""
    held = np.zeros((len(codes), int(offsets[-1])))
    rows, variables = np.nonzero(codes >= 0)
    held[rows, offsets[variables] + codes[rows, variables]] = 1.0
    return held
