"""Fit for a target variable: a joint PMF with states per level that predicts the target best on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters
from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import Comparison, compare_candidates
from pmflib.base.defaults import DEFAULT_PSEUDO_COUNT, FIT_TARGET
from pmflib.base.hashing import mix_hashes
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.conditional import ConditionalObjective, raise_conditional
from pmflib.em.latent_classes import ClassState
from pmflib.fits.criteria import measure_fit
from pmflib.fits.fit_result import FitResult
from pmflib.fits.fit_specifications import TOLERATED, FitSpecification
from pmflib.fits.fit_statistics import HeldOutScore
from pmflib.fits.starts import Starts
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.schema import Schema

SHARES = (0.0, 0.9, 0.99)
"""Weights with which the other variables' log-likelihood is subtracted: none, most, nearly all. Subtracting all of it
would leave their distributions undetermined and hardly improve the prediction of the target.
"""

SPOILT = "fitted for its target: answers to other variables are predicted less well than by a model without one"
"""Note on a model in which the other variables had less weight."""

TARGET_WORK = 50_000_000
"""Observed cells times rank up to which candidates are compared on all samples: about a minute in total. With more
samples, a subset is drawn.
"""

CHOSEN_WORK = 1_000_000_000
"""Observed cells times rank up to which the chosen candidate is fitted to all samples: minutes. With more samples, a
subset is drawn, because EM predicts a target much less well, on however many samples.
"""

TARGET_CELLS = 100_000_000
"""Samples times variables up to which stored samples are loaded for this."""

MAX_STEPS = 100
"""Maximum number of steps of a candidate; held-out samples stop most of them after twenty."""

LOOK_EVERY = 5
"""Number of steps between evaluations on held-out samples."""

PATIENCE = 4
"""Number of evaluations without improvement after which a candidate is stopped."""

SETTLED_STEPS = 20
"""Number of steps if nothing can be held out: about as many as most candidates take with held-out samples."""

OWN_PSEUDO_COUNT = 0.1
"""Total pseudo-count of the target's levels in each state; small, because a state belongs to one level."""


class Candidate(NamedTuple):
    """A candidate: the weight with which the other variables' likelihood is subtracted, and the mean pseudo-count."""

    share: float
    pseudo_count: float


FIRST = Candidate(0.9, DEFAULT_PSEUDO_COUNT)
"""First candidate."""


@dataclass(frozen=True, eq=False)
class TargetRun:
    """Run of one candidate.

    Parameters
    ----------
    model
        Prior and factors with the best held-out prediction, or the last ones.
    n_steps
        Number of steps to this model.
    converged
        Whether the objective has converged.
    losses
        Minus the objective after each step, nats per sample.
    held_out
        Mean held-out log-likelihood at the start and at each evaluation, nats; empty without held-out samples.
    """

    model: Parameters
    n_steps: int
    converged: bool
    losses: tuple[float, ...]
    held_out: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """Return the mean held-out log-likelihood of the model, nats."""
        return max(self.held_out)


@dataclass(frozen=True, eq=False)
class TargetSamples:
    """Training samples for a target.

    Parameters
    ----------
    training
        The samples.
    target
        Position of the target.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    offsets
        int64 of shape (n_variables + 1,).
    on_pass
        Called at each evaluation with the name of a candidate and its state.
    """

    training: BlocksInMemory
    target: int
    singles: FloatArray
    offsets: IntArray
    on_pass: Callable[[str, ClassState], None] | None = None

    def run(
        self,
        start: Parameters,
        share: float,
        pseudo_count: float,
        max_steps: int,
        held_out: BlocksInMemory | None = None,
    ) -> TargetRun:
        """Maximise the target's likelihood from a start, with early stopping on held-out samples if given."""
        shape = PseudoCounts.shaped_by(self.singles, self.offsets, pseudo_count)
        own = slice(self.offsets[self.target], self.offsets[self.target + 1])
        level_counts = shape.levels.copy()
        level_counts[own] = OWN_PSEUDO_COUNT * self.singles[own]
        others = self.training.hide(self.target)
        objective = ConditionalObjective(
            self.training, others, self.offsets, share, level_counts, shape.state
        )
        losses: list[float] = []
        scores = [] if held_out is None else [held_out.score([start])]
        best = TargetRun(start, 0, False, ())
        last = start

        def follow(n_steps: int, model: Parameters, value: float) -> bool:
            nonlocal best, last
            last = model
            losses.append(-value)
            if held_out is None or n_steps % LOOK_EVERY:
                return True
            if self.on_pass is not None:
                name = f"target-{share:g}-{pseudo_count:g}"
                self.on_pass(name, ClassState(model, tuple(losses), held_out=tuple(scores)))
            scores.append(held_out.score([model]))
            if scores[-1] > max(scores[:-1]):
                best = replace(best, model=model, n_steps=n_steps)
            return best.n_steps > n_steps - PATIENCE * LOOK_EVERY

        converged = raise_conditional(objective, start, max_steps, follow)
        if held_out is None:
            best = TargetRun(last, len(losses), converged, ())
        return replace(best, converged=converged, losses=tuple(losses), held_out=tuple(scores))


def find_target_specification(
    runs: Mapping[Candidate, TargetRun], held_out: BlocksInMemory
) -> tuple[FitSpecification, TargetRun]:
    """Choose among the candidates with the tolerance `TOLERATED`.

    Parameters
    ----------
    runs
        From `TargetFit.try_candidates`.
    held_out
        Held-out samples, with the target as criterion.

    Returns
    -------
    The specification, and the resulting run.
    """
    tried = sorted(runs)
    scores = [runs[each].score for each in tried]
    best = int(np.argmax(scores))
    gaps = [held_out.compare([runs[tried[best]].model], [runs[each].model]) for each in tried]
    as_good = [
        index
        for index, (gap, error) in enumerate(gaps)
        if index == best or gap <= TOLERATED * error
    ]
    chosen = max(as_good, key=lambda index: (tried[index].pseudo_count, scores[index]))
    # only differences from the best are requested
    compared = compare_candidates(
        "sample",
        [each._asdict() for each in tried],
        scores,
        subtract=lambda _, other: gaps[other],
        chosen=chosen,
    )
    run = runs[tried[chosen]]
    return make_specification(tried[chosen], run.n_steps, scores[chosen], compared), run


def make_specification(
    candidate: Candidate, n_steps: int, score: float, compared: Comparison
) -> FitSpecification:
    """Return the specification of a chosen candidate."""
    return FitSpecification(
        "classes",
        candidate.pseudo_count,
        (("classes", 1),),
        passes=n_steps,
        notes=(compared.reason, *([SPOILT] if candidate.share else [])),
        score=score,
        comparisons=(compared,),
        share=candidate.share,
    )


@dataclass(frozen=True, eq=False)
class TargetFit:
    """A fit for a target.

    Parameters
    ----------
    schema
        Variables.
    target
        Position of the target.
    rank
        Number of latent states of all starts.
    pseudo_counts
        Mean pseudo-counts per level and state; several mean "auto", and are those of `FIT_TARGET`.
    max_passes
        Maximum number of steps, in addition to `MAX_STEPS`.
    on_pass
        Called at each evaluation with the name of a candidate and its state.
    """

    schema: Schema
    target: int
    rank: int
    pseudo_counts: Sequence[float]
    max_passes: int
    on_pass: Callable[[str, ClassState], None] | None = None

    @property
    def max_steps(self) -> int:
        """Return the maximum number of steps."""
        return min(self.max_passes, MAX_STEPS)

    def resolve(self) -> FitSpecification:
        """Return a specification without held-out samples: the joint likelihood, with the target's levels observed."""
        grid = self.pseudo_counts
        pseudo_count = grid[0] if len(grid) == 1 else DEFAULT_PSEUDO_COUNT
        return FitSpecification("classes", float(pseudo_count), passes=SETTLED_STEPS, share=0.0)

    def try_candidates(
        self,
        training: BlocksInMemory,
        held_out: BlocksInMemory,
        starts: Starts,
        near: Candidate = FIRST,
    ) -> dict[Candidate, TargetRun]:
        """Hill-climb over candidates by their held-out score.

        Parameters
        ----------
        training
            Training samples.
        held_out
            Held-out samples, with the target as criterion.
        starts
            Starts from the training samples, the same for all candidates.
        near
            First candidate; if its pseudo-count is not among those to try, the first of them is used.

        Returns
        -------
        The run of every candidate tried, in order.
        """
        samples, start = self._open(training, starts)
        grid = tuple(self.pseudo_counts) if len(self.pseudo_counts) == 1 else FIT_TARGET
        runs: dict[Candidate, TargetRun] = {}

        def score(candidate: Candidate) -> float:
            if candidate not in runs:
                runs[candidate] = samples.run(start, *candidate, self.max_steps, held_out)
            return runs[candidate].score

        at = near if near.pseudo_count in grid else Candidate(near.share, grid[0])
        while True:
            index = grid.index(at.pseudo_count)
            neighbours = [at]
            neighbours += [
                Candidate(at.share, each) for each in grid[max(index - 1, 0) : index + 2]
            ]
            neighbours += [Candidate(share, at.pseudo_count) for share in SHARES]
            best = max(neighbours, key=score)
            if not runs[best].n_steps:
                # if the start is best, its neighbours are equal and say nothing about others
                best = max([at, *(Candidate(*each) for each in product(SHARES, grid))], key=score)
            if best == at:
                return runs
            at = best

    def choose(
        self, block: DenseBlock, held_out: BlocksInMemory, starts: Starts
    ) -> tuple[FitSpecification, FitResult]:
        """Fit with the candidate that is best on held-out samples; large data are compared on a subset.

        Parameters
        ----------
        block
            Training samples.
        held_out, starts
            As for `try_candidates`.
        """
        offsets, rank = self.schema.offsets, self.rank
        training = BlocksInMemory.cut(block, offsets, rank)
        few = draw_samples(block, rank, TARGET_WORK)
        runs = self.try_candidates(BlocksInMemory.cut(few, offsets, rank), held_out, starts)
        specification, result = self.report_best(runs, training, held_out)
        many = draw_samples(block, rank, CHOSEN_WORK)
        if len(many) == len(few):
            return specification, result
        assert specification.share is not None
        candidate = Candidate(specification.share, specification.pseudo_count)
        run = self.try_one(candidate, BlocksInMemory.cut(many, offsets, rank), held_out, starts)
        note = f"compared on {len(few):,} of {len(block):,} samples, fitted to {len(many):,}"
        notes = (*specification.notes, note)
        specification = replace(specification, passes=run.n_steps, score=run.score, notes=notes)
        return specification, self._report(specification, run, training, held_out)

    def try_one(
        self,
        candidate: Candidate,
        training: BlocksInMemory,
        held_out: BlocksInMemory,
        starts: Starts,
    ) -> TargetRun:
        """Run one candidate; samples and starts are as for `try_candidates`."""
        samples, start = self._open(training, starts)
        return samples.run(start, *candidate, self.max_steps, held_out)

    def report_best(
        self,
        runs: Mapping[Candidate, TargetRun],
        training: BlocksInMemory,
        held_out: BlocksInMemory,
    ) -> tuple[FitSpecification, FitResult]:
        """Specification and result of the chosen candidate."""
        specification, run = find_target_specification(runs, held_out)
        name = self.schema.names[self.target]
        note = f"held out: log-likelihood of {name!r} given the other variables"
        specification = replace(specification, notes=(note, *specification.notes))
        return specification, self._report(specification, run, training, held_out)

    def follow(
        self,
        specification: FitSpecification,
        block: DenseBlock,
        starts: Starts,
    ) -> FitResult:
        """Fit samples by a specification, found when a fold of them was held out."""
        assert specification.share is not None
        offsets, rank = self.schema.offsets, self.rank
        many = draw_samples(block, rank, CHOSEN_WORK)
        samples, start = self._open(BlocksInMemory.cut(many, offsets, rank), starts)
        steps = specification.passes or 0
        run = samples.run(start, specification.share, specification.pseudo_count, steps)
        return self._report(specification, run, BlocksInMemory.cut(block, offsets, rank))

    def _open(self, training: BlocksInMemory, starts: Starts) -> tuple[TargetSamples, Parameters]:
        offsets = self.schema.offsets
        samples = TargetSamples(training, self.target, starts.singles, offsets, self.on_pass)
        return samples, starts.make_classes(self.target, self.schema)

    def _report(
        self,
        specification: FitSpecification,
        run: TargetRun,
        training: BlocksInMemory,
        held_out: BlocksInMemory | None = None,
    ) -> FitResult:
        method, share = "classes+conditional", {"conditional_share": specification.share}
        origin = ModelOrigin(method, run.n_steps, specification.pseudo_count, extra=share)
        joint = JointPMF(*run.model, self.schema, origin).sort_states()
        score = None
        if held_out is not None:
            score = HeldOutScore(run.score, held_out.n_samples)
        return FitResult(
            joint,
            run.losses,
            run.held_out[: int(np.argmax(run.held_out)) + 1] if run.held_out else (),
            run.n_steps,
            run.converged,
            method,
            specification.notes,
            comparisons=specification.comparisons,
            training=measure_fit(joint, training),
            held_out_score=score,
            # held-out samples have stopped it, or chosen the number of steps
            stopped_early=not run.converged,
        )


def draw_samples(block: DenseBlock, rank: int, work: int) -> DenseBlock:
    """Draw samples by a hash of their position, so that observed cells times rank are at most about ``work``.

    Parameters
    ----------
    block
        Samples.
    rank, work
        Number of latent states; and the work, above 0.

    Returns
    -------
    The drawn samples in their order, at least one; not copied if all are drawn.
    """
    share = work / max(block.n_observed * rank, 1)
    if share >= 1:
        return block
    n_drawn = max(int(share * len(block)), 1)
    drawn = np.argsort(mix_hashes(np.arange(len(block))), kind="stable")[:n_drawn]
    return block[np.sort(drawn)]
