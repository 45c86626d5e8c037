"""Runs of EM of latent classes over codes in one block, for tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pmflib.base import DenseBlock, Limits, PseudoCounts
from pmflib.em import BlocksInMemory, ClassState, LatentClasses, State, run_em


@dataclass(frozen=True, eq=False)
class ScoredClasses(LatentClasses):
    """Latent classes whose held-out log-likelihoods are given by a function."""

    scores: Callable[[Any], float] | None = None

    def score(self, held_out, parameters, meanwhile=None):
        """Call the function, or score the samples."""
        if self.scores is None:
            return super().score(held_out, parameters, meanwhile)
        return self.scores(parameters)


def open_block(codes, offsets):
    """Codes as one block."""
    return BlocksInMemory([DenseBlock(codes)], offsets)


def run_classes(
    codes,
    start,
    offsets,
    *,
    pseudo_counts: PseudoCounts,
    held_out=None,
    scores=None,
    accelerate=False,
    path=None,
    on_pass=None,
    **limits: Any,
) -> ClassState:
    """Run EM from a model, or from a state."""
    family = ScoredClasses(offsets, pseudo_counts, 1, accelerate, scores)
    source = open_block(codes, offsets)
    return run_em(
        family,
        source,
        start if isinstance(start, State) else family.begin([start]),
        held_out=source if scores else None if held_out is None else open_block(held_out, offsets),
        limits=Limits(**limits),
        checkpoint=family.open_checkpoint(path, source),
        on_pass=on_pass,
    )
