"""Fit of a stack: a ladder of models side by side, weights by EM on held-out samples, and one mixture of all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters
from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import PairedDifference
from pmflib.base.defaults import Limits
from pmflib.base.hooks import find_offers
from pmflib.cluster.memory import MemoryPlan
from pmflib.counts.folds import DEFAULT_FOLDS
from pmflib.counts.marginals import count_block_levels, normalise_singles
from pmflib.em.block_source import BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.checkpoint import digest_fit
from pmflib.em.family import State, run_em
from pmflib.em.side_by_side import RunStates, SideBySide
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.criteria import measure_fit
from pmflib.fits.em_fit import TARGET_CELLS, EMFit, OnPass, Passes
from pmflib.fits.fit_result import FitResult
from pmflib.fits.fit_specifications import FitSpecification, Options
from pmflib.fits.fit_statistics import HeldOutScore
from pmflib.fits.kinds import FitKind
from pmflib.fits.stack.ladder import (
    PSEUDO_COUNT,
    BayesRung,
    EffortLimits,
    LadderSizes,
    Rung,
    RungStart,
    TargetRung,
    mix_models,
    offer_classes,
    offer_for_target,
    read_rungs,
)
from pmflib.fits.stack.mixing import FittedRung, Stack, collect_scores
from pmflib.fits.stack.splits import MOST_HELD_OUT, Split, split_samples
from pmflib.fits.starts import SampleCounts
from pmflib.fits.target_pool import TargetPool
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.rungs import READING
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockGroup

MOST_LOADED = 20_000_000
"""Cells of stored samples up to which they are read into memory: the fit is that of the same rows in memory."""
PATIENCE, TOL = 4, 1e-5
"""Limits of the runs of a ladder, unless those of the fit are stricter: its members are averaged, and differences below
are made up for by the weights.
"""
LEAST_GAIN = 1e-6
"""Gain, nats per held-out sample, below which a step gains nothing: differences by rounding are no gains."""
SURE_ERRORS = 2.0
"""Standard errors by which variables must be dependent, so that a single state is left; later steps need one."""
MOST_RESUMED = 3
"""Passes of a stack that is continued: what is new moves its parameters little, and the weights are learnt anew."""
REMEDY = "Choose effort 'quick', merge levels, use fewer threads, or raise cluster.memory_limit."
"""What to do where a ladder does not fit in memory."""
DEFAULT_PASSES = Passes()
"""Default stopping criteria."""
TARGET_STEPS, TARGET_SHARE = 60, 0.9
"""Steps of fits to a target, and weight with which the likelihood of the other variables is subtracted."""
SURE_STEPS = 2
"""Steps that are always tried; the first later step that gains no more than its error ends the ladder."""


class Climbed(NamedTuple):
    """Ladder that was climbed.

    Parameters
    ----------
    rungs
        Rungs that have a weight.
    stack
        Those that are mixed.
    pool
        Those whose PMFs of the target are averaged; None without a target.
    gain
        Gain over a single state per held-out sample, nats.
    notes
        What each step gained.
    """

    rungs: tuple[FittedRung, ...]
    stack: Stack
    pool: Stack | None
    gain: PairedDifference
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StackFit:
    """Settings of the fit of a stack.

    Parameters
    ----------
    schema
        Variables.
    effort
        Limits of the ladder.
    kinds
        Kinds of models that offer rungs besides latent classes.
    has_classes
        Whether averages of latent classes are rungs.
    pseudo_count
        Mean pseudo-count per level and state.
    seed
        Seed of the starts.
    passes
        Stopping criteria.
    on_pass
        Called after each pass with the name of a step and its state; None reports nothing.
    target
        Variable whose held-out log-likelihood given the others is the criterion; None for all variables.
    """

    schema: Schema
    effort: EffortLimits
    kinds: Sequence[FitKind] = ()
    has_classes: bool = True
    pseudo_count: float = PSEUDO_COUNT
    seed: int = 0
    passes: Passes = DEFAULT_PASSES
    on_pass: OnPass | None = None
    target: int | None = None

    def fit(self, samples: DenseBlock | StoredSamples, validation: object | None) -> FitResult:
        """Fit a stack to samples, with weights by held-out samples or by folds of the samples."""
        samples, validation = prepare(samples, validation)
        splits = split_samples(samples, validation, self.schema)
        climbed = self._climb(samples, splits)
        stack, pool = climbed.stack, climbed.pool
        first = {each.rung: each.parameters[0] for each in climbed.rungs if splits}
        trial = self._mix(stack, first) if splits and validation is None else None
        parameters = self._refit(climbed.rungs, samples) if validation is None else first
        n_trials = 0 if validation is not None else len(splits)
        result = self._report(stack, parameters, samples, climbed.notes, n_trials, trial)
        if pool is not None:
            without = None if trial is None else self._pool(pool, first)
            found = replace(self._pool(pool, parameters), trial=without)
            result = replace(result, pool=found)
        elif trial is not None:
            model, (training, unseen) = result.model, splits[0]
            if isinstance(training, DenseBlock) and isinstance(unseen, DenseBlock):
                for learn in find_offers("trials").values():
                    model = learn(model, trial, training, unseen)
            result = replace(result, model=model)
        if result.held_out_score is None or result.model.rank == 1:
            return result
        score = replace(result.held_out_score, gain=climbed.gain.mean, error=climbed.gain.error)
        return replace(result, held_out_score=score)

    def resume(
        self, model: JointPMF, samples: DenseBlock | StoredSamples, validation: object | None
    ) -> FitResult:
        """Continue a stack with a few passes over samples; held-out samples give new weights.

        Without held-out samples, rungs keep their weights: their parameters have seen all samples.
        """
        samples, validation = prepare(samples, validation)
        found = read_rungs(model, self.pseudo_count)
        rungs, known = [each for each, _, _ in found], [each for _, each, _ in found]
        splits = [] if validation is None else split_samples(samples, validation, self.schema)
        if splits:
            fitted, counts = self._fit_step(rungs, splits, known)
            stack = Stack.weigh(fitted, counts)
            parameters = {each.rung: each.parameters[0] for each in stack.rungs}
        else:
            ended = self._run("all", rungs, samples, None, known=known)
            parameters = dict(zip(rungs, join_ended(rungs, ended), strict=True))
            passes = [tuple(each.n_passes for each in states) for states in ended]
            stack = Stack(
                tuple(
                    FittedRung(rung, own, (), np.zeros((0, 1)))
                    for rung, own in zip(rungs, passes, strict=True)
                ),
                np.array([weight for _, _, weight in found]),
                np.zeros(0),
            )
        note = f"continued from a stack of {len(found)} models, with at most {MOST_RESUMED} passes"
        result = self._report(stack, parameters, samples, (note,))
        continued, n_samples = result.model, float(samples.n_samples)
        for inherit in find_offers("continuations").values():
            continued = inherit(continued, model, n_samples) or continued
        return replace(result, model=continued)

    def refit(self, model: JointPMF, samples: DenseBlock | StoredSamples) -> JointPMF:
        """Fit the models of a stack to other samples, from new starts, with the same passes and weights."""
        samples, _ = prepare(samples, None)
        found = read_rungs(model, self.pseudo_count)
        rungs = [each for each, _, _ in found]
        passes = [max(each["passes"], 1) for each in model.origin["stack"]]
        joined = join_ended(rungs, self._run("all", rungs, samples, None, passes))
        models = [
            rung.make(parameters, self.schema, model.origin)
            for rung, parameters in zip(rungs, joined, strict=True)
        ]
        weights = np.array([weight for _, _, weight in found])
        return mix_models(models, weights, self.schema, model.origin)

    def _report(
        self,
        stack: Stack,
        parameters: Mapping[Rung, Any],
        samples: DenseBlock | StoredSamples,
        notes: tuple[str, ...],
        n_trials: int = 0,
        trial: JointPMF | None = None,
    ) -> FitResult:
        """Return the result of a fit, whose model has the parameters of all rungs."""
        model = self._mix(stack, parameters)
        if model.origin.is_stack:
            notes = (READING, *notes)
        score, n_rows = stack.average(stack.scores), round(float(stack.counts.sum()))
        return FitResult(
            model,
            (),
            (score,) if n_rows else (),
            max(max(each.passes) for each in stack.rungs),
            False,
            "stack",
            notes,
            log_likelihoods=(),
            training=measure_fit(model, self._open(samples, model.rank)),
            held_out_score=HeldOutScore(score, n_rows, n_trials) if n_rows else None,
            stopped_early=True,
            trial=trial,
            ladder=stack.list_rungs(),
        )

    def plan(
        self, n_rows: int, n_observed: int, n_threads: int, count_waiting: Callable[[int], int]
    ) -> MemoryPlan:
        """Plan the memory of the step of the ladder that needs most, on a worker and in this process.

        Parameters
        ----------
        n_rows, n_observed
            Numbers of training samples and of their observed cells.
        n_threads
            Threads of a worker.
        count_waiting
            Returns ``n_waiting`` of a pass, as for `pmflib.em.memory.PassMemory.plan`, given the number of states.
        """
        rungs = self._list_rungs(n_rows, n_observed)
        plans: list[MemoryPlan] = []
        for step in sorted({each.step for each in rungs}):
            mine = [each for each in rungs if each.step == step]
            n_waiting = count_waiting(sum(each.n_states for each in mine))
            worker, client = Counter[str](), Counter[str]()
            for rung in mine:
                found = rung.plan(self.schema.offsets, n_threads, n_waiting)
                worker.update(found.parts)
                client.update(found.client_parts)
            plans.append(MemoryPlan("EM of a stack", dict(worker), REMEDY, dict(client)))
        plan = reduce(MemoryPlan.take_larger, plans)
        n_cells = n_rows * self.schema.n_variables
        if n_cells > MOST_LOADED:
            return plan
        kept = {"samples": 2 * n_cells * self.schema.code_dtype.itemsize}
        return MemoryPlan(plan.stage, {}, plan.remedy, plan.parts | plan.client_parts | kept)

    def _climb(self, samples: DenseBlock | StoredSamples, splits: Sequence[Split]) -> Climbed:
        """Fit step after step until one gains no more than its error."""
        training = splits[0].training if splits else samples
        rungs = self._list_rungs(training.n_rows, training.n_observed)
        steps = sorted({each.step for each in rungs})
        if not splits:
            # with a target, naive Bayes comes before fits to it
            simple = [each for each in rungs if isinstance(each, BayesRung)] or rungs
            alone = FittedRung(simple[0], (1,), (), np.zeros((0, 1)))
            given = "" if self.target is None else " given the target"
            note = f"variables are taken as independent{given}: {samples.n_rows} samples are too few to hold any out"
            stack = Stack((alone,), np.ones(1), np.zeros(0))
            return Climbed((alone,), stack, None, PairedDifference(0.0, 0.0), (note,))
        best: Stack | None = None
        tried: list[FittedRung] = []
        notes: list[str] = []
        pools = self.target is not None
        for step in steps:
            fitted_step, counts = self._fit_step([x for x in rungs if x.step == step], splits)
            known = () if best is None else best.rungs
            stack = Stack.weigh((*known, *fitted_step), counts, pools=pools)
            if best is None:
                first = best = stack
                tried += fitted_step
                continue
            gain = stack.subtract(best)
            names = f"step {step}, {fitted_step[0].rung.name}"
            if len(fitted_step) > 1:
                names += f" to {fitted_step[-1].rung.name}"
            text = f"{names}: {gain.mean:.4f} +- {gain.error:.4f} nats per held-out sample"
            is_one = sum(each.rung.n_states for each in best.rungs) == 1
            least = (SURE_ERRORS if is_one and step >= SURE_STEPS else 1.0) * gain.error
            if gain.mean > max(least, LEAST_GAIN):
                best = stack
                tried += fitted_step
                notes.append(f"{text} gained")
                continue
            notes.append(f"{text} gained, no more than the error; left out")
            if step >= SURE_STEPS:
                break
        assert best is not None
        gain = best.subtract(first)
        if not pools:
            return Climbed(best.rungs, best, None, gain, tuple(notes))
        # fits to the target say nothing of the other variables
        joint = [each for each in tried if not isinstance(each.rung, TargetRung)]
        stack = Stack.weigh(joint, counts)
        weighed = {each.rung: each for each in (*best.rungs, *stack.rungs)}
        return Climbed(tuple(weighed.values()), stack, best, gain, tuple(notes))

    def _list_rungs(self, n_rows: int, n_observed: int) -> list[Rung]:
        """Return the rungs for so many training samples and observed cells, by step."""
        sizes = LadderSizes(self.schema.offsets, n_rows, n_observed, self.effort)
        rungs = offer_classes(sizes, self.pseudo_count)
        if not self.has_classes:
            rungs = rungs[:1]
        if self.target is not None:
            rungs += offer_for_target(self.schema[self.target].cardinality, self.pseudo_count)
        for kind in self.kinds:
            if kind.offer is not None:
                rungs += kind.offer(sizes, self.pseudo_count)
        return sorted(rungs, key=lambda each: each.step)

    def _fit_step(
        self, rungs: Sequence[Rung], splits: Sequence[Split], known: Sequence[Any] = ()
    ) -> tuple[list[FittedRung], FloatArray]:
        """Fit the rungs of a step side by side to each split; returns them, and counts of held-out rows.

        Folds have a common number of passes, that with the best mean score: each with its own best would be scored by
        the rows that chose it.
        """
        n_states = sum(each.n_states for each in rungs)
        held_out = [self._open(each.held_out, n_states, self.target) for each in splits]
        names = [f"step-{rungs[0].step}-{k}" for k in range(len(splits))]
        found = [
            self._run(name, rungs, split.training, judges, known=known)
            for name, split, judges in zip(names, splits, held_out, strict=True)
        ]
        # by rung, then by run
        passes = [
            tuple(choose_passes(turns) for turns in zip(*turned, strict=True))
            for turned in zip(*found, strict=True)
        ]
        if len(splits) > 1:
            again = [k for k, rung in enumerate(rungs) if not rung.is_complete]
            flat = [each for k in again for each in passes[k]]
            for number, (name, split) in enumerate(zip(names, splits, strict=True)):
                repeated = [rungs[k] for k in again]
                ended = self._run(f"{name}-again", repeated, split.training, None, flat)
                for k, states in zip(again, ended, strict=True):
                    found[number][k] = states
        joined = [
            [
                rung.join([find_best(each) for each in states])
                for rung, states in zip(rungs, runs, strict=True)
            ]
            for runs in found
        ]
        parts = [
            judges.map_blocks(
                collect_scores,
                np.concatenate,
                self.schema.offsets,
                [(rung.score_under, each) for rung, each in zip(rungs, parameters, strict=True)],
                self.target,
            )
            for judges, parameters in zip(held_out, joined, strict=True)
        ]
        whole = np.concatenate(parts)
        fitted = [
            FittedRung(rung, own, tuple(each[k] for each in joined), whole[:, 1 + k])
            for k, (rung, own) in enumerate(zip(rungs, passes, strict=True))
        ]
        return fitted, whole[:, 0, 0]

    def _refit(
        self, fitted: Sequence[FittedRung], samples: DenseBlock | StoredSamples
    ) -> dict[Rung, Any]:
        """Fit rungs to all samples, with the passes that were best without the held-out ones."""
        rungs = [each.rung for each in fitted]
        passes = [n for each in fitted for n in each.passes]
        ended = self._run("all", rungs, samples, None, passes)
        return dict(zip(rungs, join_ended(rungs, ended), strict=True))

    def _run(
        self,
        name: str,
        rungs: Sequence[Rung],
        samples: DenseBlock | StoredSamples,
        held_out: BlockSource | None,
        passes: Sequence[int] = (),
        known: Sequence[Any] = (),
    ) -> list[RunStates]:
        """Run rungs side by side, from known parameters if there are any; return the states of the runs of each."""
        offsets = self.schema.offsets
        source = self._open(samples, sum(each.n_states for each in rungs))
        source.assign()
        seen = source.map_blocks(count_levels, sum_tables, offsets, name="levels")
        singles = normalise_singles(seen, offsets)
        bayes, targets = partial(self._read_bayes, samples), partial(self._fit_target, samples)
        start = RungStart(singles, offsets, self.seed, bayes, targets)
        most = self.passes.max_passes
        if known:
            most = min(most, MOST_RESUMED)
            pairs = zip(rungs, known, strict=True)
            begun = [rung.resume(parameters, start) for rung, parameters in pairs]
        else:
            begun = [each.begin(start) for each in rungs]
        own = Limits(most, max(self.passes.tol, TOL), min(self.passes.patience, PATIENCE))
        limits = [
            own._replace(max_passes=0) if rung.is_complete else own
            for rung, runs in zip(rungs, begun, strict=True)
            for _ in runs
        ]
        if passes:
            limits = [
                each._replace(max_passes=min(n, each.max_passes), tol=0.0)
                for each, n in zip(limits, passes, strict=True)
            ]
        flat = [each for runs in begun for each in runs]
        family = SideBySide(offsets, [each for each, _ in flat], limits, held_out)
        path = None if self.passes.checkpoint is None else self.passes.checkpoint / f"{name}.npz"
        of_held_out = "" if held_out is None else held_out.digest()
        begins = family.pack(tuple(each for _, each in flat)).values() if known else ()
        names = [each.name for each in rungs]
        inputs = self._digest(), names, of_held_out, singles, passes, *begins
        report = self.on_pass
        state = run_em(
            family,
            source,
            lambda: family.begin([each for _, each in flat]),
            limits=Limits(max((each.max_passes for each in limits), default=0), 0.0, 1),
            checkpoint=family.open_checkpoint(path, source, *inputs),
            on_pass=None if report is None else lambda state: report(name, state),
        )
        ended: Iterator[State[Any]] = iter(state.parameters)
        return [tuple(next(ended) for _ in runs) for runs in begun]

    def _read_bayes(self, samples: DenseBlock | StoredSamples) -> Parameters:
        """Return naive Bayes of the samples for the target."""
        assert self.target is not None
        block = samples if isinstance(samples, DenseBlock) else samples.read_some(MOST_HELD_OUT)
        bayes = SampleCounts(block, self.schema, DEFAULT_FOLDS).read_naive_bayes(self.target)
        return bayes.prior, bayes.factors

    def _fit_target(
        self, samples: DenseBlock | StoredSamples, rank: int, pseudo_count: float
    ) -> Parameters:
        """Return states fitted to predict the target, with as many steps as most such fits take."""
        n_rows = TARGET_CELLS // self.schema.n_variables
        block = samples if isinstance(samples, DenseBlock) else samples.read_some(n_rows)
        options = Options.make("auto", pseudo_count, 1, rank)
        fit = EMFit(self.schema, rank, options, self.seed, Passes(), self.target)
        specification = FitSpecification(
            "classes", pseudo_count, passes=TARGET_STEPS, share=TARGET_SHARE
        )
        starts = fit.make_starts(fit.count(block))
        model = fit.for_target.follow(specification, block, starts).model
        return model.prior, model.factors

    def _open(
        self, samples: DenseBlock | StoredSamples, rank: int, target: int | None = None
    ) -> BlockSource:
        """Return samples as blocks for models of a rank."""
        if isinstance(samples, StoredSamples):
            return samples.with_target(target)
        return BlocksInMemory.cut(samples, self.schema.offsets, rank, target)

    def _mix(self, stack: Stack, parameters: Mapping[Rung, Any]) -> JointPMF:
        return stack.mix(parameters, self.schema, self._make_origin(stack))

    def _pool(self, pool: Stack, parameters: Mapping[Rung, Any]) -> TargetPool:
        assert self.target is not None
        return pool.pool(parameters, self.schema, self._make_origin(pool), self.target)

    def _make_origin(self, stack: Stack) -> ModelOrigin:
        """Return how the model was fitted; a mixture of several models is final."""
        rungs = stack.list_rungs()
        passes = max(each.passes for each in rungs)
        origin = ModelOrigin("stack", passes, self.pseudo_count)
        if sum(each.members for each in rungs) > 1:
            origin = origin.add(final=True)
        return origin.add(stack=[each.to_json() for each in rungs])

    def _digest(self) -> str:
        """Compute the SHA-256 digest of the options that states depend on."""
        parts = [self.schema.digest, self.effort, self.pseudo_count, self.seed, self.target]
        return digest_fit(json.dumps(parts))


def is_loaded(samples: DenseBlock | StoredSamples) -> TypeGuard[StoredSamples]:
    """Whether samples are stored, and so few that they are fitted in memory."""
    return (
        isinstance(samples, StoredSamples)
        and samples.n_rows * samples.schema.n_variables <= MOST_LOADED
    )


def prepare(
    samples: DenseBlock | StoredSamples, validation: object | None
) -> tuple[DenseBlock | StoredSamples, object | None]:
    """Read few stored samples into memory, and take no held-out samples for none given."""
    if isinstance(validation, StoredSamples) and not validation.n_rows:
        validation = None
    return (samples.read_block() if is_loaded(samples) else samples), validation


def join_ended(rungs: Sequence[Rung], ended: Sequence[RunStates]) -> list[Any]:
    """Return the joined parameters of rungs after their last passes."""
    return [
        rung.join([each.parameters for each in states])
        for rung, states in zip(rungs, ended, strict=True)
    ]


def choose_passes(turns: Sequence[State[Any]]) -> int:
    """Return the number of passes, at least 1, with the best mean held-out score of runs on several folds.

    A run that ended before keeps its last score.
    """
    if len(turns) == 1:
        return max(1, turns[0].best_pass)
    most = max(each.n_passes for each in turns)
    curves = [[each.held_out[min(n, each.n_passes)] for n in range(1, most + 1)] for each in turns]
    return 1 + int(np.argmax(np.mean(curves, axis=0))) if most else 1


def find_best(state: State[Any]) -> Any:
    """Return the parameters with the best held-out log-likelihood."""
    return state.parameters if state.best is None else state.best


def count_levels(group: BlockGroup, offsets: IntArray) -> FloatArray:
    """Count the samples of a group with each level: float64 of shape (n_levels,)."""
    total = np.zeros(int(offsets[-1]))
    for block in iterate_distinct(group):
        codes = DenseBlock(block.to_codes(offsets), block.weights)
        total += count_block_levels(codes, offsets)
    return total


def sum_tables(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum arrays, at least one, in the given order."""
    return np.asarray(sum(parts))
