"""Fits of latent transition models to panel data, in memory or stored."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from pmflib.cluster.clients import find_memory
from pmflib.core.arrays import FloatArray, check_row_order, check_whole, name_type
from pmflib.core.blocks import DenseBlock
from pmflib.core.comparison import Comparison, compare_candidates
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, Limits
from pmflib.core.errors import PmfError, SchemaError
from pmflib.core.survey_design import weigh_samples
from pmflib.display.progress import report_step, reports_progress
from pmflib.display.summary import Summarised, Summary, decimal, tabulate_comparison
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.family import run_em
from pmflib.em.latent_classes import ClassState
from pmflib.em.memory import plan_em
from pmflib.em.stored_samples import StoredSamples
from pmflib.em.transitions import Transitions, measure_singles
from pmflib.fitting.fit_result import STILL
from pmflib.fitting.fit_statistics import Criteria, HeldOutScore
from pmflib.model.statistics import EMStatistics, m_step, take_logs
from pmflib.model.transitions import ChainLayout, TransitionModel
from pmflib.schema import Schema
from pmflib.schema.waves import WaveNames, Waves, infer_schema
from pmflib.solvers import check_rank

MAX_PASSES, TOL = 1000, 1e-8
"""Limit of passes, and the share of the objective that the last passes may gain where EM ends."""
N_STARTS, START_PASSES = 10, 30
"""Number of random starts, and passes of each before the best of them goes on."""
STATES = range(1, 9)
"""Numbers of states that are compared by default, in this order while held-out people gain."""
PATIENCE = 2
"""Number of consecutive numbers of states without a gain after which the comparison ends."""
N_FOLDS = 5
"""Folds of people, one of which is held out to choose the number of states."""
MOST_LOG_CELLS = 700.0
"""Logarithm of the number of cells above which the number is infinite."""


@dataclass(frozen=True, eq=False)
class TransitionFit(Summarised):
    """A fitted transition model and the history of its fit.

    Parameters
    ----------
    model
        The model; states are sorted by their mean share over waves.
    training
        Likelihood and information criteria of the training samples; the entropy is that of the paths of states.
    loss_history
        Objective before each pass of the best start, nats per sample, non-increasing.
    converged
        Whether EM converged and another pass changes no probability by more than
        `pmflib.fitting.fit_result.STILL`.
    last_change
        Largest change of a probability in one more pass.
    starts
        Log-likelihood of the best model of each start, nats per sample, after the first passes.
    held_out_score
        Likelihood of the held-out samples; None if there are none.
    comparison
        Comparison of numbers of states; None if the number was given.
    """

    model: TransitionModel
    training: Criteria
    loss_history: tuple[float, ...]
    converged: bool
    last_change: float
    starts: tuple[float, ...]
    held_out_score: HeldOutScore | None = None
    comparison: Comparison | None = None

    def __repr__(self) -> str:
        """One-line representation."""
        ending = "converged" if self.converged else "not converged"
        per_row = f"{self.training.per_row:.6g} nats per training row"
        return (
            f"TransitionFit({self.model!r}, {len(self.loss_history)} passes, {ending}, {per_row})"
        )

    def summary(self) -> Summary:
        """Summary of the model, with likelihood, criteria and convergence."""
        of_model, settled = self.model.summary(), "yes" if self.converged else "no"
        settled += (
            f", after {len(self.loss_history)} passes; one more changes probabilities by at most "
        )
        facts = [
            *of_model.facts,
            ("converged", settled + decimal(self.last_change, 2)),
            ("log-likelihood", self.training.describe()),
        ]
        if self.held_out_score is not None:
            facts.append(("held out", self.held_out_score.describe()))
        tables = [*of_model.tables, self.training.tabulate()]
        notes = []
        if self.comparison is not None:
            notes.append(self.comparison.reason)
            tables.append(tabulate_comparison(self.comparison, folded=True))
        return Summary(of_model.headline, tuple(facts), tuple(notes), tuple(tables))


@reports_progress
def fit_transitions(
    samples: object,
    n_states: int | Literal["auto"],
    *,
    waves: int | WaveNames,
    schema: Schema | None = None,
    homogeneous: bool = True,
    invariant: bool = True,
    validation: object | None = None,
    pseudo_count: float = DEFAULT_PSEUDO_COUNT,
    n_starts: int = N_STARTS,
    max_passes: int = MAX_PASSES,
    tol: float = TOL,
    seed: int = 0,
    checkpoint: Path | None = None,
    weight: object | None = None,
) -> TransitionFit:
    """Fit a latent transition model to panel data: people are in a state in every wave, and move between states.

    Samples are wide: a row per person, and a column for each question and wave, which
    `pmflib.spread_waves` makes of a table with a row per person and wave. Answers and whole waves may be missing.

    Parameters
    ----------
    samples
        A table in memory, codes of shape (n_rows, n_variables), -1 missing, or `StoredSamples`.
    n_states
        Number of latent states, at least 1. "auto" compares numbers by the likelihood of held-out people, a fifth of
        the samples or ``validation``, and takes the smallest within one standard error of the best.
    waves
        Names of the columns of each wave, in the same order in all, None where a question was not asked; or the number
        of waves, if the variables are in the order of the waves.
    schema
        Variables; by default those of stored samples, or inferred from the columns of the waves, with the same levels
        of a question in all of them.
    homogeneous
        Whether transitions are equal between all waves; otherwise there is a matrix for each step.
    invariant
        Whether a question has the same PMFs given the state in all waves. Otherwise states may change their meaning.
    validation
        Held-out samples.
    pseudo_count
        Mean pseudo-count per level and state, at least 0, also of transitions; 0 gives maximum likelihood.
    n_starts
        Number of random starts, at least 1, the best of which goes on after ``START_PASSES`` passes.
    max_passes
        Limit of passes, at least 1.
    tol
        Share of the objective that the last passes may gain where EM ends, at least 0.
    seed
        Seed of the starts.
    checkpoint
        Folder for the state after each pass; an interrupted fit resumes from it with equal bits.
    weight
        Weights of samples in memory, as for `pmflib.fit_em`.

    Returns
    -------
    The model and the history of its fit. Equal arguments give equal bits for any number of workers.

    Raises
    ------
    PmfError
        If there are no samples, an option is out of range, the checkpoint is of another fit, or the number of states is
        to be chosen by stored samples without ``validation``.
    SchemaError
        If samples do not fit the schema, or the waves do not.

    References
    ----------
    Collins, Lanza (2010), Latent Class and Latent Transition Analysis, chapters 7 and 8; Bartolucci, Farcomeni, Pennoni
    (2013), Latent Markov Models for Longitudinal Data, chapter 3.
    """
    if n_states != "auto":
        check_rank(n_states)
    for name, number in (("n_starts", n_starts), ("max_passes", max_passes)):
        check_whole(name, number)
        if number < 1:
            raise PmfError(f"{name} is {number}; give at least 1")
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, samples.schema.weight_decimals)
        schema = samples.schema
    schema = infer_schema(samples, waves) if schema is None else schema
    if not isinstance(schema, Schema):
        raise SchemaError(f"schema is {name_type(schema)}; give a pmflib.Schema")
    found = Waves.find(schema, waves)
    limits = Limits(max_passes, tol)
    limits.check()
    options = _Options(schema, found, homogeneous, invariant, pseudo_count, n_starts, limits, seed)
    check_row_order(samples, weight=weight)
    training, block = options.open(samples, weight)
    if not training.n_samples:
        raise PmfError("samples has no rows; a fit needs at least one")
    held_out = None if validation is None else options.open(validation)[0]
    if n_states != "auto":
        return options.fit(training, int(n_states), held_out, checkpoint)
    if held_out is not None:
        return options.choose(training, held_out, checkpoint)
    if block is None:
        raise PmfError(
            'n_states is "auto" and samples are stored; give validation, the samples of another fold, to choose by'
        )
    is_held_out = block.assign_folds(N_FOLDS) == 0
    if is_held_out.all() or not is_held_out.any():
        raise PmfError(f'n_states is "auto" and there are {len(block)} samples; give a number')
    parts = [options.cut(block[rows]) for rows in (~is_held_out, is_held_out)]
    chosen = options.choose(
        parts[0], parts[1], None if checkpoint is None else checkpoint / "choice"
    )
    whole = options.fit(training, chosen.model.n_states, None, checkpoint)
    score = chosen.held_out_score
    score = None if score is None else replace(score, n_trials=1)
    return replace(whole, held_out_score=score, comparison=chosen.comparison)


@dataclass(frozen=True, eq=False)
class _Options:
    """Options of a fit, of any number of states."""

    schema: Schema
    waves: Waves
    homogeneous: bool
    invariant: bool
    pseudo_count: float
    n_starts: int
    limits: Limits
    seed: int

    @property
    def layout(self) -> ChainLayout:
        """Tables of the models."""
        return ChainLayout.make(
            self.schema, self.waves, homogeneous=self.homogeneous, invariant=self.invariant
        )

    def cut(self, block: DenseBlock) -> BlocksInMemory:
        """Group samples into blocks, for the largest number of states that is compared."""
        return BlocksInMemory.cut(block, self.schema.offsets, STATES[-1])

    def open(
        self, samples: object, weight: object | None = None
    ) -> tuple[BlockSource, DenseBlock | None]:
        """Open samples as blocks, with those in memory as one."""
        if isinstance(samples, StoredSamples):
            if samples.schema.digest != self.schema.digest:
                raise SchemaError("samples and validation have different schemas; give the same")
            return samples, None
        codes = DenseBlock(self.schema.encode(samples))
        block = weigh_samples(codes, weight, self.schema.weight_decimals)
        return self.cut(block), block

    def choose(
        self, training: BlockSource, held_out: BlockSource, checkpoint: Path | None
    ) -> TransitionFit:
        """Fit numbers of states, and choose one by held-out people."""
        fits: list[TransitionFit] = []
        for n_states in STATES:
            folder = None if checkpoint is None else checkpoint / f"{n_states}"
            fits.append(self.fit(training, n_states, held_out, folder))
            scores = [fit.held_out_score.per_row for fit in fits if fit.held_out_score]
            if len(scores) - 1 - int(np.argmax(scores)) >= PATIENCE:
                break
        family = Transitions.make(self.layout, np.ones(int(self.layout.base_offsets[-1])), 1)
        models = [self.layout.join(fit.model.chain) for fit in fits]
        comparison = compare_candidates(
            "sample",
            [{"n_states": fit.model.n_states} for fit in fits],
            scores,
            subtract=lambda a, b: held_out.compare([models[a]], [models[b]], family.score_under),
            rule="least",
        )
        return replace(fits[comparison.points.index(comparison.chosen)], comparison=comparison)

    def fit(
        self,
        training: BlockSource,
        n_states: int,
        held_out: BlockSource | None,
        checkpoint: Path | None,
    ) -> TransitionFit:
        """Fit models of some number of states from several starts, and go on with the best."""
        singles = measure_singles(training, self.layout)
        family = Transitions.make(self.layout, singles, n_states, self.pseudo_count)
        if isinstance(training, StoredSamples):
            plan = partial(plan_em, int(family.offsets[-1]), n_states)
            find_memory(training.client).check(plan)
        states = [
            self._run(family, training, singles, (n_states, k), START_PASSES, checkpoint)
            for k in range(self.n_starts if n_states > 1 else 1)
        ]
        best = min(range(len(states)), key=lambda k: states[k].loss_history[-1])
        state = self._run(
            family,
            training,
            singles,
            (n_states, best),
            self.limits.max_passes,
            checkpoint,
            states[best],
        )
        statistics = family.start(training, state)()
        updated = m_step(statistics, family.offsets, family.pseudo_counts, *state.parameters)
        changes = zip(updated, state.parameters, strict=True)
        change = max(float(np.abs(new - old).max()) for new, old in changes)
        origin = {
            "method": "transitions",
            "pseudo_count": self.pseudo_count,
            "passes": state.n_passes,
            "starts": len(states),
        }
        chain = self.layout.split(state.parameters)
        model = TransitionModel(
            *chain, self.schema, self.waves, self.homogeneous, self.invariant, origin
        )
        score = None
        if held_out is not None and held_out.n_samples:
            per_row = family.score(held_out, state.parameters)
            score = HeldOutScore(per_row, held_out.n_samples)
        return TransitionFit(
            model.sort_states(),
            _measure(model, replace(family, n_least=model.n_waves).start(training, state)(), state),
            state.loss_history,
            state.converged and change <= STILL,
            change,
            tuple(each.log_likelihoods[-1] for each in states),
            score,
        )

    def _run(
        self,
        family: Transitions,
        training: BlockSource,
        singles: FloatArray,
        place: tuple[int, int],
        n_passes: int,
        checkpoint: Path | None,
        state: ClassState | None = None,
    ) -> ClassState:
        """Run EM of one start up to a number of passes, from its state before if there is one."""
        n_states, number = place
        name = f"start-{number}" if state is None else "best"
        if state is None:
            rng = np.random.default_rng([self.seed, n_states, number])
            state = family.draw(singles, n_states, rng)
        limits = self.limits._replace(max_passes=min(n_passes, self.limits.max_passes))
        path = None if checkpoint is None else checkpoint / f"{name}.npz"
        inputs = self.schema.digest, self.waves.positions, self.homogeneous, self.invariant

        def report(now: ClassState) -> None:
            text = f"{n_states} states, start {number + 1}, pass {now.n_passes}"
            report_step(now.n_passes, self.limits.max_passes, text)

        return run_em(
            family,
            training,
            replace(state, converged=False),
            limits=limits,
            checkpoint=family.open_checkpoint(
                path, training, *inputs, self.pseudo_count, self.seed, place
            ),
            on_pass=report,
        )


def _measure(model: TransitionModel, statistics: EMStatistics, state: ClassState) -> Criteria:
    """Compute the likelihood and criteria; the entropy of paths is linear in the expected counts."""
    log_prior, log_tables = take_logs(*state.parameters)
    joint = np.vdot(statistics.level_mass, log_tables) + statistics.state_mass @ log_prior
    n_rows = float(statistics.state_mass.sum())
    log_cells = float(np.log(model.schema.cardinalities).sum())
    return Criteria(
        log_likelihood=statistics.log_likelihood,
        entropy=max(0.0, statistics.log_likelihood - float(joint)),
        n_rows=round(n_rows),
        n_empty=round(statistics.n_rows) - round(n_rows),
        # of paths, whose entropy this is
        n_states=model.n_states**model.n_waves,
        n_parameters=model.n_parameters,
        n_cells=round(math.exp(log_cells)) if log_cells < MOST_LOG_CELLS else math.inf,
    )
