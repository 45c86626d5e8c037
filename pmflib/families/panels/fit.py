"""Fits of latent transition models to panel data, in memory or stored: the family of models for EM, and its runs.

The expected counts of a chain are those of latent classes: of initial states, and of levels given states, where the
levels of a transition matrix are the next states. Only the pass over samples differs, which runs backward and forward
along the waves of each person.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.comparison import Comparison, compare_candidates
from pmflib.base.constraints import at_least, check, check_type
from pmflib.base.defaults import DEFAULT_PSEUDO_COUNT, Limits
from pmflib.base.display.progress import report_step, reports_progress
from pmflib.base.display.summary import Summarised, Summary, decimal, tabulate_comparison
from pmflib.base.errors import PmfError, RankError, SchemaError
from pmflib.cluster.clients import find_memory
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.blocks import ScoreRows
from pmflib.em.family import Family, run_em
from pmflib.em.latent_classes import ClassState, LatentClasses, evaluate_models
from pmflib.em.memory import plan_em
from pmflib.em.stored_samples import StoredSamples, open_source, read_samples
from pmflib.families.panels.chains import ChainLayout
from pmflib.families.panels.model import TransitionModel
from pmflib.families.panels.waves import WaveNames, Waves, infer_schema
from pmflib.fits.criteria import make_criteria, sum_statistics
from pmflib.fits.fit_result import STILL
from pmflib.fits.fit_statistics import Criteria, HeldOutScore
from pmflib.model.origin import ModelOrigin
from pmflib.model.sufficient_statistics import EMStatistics, m_step, sum_fields
from pmflib.papers.pair_matrix import start_random
from pmflib.schema import Schema

STAYING = (0.2, 0.9)
"""Range of the share of people who keep their state in random starts, beyond those who return by chance."""
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Transitions(LatentClasses):
    """Latent transition models; a model is its initial shares and tables, as `ChainLayout` lays them out.

    Parameters
    ----------
    offsets, pseudo_counts, n_members, accelerate
        As for `LatentClasses`, of the tables; there is one member.
    layout
        Ties between levels and tables.
    n_least
        Number of waves up to which transitions are counted at least. All of them give the entropy of paths; those up to
        each person's last answer, the default, tell as much and are faster.

    References
    ----------
    Baum, Petrie, Soules, Weiss (1970), Annals of Mathematical Statistics 41(1); Collins, Lanza (2010), Latent Class and
    Latent Transition Analysis, chapter 7.
    """

    layout: ChainLayout
    n_least: int = 0
    # one model has one pass, whatever the number of threads
    start, score = Family.start, Family.score

    @classmethod
    def make(
        cls, layout: ChainLayout, singles: FloatArray, rank: int, pseudo_count: float = 0.0
    ) -> Self:
        """Make the family of models with some number of states.

        Parameters
        ----------
        layout
            As for the class.
        singles, rank, pseudo_count
            As for `ChainLayout.shape_pseudo_counts`.
        """
        counts = layout.shape_pseudo_counts(singles, rank, pseudo_count)
        offsets = layout.find_offsets(rank)
        return cls(offsets=offsets, pseudo_counts=counts, accelerate=True, layout=layout)

    def draw(self, singles: FloatArray, rank: int, rng: np.random.Generator) -> ClassState:
        """Return the state before the first pass of a random start."""
        prior, factors = start_random(singles, self.layout.base_offsets, rank=rank, rng=rng)
        stay = rng.uniform(*STAYING)
        moves = stay * np.eye(rank) + (1 - stay) / rank
        tables = np.concatenate([factors, *[moves] * self.layout.n_matrices])
        return self.begin([(prior, tables)])

    def add(self, parameters: Parameters, blocks: Iterable[Block]) -> EMStatistics:
        """Compute the expected counts of initial states, of levels by state, and of transitions."""
        chain, parts = self.layout.split(parameters), []
        for block in blocks:
            states, tables, log_likelihood = self.layout.count(block, chain, n_least=self.n_least)
            parts.append(EMStatistics(tables[0], states[0], log_likelihood, block.n_samples))
        return sum_fields(parts)

    def measure(self, parameters: Parameters) -> int:
        """Return the size of the expected counts in bytes."""
        return parameters[0].nbytes + parameters[1].nbytes

    def score_under(self, parameters: Parameters, _: IntArray) -> ScoreRows:
        """Return a function that scores rows under a model, of any rank."""
        return partial(self.layout.score, chain=self.layout.split(parameters))


def measure_singles(source: BlockSource, layout: ChainLayout) -> FloatArray:
    """Compute the PMF of each question over all waves that share its table, in one pass: (n_base_levels,)."""
    (found,) = evaluate_models(source, [(np.ones(1), np.ones((layout.ties.size, 1)))])
    mass = np.zeros(int(layout.base_offsets[-1]))
    np.add.at(mass, layout.ties, found.level_mass[:, 0])
    return layout.find_singles(mass)


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
        `pmflib.fits.fit_result.STILL`.
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
        of_model = self.model.summary()
        settled = (
            f"{'yes' if self.converged else 'no'}, after {len(self.loss_history)} passes; one more changes "
            f"probabilities by at most {decimal(self.last_change, 2)}"
        )
        facts = [
            *of_model.facts,
            ("converged", settled),
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
    `pmflib.families.spread_waves` makes of a table with a row per person and wave. Answers and whole waves may be
    missing.

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
    check(at_least(1, whole=True, also=("auto",)), RankError, n_states=n_states)
    check(at_least(1, whole=True), n_starts=n_starts, max_passes=max_passes)
    if isinstance(samples, StoredSamples):
        schema = samples.schema
    schema = infer_schema(samples, waves) if schema is None else schema
    check_type(Schema, "pass a pmflib.Schema", SchemaError, schema=schema)
    found = Waves.find(schema, waves)
    limits = Limits(max_passes, tol)
    limits.check()
    options = _Options(schema, found, homogeneous, invariant, pseudo_count, n_starts, limits, seed)
    training = open_source(schema, STATES[-1], samples, weight)
    held_out = None if validation is None else open_source(schema, STATES[-1], validation)
    if n_states != "auto":
        return options.fit(training, int(n_states), held_out, checkpoint)
    if held_out is not None:
        return options.choose(training, held_out, checkpoint)
    if isinstance(samples, StoredSamples):
        raise PmfError(
            'n_states is "auto" and samples are stored; pass validation, the samples of another fold, to choose by'
        )
    return options.choose_by_fold(read_samples(schema, samples, weight), training, checkpoint)


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
        layout = fits[0].model.layout
        family = Transitions.make(layout, np.ones(int(layout.base_offsets[-1])), 1)
        models = [layout.join(fit.model.chain) for fit in fits]
        comparison = compare_candidates(
            "sample",
            [{"n_states": fit.model.n_states} for fit in fits],
            scores,
            subtract=lambda a, b: held_out.compare([models[a]], [models[b]], family.score_under),
            rule="least",
        )
        return replace(fits[comparison.points.index(comparison.chosen)], comparison=comparison)

    def choose_by_fold(
        self, block: DenseBlock, training: BlockSource, checkpoint: Path | None
    ) -> TransitionFit:
        """Choose a number of states by one fold of the people, and fit that number to all of them."""
        is_held_out = block.assign_folds(N_FOLDS) == 0
        if is_held_out.all() or not is_held_out.any():
            raise PmfError(f'n_states is "auto" and there are {len(block)} samples; pass a number')
        known, hidden = (
            BlocksInMemory.cut(block[rows], self.schema.offsets, STATES[-1])
            for rows in (~is_held_out, is_held_out)
        )
        chosen = self.choose(known, hidden, None if checkpoint is None else checkpoint / "choice")
        whole = self.fit(training, chosen.model.n_states, None, checkpoint)
        assert chosen.held_out_score is not None
        score = replace(chosen.held_out_score, n_trials=1)
        return replace(whole, held_out_score=score, comparison=chosen.comparison)

    def fit(
        self,
        training: BlockSource,
        n_states: int,
        held_out: BlockSource | None,
        checkpoint: Path | None,
    ) -> TransitionFit:
        """Fit models of some number of states from several starts, and go on with the best."""
        is_equal = self.homogeneous, self.invariant
        layout = ChainLayout.make(self.schema, self.waves, *is_equal)
        singles = measure_singles(training, layout)
        family = Transitions.make(layout, singles, n_states, self.pseudo_count)
        if isinstance(training, StoredSamples):
            plan = partial(plan_em, int(family.offsets[-1]), n_states)
            find_memory(training.client).check(plan)

        def run(number: int, name: str, n_passes: int, state: ClassState) -> ClassState:
            path = None if checkpoint is None else checkpoint / f"{name}.npz"
            inputs = self.schema.digest, self.waves.positions, *is_equal
            place = self.pseudo_count, self.seed, (n_states, number)

            def report(now: ClassState) -> None:
                text = f"{n_states} states, start {number + 1}, pass {now.n_passes}"
                report_step(now.n_passes, self.limits.max_passes, text)

            return run_em(
                family,
                training,
                state,
                limits=self.limits._replace(max_passes=min(n_passes, self.limits.max_passes)),
                checkpoint=family.open_checkpoint(path, training, *inputs, *place),
                on_pass=report,
            )

        starts = []
        for number in range(self.n_starts if n_states > 1 else 1):
            drawn = family.draw(
                singles, n_states, np.random.default_rng([self.seed, n_states, number])
            )
            starts.append(run(number, f"start-{number}", START_PASSES, drawn))
        best = min(range(len(starts)), key=lambda number: starts[number].loss_history[-1])
        going = replace(starts[best], converged=False)
        state = run(best, "best", self.limits.max_passes, going)
        statistics = family.start(training, state)()
        updated = m_step(statistics, family.offsets, family.pseudo_counts, *state.parameters)
        changes = zip(updated, state.parameters, strict=True)
        change = max(float(np.abs(new - old).max()) for new, old in changes)
        facts = {"method": "transitions", "pseudo_count": self.pseudo_count}
        facts |= {"passes": state.n_passes, "starts": len(starts)}
        chain = layout.split(state.parameters)
        model = TransitionModel(*chain, self.schema, self.waves, *is_equal, ModelOrigin.of(facts))
        # the entropy is that of whole paths, with the waves after the last answers
        of_paths = replace(family, n_least=model.n_waves).start(training, state)()
        sums, n_paths = sum_statistics(of_paths, *state.parameters), n_states**model.n_waves
        score = None
        if held_out is not None:
            score = HeldOutScore(family.score(held_out, state.parameters), held_out.n_samples)
        return TransitionFit(
            model.sort_states(),
            make_criteria(sums, n_paths, model.n_parameters, self.schema.cardinalities),
            state.loss_history,
            state.converged and change <= STILL,
            change,
            tuple(each.log_likelihoods[-1] for each in starts),
            score,
        )
