"""Report of the model: how it was fitted, its states, associations of variables, and scores."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.comparison import Comparison
from pmflib.base.hooks import find_offers
from pmflib.counts.groups import load_most_answered
from pmflib.counts.zarr_tables import StoredTables
from pmflib.fits.pair_agreement import MAX_COMPARED_LEVELS, PairAgreement, compare_pairs
from pmflib.fits.stack.readings import Disagreement
from pmflib.model import JointPMF
from pmflib.model.associations import Associations, measure_associations, measure_in_counts
from pmflib.model.identification import describe_undetermined
from pmflib.model.state_descriptions import StateDescription, describe_states
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.stages.evaluation import SCORES
from pmflib_tasks.stages.order import find_counts
from pmflib_tasks.stages.stack import CLASSES

STATE_LEVELS = 20
"""Maximum number of levels listed per state."""
PAIRS_LISTED = 25
"""Maximum number of associated pairs listed."""
MAX_LEVELS = 3000
"""Maximum number of levels for which all pairs are measured, in 0.3 GB; else the most observed variables are used."""
MISSED = 10
"""Maximum number of pairs listed whose dependence the model misses."""
LEAST_MISSED = 0.02
"""Minimum missed mutual information of a listed pair, nats."""
CLEAR = 3.0
"""Standard errors from which a variable counts as predicted better or worse, of possibly hundreds of variables."""
LEAST_CELLS = 30
"""Minimum number of hidden answers of an assessed variable; standard errors of fewer are unreliable."""


@dataclass(frozen=True)
class AssociatedPair:
    """Two associated variables.

    Parameters
    ----------
    variables
        Their names.
    information, in_counts
        Mutual information under the model, and in the counts without its expectation under independence, nats; None if
        no sample holds both variables.
    cramers_v
        Under the model, in [0, 1].
    support
        Number of samples that hold both.
    levels, lift
        The most associated levels, and the ratio of their joint probability to that under independence.
    """

    variables: tuple[str, str]
    information: float
    in_counts: float | None
    cramers_v: float
    support: int
    levels: tuple[str, str]
    lift: float


@dataclass(frozen=True)
class VariableScore:
    """Score of the predictions of a variable from the other answers of held-out samples.

    Parameters
    ----------
    name
        The variable.
    cells
        Number of hidden answers.
    gain, error
        Log-probability per answer minus that of the variable alone, nats, and its standard error, which is None for a
        single answer.
    log_prob, baseline_log_prob
        Log-probability per answer of the model and of the variable alone, nats.
    accuracy, baseline_accuracy
        Share of answers whose most probable level is the true one.
    """

    name: str
    cells: int
    gain: float
    error: float | None
    log_prob: float
    baseline_log_prob: float
    accuracy: float
    baseline_accuracy: float

    @property
    def is_assessed(self) -> bool:
        """Whether it has enough hidden answers to be assessed."""
        return self.error is not None and self.cells >= LEAST_CELLS

    @property
    def is_better(self) -> bool:
        """Whether the model predicts it significantly better than the variable alone."""
        return self.error is not None and self.is_assessed and self.gain > CLEAR * self.error

    @property
    def is_worse(self) -> bool:
        """Whether the model predicts it significantly worse than the variable alone."""
        return self.error is not None and self.is_assessed and self.gain < -CLEAR * self.error


@dataclass(frozen=True, eq=False)
class ModelReport:
    """Model of a run, and how it was fitted.

    Parameters
    ----------
    model
        The model.
    summary
        Summary of the fit: method, rank, passes, log-likelihoods, notes.
    read
        Model whose states are read: the model, or the latent classes beside a stack; None of a stack without these.
    states
        The latent states of ``read`` by falling prior.
    associations, pairs
        Associations of all measured pairs, and the most associated pairs.
    missed
        Pairs whose mutual information is lower under the model than in the counts, by falling difference.
    agreement
        Agreement with the counts of all pairs; None if the schema is too wide to compare them.
    comparisons
        Comparisons on held-out data, those of ranks first.
    is_rank_chosen
        Whether the rank was chosen, and not given.
    warnings
        Warnings, as sentences.
    """

    model: JointPMF
    summary: Mapping[str, Any]
    read: JointPMF | None
    states: list[StateDescription]
    associations: Associations
    pairs: list[AssociatedPair]
    missed: list[AssociatedPair]
    agreement: PairAgreement | None
    comparisons: list[Comparison]
    is_rank_chosen: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def intervals(self) -> list[tuple[str, ...]]:
        """Parameters with their intervals, from `list_intervals`; empty if no errors were recorded."""
        return list_intervals(self.summary.get("errors") or {})

    @property
    def undetermined(self) -> str:
        """Why the states cannot be read; "" if they can."""
        return "" if self.read is None else describe_undetermined(self.read)

    @property
    def disagreement(self) -> str:
        """How far the states that are read are from a stack that answers; "" if they are the model's own."""
        found = self.summary.get(CLASSES)
        return Disagreement.from_json(found).sentence if found else ""

    @property
    def residual_pairs(self) -> list[dict[str, Any]]:
        """Listed pairs of the tests for dependence within states, the most significant first."""
        found = self.summary.get("residuals") or {}
        return list(found.get("pairs", ()))

    @property
    def edges(self) -> list[tuple[str, str, float]]:
        """Pairs of variables that depend on each other within states, with the share of samples in such states."""
        # a method that comes with forests, without which no variables depend on each other within states
        return self.model.edges() if "edges" in find_offers("model_methods") else []

    @property
    def rank_comparisons(self) -> list[Comparison]:
        """Comparisons of ranks."""
        return [each for each in self.comparisons if "rank" in each.varied]


@dataclass(frozen=True)
class ScoreReport:
    """Scores of the model on unseen samples.

    Parameters
    ----------
    means
        Means over all hidden answers, by measure.
    variables
        Scores of the variables with hidden answers: assessed ones by falling gain, then the others.
    calibration
        Bins of the probability of the most probable level, over all hidden answers.
    """

    means: dict[str, float]
    variables: list[VariableScore]
    calibration: list[dict[str, float]]

    @property
    def assessed(self) -> list[VariableScore]:
        """Scores of the assessed variables, by falling gain."""
        return [each for each in self.variables if each.is_assessed]

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean absolute difference of predicted and true shares by bin."""
        n = sum(each["rows"] for each in self.calibration)
        apart = sum(
            each["rows"] * abs(each["probability"] - each["accuracy"]) for each in self.calibration
        )
        return apart / n if n else 0.0

    @property
    def calibration_by_chance(self) -> float:
        """Expectation of the calibration error under perfect calibration."""
        n = sum(each["rows"] for each in self.calibration)
        chance = sum(each["rows"] * each["accuracy_error"] for each in self.calibration)
        return math.sqrt(2 / math.pi) * chance / n if n else 0.0


def gather_model(
    store: Store,
    stages: Mapping[str, Reference],
    facts: RunFacts,
    level_counts: IntArray,
    support: IntArray,
) -> ModelReport:
    """Gather the model of a run.

    Parameters
    ----------
    store
        The store.
    stages
        Artefacts of the run, among them model and counts.
    facts
        Facts of its record.
    level_counts, support
        As in `DataReport`.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    artefact = store.locate(stages["model"])
    model = JointPMF.load(artefact / "model")
    entry = store.find(stages["model"].identity)
    summary = dict(facts.model or ({} if entry is None else entry.summary))
    path = store.locate(find_counts(stages)) / "pairs"
    stored = StoredTables(path)
    counted = load_most_answered(path, [range(stored.n_folds)], MAX_LEVELS).to_samples()
    kept = np.array([model.schema.position(name) for name in counted.schema.names])
    found = measure_associations(model, kept)
    in_counts = measure_in_counts(counted.to_dense(), counted.schema.offsets)
    within = np.searchsorted(stored.counted, kept)
    pair_support = support[np.ix_(within, within)]
    are_all = kept.size == model.schema.n_variables
    can_compare = are_all and model.schema.n_levels <= MAX_COMPARED_LEVELS
    agreement = compare_pairs(model, counted) if can_compare else None
    # records of runs before this was measured lack its warnings
    recorded = facts.warnings
    found_now = () if agreement is None else agreement.warnings
    describe = partial(_describe_pairs, model, kept, found, in_counts, pair_support)
    # the states of a stack are not to be read
    read: JointPMF | None = model
    if CLASSES in summary:
        read = JointPMF.load(artefact / CLASSES)
    elif model.origin.is_stack:
        read = None
    rank = facts.rank
    if not rank and "rank" in stages and (chosen := store.find(stages["rank"].identity)):
        rank = chosen.summary
    return ModelReport(
        model,
        summary,
        read,
        [] if read is None else describe_states(read, most=STATE_LEVELS, level_counts=level_counts),
        found,
        describe(found.rank_pairs(PAIRS_LISTED)),
        describe(_find_missed(found, in_counts, pair_support)),
        agreement,
        [
            Comparison.from_json(each)
            for part in (rank, summary)
            for each in part.get("comparisons", ())
        ],
        bool(rank.get("reasons")),
        [
            *filter(None, (describe_undetermined(model if read is None else read),)),
            *recorded,
            *(each for each in found_now if each not in recorded),
        ],
    )


def _find_missed(
    found: Associations, in_counts: FloatArray, support: IntArray
) -> list[tuple[int, int]]:
    """Find the pairs whose dependence in the counts significantly exceeds that of the model."""
    rows, columns = np.triu_indices(len(found.names), 1)
    counted = np.nan_to_num(in_counts[rows, columns])
    short = counted - found.mutual_information[rows, columns]
    # the standard error of mutual information near I, from n samples, is about sqrt(2 I / n)
    noise = np.sqrt(2 * counted / np.maximum(support[rows, columns], 1))
    short = np.where(short > np.maximum(LEAST_MISSED, CLEAR * noise), short, 0.0)
    order = np.argsort(-short, kind="stable")[:MISSED]
    return [(int(rows[each]), int(columns[each])) for each in order if short[each] > 0]


def _describe_pairs(
    model: JointPMF,
    variables: IntArray,
    found: Associations,
    in_counts: FloatArray,
    support: IntArray,
    pairs_listed: Sequence[tuple[int, int]],
) -> list[AssociatedPair]:
    """Describe pairs of variables, given by their indices among ``variables``."""
    pairs = []
    for one, other in pairs_listed:
        mine = int(variables[one]), int(variables[other])
        joint = model.marginal(mine)
        product = np.maximum(np.outer(joint.sum(axis=1), joint.sum(axis=0)), FLOOR)
        parts = joint * np.log(np.maximum(joint, FLOOR) / product)
        a, b = np.unravel_index(int(parts.argmax()), parts.shape)
        first, second = (model.schema.variables[index] for index in mine)
        counted = float(in_counts[one, other])
        pairs.append(
            AssociatedPair(
                (first.name, second.name),
                float(found.mutual_information[one, other]),
                None if math.isnan(counted) else counted,
                float(found.cramers_v[one, other]),
                int(support[one, other]),
                (first.levels[a], second.levels[b]),
                float(joint[a, b] / product[a, b]),
            )
        )
    return pairs


def gather_scores(store: Store, scores: Reference, record: RunRecord) -> ScoreReport | None:
    """Gather scores; None if they are of an earlier version, or no answer was hidden.

    Raises
    ------
    StoreError
        If the artefact is missing or damaged.
    """
    from pmflib.store.file_digests import read_checked

    content = json.loads(read_checked(store.locate(scores) / SCORES))
    means = record.scores
    if "calibration" not in content or not means.get("hidden_cells"):
        return None
    variables = [
        _score_variable(name, sums) for name, sums in content["variables"].items() if sums["cells"]
    ]
    return ScoreReport(
        means,
        sorted(variables, key=lambda each: (not each.is_assessed, -each.gain)),
        content["calibration"],
    )


def _score_variable(name: str, sums: Mapping[str, float]) -> VariableScore:
    n = sums["cells"]
    gain = (sums["log_prob"] - sums["baseline_log_prob"]) / n
    variance = max(sums["squared_gain"] / n - gain**2, 0.0)
    return VariableScore(
        name,
        int(n),
        gain,
        math.sqrt(variance / (n - 1)) if n > 1 else None,
        sums["log_prob"] / n,
        sums["baseline_log_prob"] / n,
        sums["correct"] / n,
        sums["baseline_correct"] / n,
    )


def list_intervals(recorded: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """List the rows of recorded errors: what a probability is of, state, value, from, to; none of an empty mapping."""
    rows: list[tuple[str, ...]] = []
    for name, state, variable, level, value, _, low, high in recorded.get("rows", ()):
        what = "share of the samples" if name == "share" else f"{variable} = {level}"
        ends = ("not determined", "") if low is None else (f"{low:.3f}", f"{high:.3f}")
        rows.append((what, str(state), f"{value:.3f}", *ends))
    return rows
