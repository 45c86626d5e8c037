"""A label method that the library does not have: votes count by how often a worker agrees with the labels found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pmflib.apps.crowd import (
    LABEL_LIMITS,
    Aggregation,
    LabelLog,
    LabelsInMemory,
    count_by_posterior,
)
from pmflib.apps.crowd.e_step import LogWeights, VotedBlock, evaluate_blocks
from pmflib.base import Arrays, FloatArray, Limits
from pmflib.em import Family, State, run_em
from pmflib.model import EMStatistics


@dataclass(frozen=True, eq=False)
class WeightedVotes(Family[FloatArray, EMStatistics]):
    """The family; parameters are the agreement of each worker, (n_workers,), in [0, 1]."""

    n_classes: int

    def add(self, parameters: FloatArray, blocks: Iterable[VotedBlock]) -> EMStatistics:
        return evaluate_blocks(blocks, self.weigh(parameters))

    def update(self, state: State[FloatArray], sums: EMStatistics) -> State[FloatArray]:
        given = sums.level_mass.reshape(-1, self.n_classes, self.n_classes)
        right = np.trace(given, axis1=1, axis2=2) + 1.0
        agreement = right / (given.sum(axis=(1, 2)) + 2.0)
        moved = float(np.abs(agreement - state.parameters).max(initial=0.0))
        return state.after(agreement, sums.log_likelihood / max(sums.n_rows, 1), moved=moved)

    def has_converged(self, state: State[FloatArray], limits: Limits) -> bool:
        return state.numbers.get("moved", np.inf) <= limits.tol

    def pack(self, parameters: FloatArray) -> Arrays:
        return {"agreement": parameters}

    def unpack(self, arrays: Arrays) -> FloatArray:
        return arrays["agreement"]

    def weigh(self, agreement: FloatArray) -> LogWeights:
        return LogWeights.from_agreement(agreement, self.n_classes, np.ones(agreement.size))


def weigh_votes(log: LabelLog) -> Aggregation:
    """Find labels by votes that are weighted by agreement: what the entry of the table of methods names."""
    family, source = WeightedVotes(log.n_classes), LabelsInMemory.from_log(log)
    found = run_em(family, source, State(np.full(log.n_workers, 0.5)), limits=LABEL_LIMITS)
    posterior = source.find_posteriors(family.weigh(found.parameters))
    return count_by_posterior(
        log, posterior, "weighted votes", n_passes=found.n_passes, converged=found.converged
    )
