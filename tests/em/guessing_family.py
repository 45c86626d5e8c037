"""A family of models that the library does not have: variables are independent, but some samples guess at random."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pmflib.base import (
    Arrays,
    Block,
    FloatArray,
    IntArray,
    list_owners,
    normalise_blocks,
    weigh_rows,
)
from pmflib.em import Family, ScoreRows, State
from pmflib.model import sum_fields

Model: TypeAlias = tuple[float, FloatArray]


@dataclass(frozen=True, eq=False)
class Sums:
    """Statistics of some samples: expected answers of those who know, and expected number of those who guess."""

    answers: FloatArray
    guessing: float
    log_likelihood: float
    n_rows: float


@dataclass(frozen=True, eq=False)
class Guessing(Family[Model, Sums]):
    """The family; a model is the share of samples that guess and the PMFs of the others."""

    offsets: IntArray

    def begin(self) -> State[Model]:
        pmfs = normalise_blocks(
            np.arange(1.0, self.offsets[-1] + 1), self.offsets, np.ones(int(self.offsets[-1]))
        )
        return State((0.5, pmfs))

    def add(self, parameters: Model, blocks: Iterable[Block]) -> Sums:
        parts = []
        for block in blocks:
            guessed, known = weigh_both(block, self.offsets, parameters)
            total, weights = np.logaddexp(guessed, known), weigh_rows(block)
            levels = block.to_sparse(self.offsets)
            knowing = np.repeat(weights * np.exp(known - total), np.diff(levels.indptr))
            answers = np.bincount(levels.indices, knowing, int(self.offsets[-1])).astype(float)
            guessing = float(weights @ np.exp(guessed - total))
            parts.append(Sums(answers, guessing, float(weights @ total), block.n_samples))
        return sum_fields(parts)

    def update(self, state: State[Model], sums: Sums) -> State[Model]:
        pmfs = normalise_blocks(sums.answers + 1e-6, self.offsets, state.parameters[1])
        return state.after((sums.guessing / sums.n_rows, pmfs), sums.log_likelihood / sums.n_rows)

    @staticmethod
    def score_under(parameters: Model, offsets: IntArray) -> ScoreRows:
        return lambda block: np.logaddexp(*weigh_both(block, offsets, parameters))

    def pack(self, parameters: Model) -> Arrays:
        return {"share": np.array(parameters[0]), "pmfs": parameters[1]}

    def unpack(self, arrays: Arrays) -> Model:
        return float(arrays["share"]), arrays["pmfs"]


def weigh_both(block: Block, offsets: IntArray, parameters: Model) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the probabilities of every row with guessing and with knowing."""
    share, pmfs = parameters
    levels = block.to_sparse(offsets)
    rows = np.repeat(np.arange(levels.n_rows), np.diff(levels.indptr))
    uniform = np.log(1.0 / np.diff(offsets))[list_owners(offsets)]
    guessed, known = (
        np.bincount(rows, table[levels.indices], levels.n_rows) for table in (uniform, np.log(pmfs))
    )
    return np.log(share) + guessed, np.log1p(-share) + known
