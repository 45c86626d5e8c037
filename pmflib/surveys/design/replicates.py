"""Errors by survey design: replicates of a model, to first order or by refits, in memory and in a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, Parameters, check_model_type
from pmflib.base.blocks import Block, DenseBlock, split_block, weigh_rows
from pmflib.base.constraints import OneOf, check, check_type
from pmflib.base.defaults import Limits
from pmflib.base.errors import PmfError
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.base.replicate_weights import ReplicateWeights, find_student_quantile
from pmflib.base.variance import MOST_REPLICATES, Variance, weigh_samples
from pmflib.counts.marginals import estimate_block_singles, normalise_singles
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory, BlockSource
from pmflib.em.family import run_em
from pmflib.em.latent_classes import (
    ClassState,
    LatentClasses,
    evaluate_models,
    join_statistics,
    split_members,
)
from pmflib.em.stored_blocks import StoredBlocks
from pmflib.em.stored_samples import StoredSamples
from pmflib.information.kinds import open_information
from pmflib.information.parameter_errors import FAR, MAX_ENTRIES, VAGUE, span_logits
from pmflib.information.scores import read_entries
from pmflib.model import JointPMF
from pmflib.model.sufficient_statistics import EMStatistics, em_statistics, merge_each, take_logs
from pmflib.store.sample_blocks import BlockGroup, BlockReference, read_block
from pmflib.store.stored_variance import StoredVariance
from pmflib.surveys.design.linearised import (
    LinearReplicates,
    ReadDrawn,
    linearise,
    move_model,
)

MAX_PASSES = 500
"""Maximum number of passes of a refit; few are needed from the model of the whole sample."""
TOL = 1e-9
"""Tolerance of a refit, as a share of the objective."""
GAIN = 1e-5
"""Tolerance of a refit in nats, over all samples: a replicate of a hundred moves a parameter by a tenth of its standard
error, which is worth .005 nats. With `TOL` alone, errors of shares among 40,000 people were a tenth too small."""
MOST_TOTALS = 1 << 22
"""Maximum number of totals by sampling unit; more units are put into groups of their stratum. A model of 1,284 entries
has 3,000 groups, whose errors vary by one per cent."""
BLOCK_ROWS = 1 << 16
"""Rows whose replicate weights are read at a time, up to `MAX_BLOCKS` blocks."""

Method = Literal["auto", "linear", "refit"]
"""Method of finding replicates."""


@dataclass(frozen=True, eq=False)
class Replicates:
    """A model fitted to a sample, and the models of the replicates of its design.

    Parameters
    ----------
    model
        The model of the whole sample.
    models
        Models of the replicates, with the same states in the same order: refits, or the model moved by a small fraction
        of its first-order step.
    factors
        float64 of shape (n_replicates,): factor of the squared departure of each in a variance.
    degrees
        Degrees of freedom of variances.
    method
        Description of the replicates.
    is_determined, is_edge
        bool of the shapes of prior and factors: whether the samples determine an entry; whether it is at 0 or 1, and
        taken as fixed.
    distance
        Distance of the given model from the maximum, in standard errors of the parameter that is farthest.
    notes
        How the design was read, and cautions about the errors.
    """

    model: JointPMF
    models: tuple[JointPMF, ...]
    factors: FloatArray
    degrees: int
    method: str
    is_determined: tuple[BoolArray, BoolArray]
    is_edge: tuple[BoolArray, BoolArray]
    distance: float
    notes: tuple[str, ...]

    def find_errors(
        self, function: Callable[[JointPMF], FloatArray | float]
    ) -> tuple[FloatArray, FloatArray]:
        """Compute values of a function of the model, and their standard errors, of the shape of the values.

        Parameters
        ----------
        function
            Returns numbers of the same shape for each model, such as ``lambda model: model.marginal(["smokes"])``. It
            must be differentiable if replicates are of first order, as these models differ by very little.
        """
        values = np.asarray(function(self.model), np.float64)
        total = np.zeros(values.shape)
        for model, factor in zip(self.models, self.factors.tolist(), strict=True):
            total += factor * (np.asarray(function(model), np.float64) - values) ** 2
        return values, np.sqrt(total)

    def find_intervals(
        self, function: Callable[[JointPMF], FloatArray | float], level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute probabilities under the model, and the ends of their intervals.

        Parameters
        ----------
        function
            As for `find_errors`, of probabilities.
        level
            In (0, 1).

        Returns
        -------
        Values, lower and upper ends, of one shape. Intervals are symmetric in the logit, by Student's distribution with
        the degrees of freedom of the design; of a probability of 0 or 1 they are that number.
        """
        values, errors = self.find_errors(function)
        return (values, *span_logits(values, errors, self.find_quantile(level)))

    def find_quantile(self, level: float) -> float:
        """Half-width of an interval of some level, in standard errors: Student's quantile."""
        return find_student_quantile(self.degrees, level)


def fit_replicates(
    model: JointPMF, samples: object, design: Variance, *, method: Method = "auto"
) -> Replicates:
    """Fit a model to each replicate of a survey design.

    Parameters
    ----------
    model
        Latent classes of `pmflib.fit_em`, a single fit to these samples with this design or its weights. Its
        pseudo-count is kept.
    samples
        A table, or codes of shape (n_rows, n_variables), -1 missing: in memory.
    design
        Design of the samples.
    method
        "linear" makes one pass and one Newton step for each replicate, or for each sampling unit; "refit" fits again to
        each replicate, from the parameters of the model, leaving out one unit at a time, or groups of more than 200
        units. "auto" is "linear" up to 2,000 entries of prior and factors.

    Returns
    -------
    The model, refined if it is not at the maximum, and those of the replicates.

    Raises
    ------
    PmfError
        If the model is an average, has forests or traits, or the design is of another number of rows.
    MemoryPlanError
        If it is "linear", and prior and factors have more than 2,000 entries.
    SchemaError
        If the samples do not fit the schema.

    Notes
    -----
    Both methods start from the model, so that states keep their order. Variances are sums of factor times squared
    departure from the model of the whole sample. Results have the same bits for any number of threads.

    To first order, a probability at 0 or 1 stays there, and a parameter that the samples do not determine does not
    move. A refit may change either, and moves further if a replicate removes most of the information on a parameter.

    References
    ----------
    Wolter (2007), Introduction to Variance Estimation; Asparouhov (2005), Structural Equation Modeling 12(3), for
    mixtures under complex sampling by the weighted log-likelihood; Binder (1983), International Statistical Review
    51(3), for the first order.
    """
    check_model_type("model", model, JointPMF)
    check_type(Variance, "pass a pmflib.surveys.SurveyDesign", design=design)
    check(OneOf(get_args(Method)), method=method)
    open_information(model).check_design()
    block = weigh_samples(DenseBlock(model.schema.encode(samples)), design, None)
    refits = _Refits(model, block, design)
    n_entries = model.rank * (1 + model.schema.n_levels)
    if method == "refit" or (method == "auto" and n_entries > MAX_ENTRIES):
        return _refit(model, refits, design)
    n_blocks = min(MAX_BLOCKS, -(-block.n_rows // BLOCK_ROWS))
    source = BlocksInMemory(split_block(block, max(1, n_blocks)), model.schema.offsets)
    record, matrix = design.reduce(MOST_TOTALS // n_entries)
    drawn = DrawnRows(matrix, 10.0**design.weights.decimals * refits.scale), record
    found = linearise(model, source, *drawn)
    distance = found.distance
    if not found.is_maximum or distance > FAR:
        # the curvature elsewhere is not that of the maximum
        model = refits.make(refits.fit_whole()[0])
        found = linearise(model, source, *drawn)
    return _describe_linear(model, found, record, distance)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Reads the replicate weights of samples in memory, as `linearise` needs them.

    Parameters
    ----------
    matrix
        float64 of shape (n_rows, n_replicates); or the sparse form of units, int64 of shape (n_rows,).
    scale
        Unit of the weights.
    """

    matrix: FloatArray | IntArray
    scale: float = 1.0

    def __call__(self, item: Block | BlockReference, first: int) -> FloatArray | IntArray:
        """Replicate weights of the rows of a block."""
        mine = self.matrix[first : first + item.n_rows]
        return mine if mine.ndim == 1 else np.asarray(mine.T * self.scale, np.float64)


def find_stored_replicates(
    model: JointPMF,
    samples: StoredSamples,
    design: StoredVariance,
    method: Literal["linear", "refit"] = "linear",
) -> Replicates:
    """Fit a model to each replicate of the design of stored samples, as `fit_replicates` does in memory.

    Parameters
    ----------
    model
        Latent classes, a single fit to these samples. First-order replicates take it as it is; refits start from it,
        and so does one to the whole sample.
    samples
        Samples with weights, and with sampling units or replicate weights.
    design
        Design of the samples.
    method
        "linear" is one pass; "refit" makes passes until the fits to all replicates have converged, each pass of all.

    Raises
    ------
    PmfError
        If all samples are of one unit.
    MemoryPlanError
        If it is "linear", and prior and factors have too many entries.
    StoreError
        If a partition is gone or damaged, or has no units or replicate weights.
    """
    n_entries = model.rank * (1 + model.schema.n_levels)
    most = MOST_REPLICATES if method == "refit" else MOST_TOTALS // n_entries
    drawn = design.reduce(samples.blocks, most)
    if drawn is None:
        raise PmfError("all samples belong to one sampling unit; a variance needs at least two")
    # blocks that workers keep in memory have no replicate weights
    source = StoredBlocks(samples.blocks, samples.schema.offsets, samples.client)
    if method == "linear":
        found = linearise(model, source, drawn.read_scaled, drawn.record)
        return _describe_linear(model, found, drawn.record, found.distance)
    start = evaluate_models(samples, [(model.prior, model.factors)])[0]
    fitted = _refit_stored(model, start, source, drawn.read_scaled, drawn.record)
    notes = () if fitted.converged else ("refits were stopped before all had converged",)
    fits = split_members(fitted.parameters, 1 + drawn.record.n_columns)
    whole, *made = [JointPMF(*each, model.schema, model.origin) for each in fits]
    factors = drawn.record.refit_factors
    return _describe_refits(model, whole, made, factors, drawn.record, notes)


def _describe_linear(
    model: JointPMF, found: LinearReplicates, record: ReplicateWeights, distance: float
) -> Replicates:
    """Replicates of a model from its first-order steps, given the distance of the original model from the maximum."""
    notes = record.notes
    if not found.is_maximum:
        notes += (
            "the model is no maximum of the likelihood: errors are of the directions in which that falls; fit "
            "from other starts",
        )
    if n_edges := int(found.is_edge.sum()):
        notes += (
            f"{n_edges} probabilities are at 0 or 1, and taken as fixed: they have no errors",
        )
    models, factors = move_model(model, found)
    drawn = "units" if record.is_sparse else "replicates"
    return Replicates(
        model,
        tuple(models),
        factors,
        record.degrees,
        f"{record.n_columns} {drawn} to first order ({record.method}), {record.degrees} degrees of freedom",
        read_entries(found.is_determined, model.rank),
        read_entries(found.is_edge, model.rank),
        distance,
        notes,
    )


def _describe_refits(
    given: JointPMF,
    whole: JointPMF,
    models: Sequence[JointPMF],
    factors: FloatArray,
    record: ReplicateWeights,
    notes: tuple[str, ...],
) -> Replicates:
    """Replicates from refits, given the model that they started from and the refit to the whole sample."""
    start = whole.prior, whole.factors
    edges = [(each <= 0) | (each >= 1) for each in start]
    replicates = Replicates(
        whole,
        tuple(models),
        factors,
        record.degrees,
        f"{len(models)} replicates ({record.method}), {record.degrees} degrees of freedom",
        (np.ones(start[0].shape, bool), np.ones(start[1].shape, bool)),
        (edges[0], edges[1]),
        0.0,
        (*record.notes, *notes),
    )
    values, errors = replicates.find_errors(_list_parameters)
    is_known = (errors > 0) & (errors <= VAGUE)
    steps = np.abs(values - _list_parameters(given))[is_known] / errors[is_known]
    return replace(replicates, distance=float(steps.max(initial=0.0)))


def _list_parameters(model: JointPMF) -> FloatArray:
    """Prior and factors of a model in one array."""
    return np.concatenate([model.prior, model.factors.ravel()])


def _refit(model: JointPMF, refits: _Refits, design: Variance) -> Replicates:
    """Fit to each replicate of samples in memory."""
    start, is_converged = refits.fit_whole()
    models, factors, n_stopped = [], [], int(not is_converged)
    for each in design.iterate_replicates():
        kept = np.flatnonzero(each.weights)
        part = DenseBlock(refits.block.codes[kept], each.weights[kept] * refits.scale)
        found, is_converged = refits.fit(part, start)
        models.append(refits.make(found))
        factors.append(each.factor)
        n_stopped += int(not is_converged)
    notes = (f"{n_stopped} refits were stopped before they had converged",) if n_stopped else ()
    whole = refits.make(start)
    return _describe_refits(model, whole, models, np.array(factors), design.record, notes)


class _Refits:
    """Fits to the whole sample and to replicates of samples in memory, started from a model, with its pseudo-count."""

    def __init__(self, model: JointPMF, block: DenseBlock, design: Variance) -> None:
        self.block = block
        self.scale = round(design.weights.n_effective) / float(design.weights.units.sum())
        self._model = model
        offsets = model.schema.offsets
        singles = estimate_block_singles(block, offsets)
        pseudo_count = model.origin.pseudo_count or 0.0
        self._pseudo_counts = PseudoCounts.shaped_by(singles, offsets, pseudo_count)

    @cached_property
    def _tol(self) -> float:
        samples = BlocksInMemory.cut(self.block, self._model.schema.offsets, self._model.rank)
        found = evaluate_models(samples, [(self._model.prior, self._model.factors)])[0]
        return min(TOL, GAIN / max(abs(found.log_likelihood), 1.0))

    def fit_whole(self) -> tuple[Parameters, bool]:
        """Fit to all rows, starting from the model."""
        return self.fit(self.block, (self._model.prior, self._model.factors))

    def fit(self, block: DenseBlock, start: Parameters) -> tuple[Parameters, bool]:
        """Fit to a block, and say whether the fit has converged."""
        samples = BlocksInMemory.cut(block, self._model.schema.offsets, self._model.rank)
        family = LatentClasses(samples.offsets, self._pseudo_counts, accelerate=True)
        state = run_em(family, samples, family.begin([start]), limits=Limits(MAX_PASSES, self._tol))
        return state.parameters, state.converged

    def make(self, parameters: Parameters) -> JointPMF:
        """Model of some parameters."""
        return JointPMF(*parameters, self._model.schema, self._model.origin)


@dataclass(frozen=True, eq=False)
class _ReplicateClasses(LatentClasses):
    """Latent classes, each member fitted to another replicate, and the first one to the whole sample."""

    drawn: tuple[ReadDrawn, ReplicateWeights] | None = None

    def start(self, source: BlockSource, state: ClassState) -> Callable[[], EMStatistics]:
        """Return the pass: one task for all members, as the replicate weights of a block are read once."""
        assert self.drawn is not None
        models = split_members(state.parameters, self.n_members)
        shared = self.offsets, models, *self.drawn
        return lambda: join_statistics(source.map_rows(_evaluate_group, merge_each, *shared))


def _evaluate_group(
    group: BlockGroup,
    first: int,
    offsets: IntArray,
    models: Sequence[Parameters],
    read: ReadDrawn,
    record: ReplicateWeights,
) -> list[EMStatistics]:
    logs = [take_logs(*model) for model in models]
    parts = []
    for item in group:
        block = read_block(item) if isinstance(item, BlockReference) else item
        found, drawn = [em_statistics(block, offsets, *logs[0])], read(item, first)
        for column, log in enumerate(logs[1:]):
            if record.is_sparse:
                weights = record.leave_out(column, drawn.astype(np.int64), weigh_rows(block))
            else:
                weights = drawn[column].astype(np.float64)
            kept = np.flatnonzero(weights)
            part = replace(block.take(kept), weights=weights[kept])
            found.append(em_statistics(part, offsets, *log))
        parts.append(found)
        first += block.n_rows
    return merge_each(parts)


def _refit_stored(
    model: JointPMF,
    start: EMStatistics,
    source: StoredBlocks,
    read: ReadDrawn,
    record: ReplicateWeights,
) -> ClassState:
    """Fit to the whole and to all replicates in the same passes, from a model with its statistics."""
    offsets = model.schema.offsets
    singles = normalise_singles(start.level_mass.sum(axis=1), offsets)
    pseudo_count = model.origin.pseudo_count or 0.0
    shape = PseudoCounts.shaped_by(singles, offsets, pseudo_count)
    starts = [(model.prior, model.factors)] * (1 + record.n_columns)
    family = _ReplicateClasses(offsets, shape, len(starts), accelerate=True, drawn=(read, record))
    tol = min(TOL, GAIN / max(abs(start.log_likelihood), 1.0))
    return run_em(family, source, family.begin(starts), limits=Limits(MAX_PASSES, tol))
