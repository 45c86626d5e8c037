"""Expectation-maximisation: sufficient statistics of a block, their sums, and the parameter update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias, TypeVar

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, StrataArray, normalise_blocks
from pmflib.base.blocks import Block
from pmflib.base.pseudo_counts import PseudoCounts

P = TypeVar("P")
S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class EMStatistics:
    """Sufficient statistics of some samples under one model.

    Parameters
    ----------
    level_mass
        float64 of shape (n_levels, rank): posterior mass of the samples with each level.
    state_mass
        float64 of shape (rank,): posterior mass of the samples with at least one observed cell.
    log_likelihood
        Log-likelihood of the samples, nats.
    n_rows
        Number of samples, or the sum of their weights.
    """

    level_mass: FloatArray
    state_mass: FloatArray
    log_likelihood: float
    n_rows: float

    @classmethod
    def zero(cls, n_levels: int, rank: int) -> EMStatistics:
        """Return the statistics of no samples, the identity of addition."""
        return cls(np.zeros((n_levels, rank)), np.zeros(rank), 0.0, 0)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.level_mass.nbytes + self.state_mass.nbytes


def merge_each(parts: Sequence[Sequence[EMStatistics]]) -> list[EMStatistics]:
    """Sum the statistics of each model over parts of the samples, in the order of the parts."""
    return [sum_fields(of_model) for of_model in zip(*parts, strict=True)]


def sum_fields(parts: Sequence[S]) -> S:
    """Sum one or more dataclasses of arrays and numbers; the same order gives bitwise equal results."""
    sums: dict[str, object] = {}
    for field in fields(parts[0]):  # type: ignore[arg-type]
        values = [getattr(part, field.name) for part in parts]
        total = np.array(values[0]) if isinstance(values[0], np.ndarray) else values[0]
        for value in values[1:]:
            total += value
        sums[field.name] = total
    return type(parts[0])(**sums)


Evaluate: TypeAlias = Callable[[P], EMStatistics]
"""E-step: maps parameters to the sufficient statistics of all training samples."""

Assessor: TypeAlias = Callable[[P], float]
"""Function that returns the log-likelihood of held-out samples under given parameters, nats per sample."""


def take_logs(prior: FloatArray, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the floored logarithms of a model's parameters, from which block statistics are computed."""
    return np.log(np.maximum(prior, FLOOR)), np.log(np.maximum(factors, FLOOR))


def em_statistics(
    block: Block,
    offsets: IntArray,
    log_prior: FloatArray,
    log_factors: FloatArray,
    strata: StrataArray | None = None,
) -> EMStatistics:
    """Run the E-step on one block.

    Parameters
    ----------
    block
        Valid samples; rows with nothing observed contribute only to the number of rows.
    offsets
        int64 of shape (n_variables + 1,).
    log_prior, log_factors
        As from `take_logs`: float64 of shapes (rank,) and (n_levels, rank).
    strata
        int32 of shape (n_rows,): each sample's row of log_prior, (n_strata, rank), if priors differ between strata.

    Returns
    -------
    Sufficient statistics of the block, bitwise equal for a dense and a sparse block of the same samples.

    References
    ----------
    Ibrahim, Fu (2021), IEEE Trans. Signal Processing, appendix C and equation (33); Dempster, Laird, Rubin (1977).
    """
    from pmflib.model.row_tables import add_block_masses

    level_mass, state_mass = np.zeros_like(log_factors), np.zeros(log_factors.shape[1])
    log_likelihood = 0.0
    if block.n_rows:
        log_likelihood = add_block_masses(
            block, offsets, log_prior, log_factors, level_mass, state_mass, strata
        )
    return EMStatistics(level_mass, state_mass, log_likelihood, block.n_samples)


def m_step(
    statistics: EMStatistics,
    offsets: IntArray,
    pseudo_counts: PseudoCounts,
    prior: FloatArray,
    factors: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Run the M-step: maximise the expected log-likelihood plus the log-density of the pseudo-counts.

    Parameters
    ----------
    statistics
        Sufficient statistics of all training samples.
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts, added to the expected counts.
    prior, factors
        The model under which the statistics were computed; parameters without any mass keep their values.

    Returns
    -------
    Prior (rank,) and factors (n_levels, rank); the rows of each variable sum to 1 per column.
    """
    mass = statistics.level_mass + pseudo_counts.levels[:, None]
    states = statistics.state_mass + pseudo_counts.state
    total = states.sum()
    return (states / total if total > 0 else prior), normalise_blocks(mass, offsets, factors)
