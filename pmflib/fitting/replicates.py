"""Errors by how a sample was drawn: where the replicates of the design move a model, to first order or by refits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, Parameters, check_model_type
from pmflib.core.blocks import Block, DenseBlock, split_block
from pmflib.core.defaults import Limits
from pmflib.core.errors import PmfError
from pmflib.core.survey_design import SurveyDesign, find_student_quantile
from pmflib.counting.marginals import estimate_block_singles
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory
from pmflib.em.family import run_em
from pmflib.em.latent_classes import LatentClasses, evaluate_models
from pmflib.fitting.linearised import LinearReplicates, linearise, move_model, read_entries
from pmflib.fitting.parameter_errors import FAR, MAX_ENTRIES, VAGUE, span_logits
from pmflib.fitting.weighted_samples import weigh_block
from pmflib.model import JointPMF
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.solvers import PseudoCounts
from pmflib.store.sample_blocks import BlockReference

MAX_PASSES = 500
"""Passes of a refit at most; from the model of the whole sample few are needed."""
TOL = 1e-9
"""Share of the objective that passes to come may gain where a refit ends, at most."""
GAIN = 1e-5
"""The same in nats, of all samples together: a replicate of a hundred moves a parameter by a tenth of its standard
error, which is worth .005 nats. Of 40,000 people errors of shares were a tenth too small with `TOL` alone."""
MOST_TOTALS = 1 << 22
"""Numbers in the totals of units of a block at most: of more units, those of a stratum are put into groups. Of a model
of 1,284 entries these are 3,000, whose errors vary by a per cent."""
BLOCK_ROWS = 1 << 16
"""Rows whose replicate weights are read at a time, where these blocks are not too many."""

Method = Literal["auto", "linear", "refit"]
"""How replicates are found."""


@dataclass(frozen=True, eq=False)
class Replicates:
    """A model fitted to a sample, and how each replicate of its design moves it.

    Parameters
    ----------
    model
        The model of the whole sample.
    models
        Those of the replicates, with the same states in the same order: refits, or the model moved by a small part of
        what the replicate moves it to first order.
    factors
        float64 of shape (n_replicates,): share of the squared departure of each in a variance.
    degrees
        Degrees of freedom of variances.
    method
        What they were found by, in words.
    is_determined, is_edge
        bool of the shapes of prior and factors: what the samples determine; what is at 0 or 1, and taken as fixed.
    distance
        How far the given model was from the maximum, in standard errors of the parameter that is farthest.
    notes
        How the design was read, and what is to be known of errors.
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
        """Values of anything that a model says, and their standard errors, of the shape of the values.

        Parameters
        ----------
        function
            Gives numbers of one shape from each model, such as ``lambda model: model.marginal(["smokes"])``. To first
            order it is one that has derivatives: models that are moved by little show no jumps.
        """
        values = np.asarray(function(self.model), np.float64)
        total = np.zeros(values.shape)
        for model, factor in zip(self.models, self.factors.tolist(), strict=True):
            total += factor * (np.asarray(function(model), np.float64) - values) ** 2
        return values, np.sqrt(total)

    def find_intervals(
        self, function: Callable[[JointPMF], FloatArray | float], level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values of probabilities that a model gives, and the ends of their intervals.

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
        """Standard errors to either side that an interval of some level reaches to: Student's quantile."""
        return find_student_quantile(self.degrees, level)


def fit_replicates(
    model: JointPMF, samples: object, design: SurveyDesign, *, method: Method = "auto"
) -> Replicates:
    """Find how each replicate of a design moves a model.

    Parameters
    ----------
    model
        Latent classes of `pmflib.fit_em`, a single fit to these samples with this design or its weights. Its
        pseudo-count is kept.
    samples
        A table, or codes of shape (n_rows, n_variables), -1 missing: in memory.
    design
        How they were drawn.
    method
        "linear" is one pass, and one step of Newton for each replicate, or for each unit where strata and units are
        known; "refit" fits again to each replicate, from the parameters that the model has, or leaves out one unit
        after another, in groups of more than 200. "auto" is "linear" up to 2,000 entries of prior and factors.

    Returns
    -------
    The model, taken to the maximum if it is not there, and those of the replicates.

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
    Both begin at the model, so that states keep their order. Variances are sums of factor times squared departure from
    the model of the whole, as the method of the replicates has it. The same bits with any number of threads.

    To first order, a probability at 0 or 1 stays there, and what the samples do not determine does not move; a refit
    may change either, and moves further where a replicate takes away most of what is known of a parameter.

    References
    ----------
    Wolter (2007), Introduction to Variance Estimation; Asparouhov (2005), Structural Equation Modeling 12(3), for
    mixtures under complex sampling by the weighted log-likelihood; Binder (1983), International Statistical Review
    51(3), for the first order.
    """
    check_model_type("model", model, JointPMF)
    if not isinstance(design, SurveyDesign):
        raise PmfError(f"design is {design!r}; give a pmflib.SurveyDesign")
    if method not in get_args(Method):
        raise PmfError(f"method is {method!r}; give one of {get_args(Method)}")
    if model.origin.get("final") or isinstance(model, TreePMF) or model.trait_model is not None:
        raise PmfError(
            "model is an average of fits, or has forests or traits; a design gives errors of latent classes of one fit"
        )
    refits = _Refits(model, weigh_block(model.schema.encode(samples), design), design)
    n_entries = model.rank * (1 + model.schema.n_levels)
    if method == "refit" or (method == "auto" and n_entries > MAX_ENTRIES):
        return _refit(model, refits, design)
    return _linearise(model, refits, design)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """How samples in memory were drawn: reads what `linearise` asks for.

    Parameters
    ----------
    drawn
        float64 of shape (n_rows, n_replicates), weights; or int64 of shape (n_rows, 2), strata and units.
    scale
        What weights are multiplied by.
    """

    drawn: FloatArray | IntArray
    scale: float = 1.0

    def __call__(self, item: Block | BlockReference, first: int) -> FloatArray | IntArray:
        """Part of them, of the rows of a block."""
        mine = self.drawn[first : first + item.n_rows]
        return mine if mine.dtype.kind == "i" else np.asarray(mine.T * self.scale, np.float64)


def _linearise(model: JointPMF, refits: _Refits, design: SurveyDesign) -> Replicates:
    """Replicates to first order, of the model at the maximum."""
    block = refits.block
    n_blocks = min(MAX_BLOCKS, -(-block.n_rows // BLOCK_ROWS))
    source = BlocksInMemory(split_block(block, max(1, n_blocks)), model.schema.offsets)
    notes = design.notes
    if design.replicates is None:
        most = MOST_TOTALS // (model.rank * (1 + model.schema.n_levels))
        factors, drawn = None, DrawnRows(design.draw_units(most))
        if design.n_units > most:
            notes += (f"{design.n_units:,} units are put into groups, which are taken as units",)
    else:
        unit = 10.0**design.weights.decimals * refits.scale
        factors, drawn = design.factors, DrawnRows(design.replicates, unit)
    found = linearise(model, source, drawn, factors)
    distance = found.distance
    if not found.is_maximum or distance > FAR:
        # a curvature elsewhere is not that of the maximum
        model = refits.make(refits.fit_whole()[0])
        found = linearise(model, source, drawn, factors)
    return describe_linear(model, found, design.degrees, design.method, notes, distance)


def describe_linear(
    model: JointPMF,
    found: LinearReplicates,
    degrees: int,
    method: str,
    notes: tuple[str, ...],
    distance: float,
) -> Replicates:
    """Replicates of a model, from where they move it to first order.

    Parameters
    ----------
    model, found
        The model, and what `linearise` has found of it.
    degrees, method, notes
        Degrees of freedom, how the replicates were made, and how the design was read.
    distance
        How far the given model was from the maximum.
    """
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
    drawn = "units" if method == "jackknife" else "replicates"
    return Replicates(
        model,
        tuple(models),
        factors,
        degrees,
        f"{found.n_drawn} {drawn} to first order ({method}), {degrees} degrees of freedom",
        read_entries(found.is_determined, model.rank),
        read_entries(found.is_edge, model.rank),
        distance,
        notes,
    )


def _refit(model: JointPMF, refits: _Refits, design: SurveyDesign) -> Replicates:
    """Replicates by fits to each."""
    start, is_converged = refits.fit_whole()
    models, factors, n_stopped = [], [], int(not is_converged)
    for each in design.iterate_replicates():
        kept = np.flatnonzero(each.weights)
        part = DenseBlock(refits.block.codes[kept], each.weights[kept] * refits.scale)
        found, is_converged = refits.fit(part, start)
        models.append(refits.make(found))
        factors.append(each.factor)
        n_stopped += int(not is_converged)
    notes = design.notes
    if n_stopped:
        notes += (f"{n_stopped} refits were stopped before they had converged",)
    how = np.array(factors), design.degrees, design.method, notes
    return describe_refits(model, refits.make(start), models, *how)


def describe_refits(
    given: JointPMF,
    whole: JointPMF,
    models: Sequence[JointPMF],
    factors: FloatArray,
    degrees: int,
    method: str,
    notes: tuple[str, ...],
) -> Replicates:
    """Replicates from refits.

    Parameters
    ----------
    given, whole, models
        The model that refits began at, and those to the whole and to each replicate.
    factors, degrees, method, notes
        As for `Replicates`, and how the replicates were made.
    """
    start = whole.prior, whole.factors
    edges = [(each <= 0) | (each >= 1) for each in start]
    replicates = Replicates(
        whole,
        tuple(models),
        factors,
        degrees,
        f"{len(models)} replicates ({method}), {degrees} degrees of freedom",
        (np.ones(start[0].shape, bool), np.ones(start[1].shape, bool)),
        (edges[0], edges[1]),
        0.0,
        notes,
    )
    values, errors = replicates.find_errors(list_parameters)
    is_known = (errors > 0) & (errors <= VAGUE)
    steps = np.abs(values - list_parameters(given))[is_known] / errors[is_known]
    return replace(replicates, distance=float(steps.max(initial=0.0)))


def list_parameters(model: JointPMF) -> FloatArray:
    """Prior and factors of a model, one after the other."""
    return np.concatenate([model.prior, model.factors.ravel()])


class _Refits:
    """Fits from a model to the whole and to replicates, under its pseudo-count."""

    def __init__(self, model: JointPMF, block: DenseBlock, design: SurveyDesign) -> None:
        self.block = block
        self.scale = round(design.weights.n_effective) / float(design.weights.units.sum())
        self._model = model
        offsets = model.schema.offsets
        singles = estimate_block_singles(block, offsets)
        pseudo_count = float(model.origin.get("pseudo_count", 0.0))
        self._pseudo_counts = PseudoCounts.shaped_by(singles, offsets, pseudo_count)

    @cached_property
    def _tol(self) -> float:
        samples = BlocksInMemory.cut(self.block, self._model.schema.offsets, self._model.rank)
        found = evaluate_models(samples, [(self._model.prior, self._model.factors)])[0]
        return min(TOL, GAIN / max(abs(found.log_likelihood), 1.0))

    def fit_whole(self) -> tuple[Parameters, bool]:
        """Fit to all rows from the model."""
        return self.fit(self.block, (self._model.prior, self._model.factors))

    def fit(self, block: DenseBlock, start: Parameters) -> tuple[Parameters, bool]:
        """Parameters at the optimum that passes from a start lead to, and whether they have reached it."""
        samples = BlocksInMemory.cut(block, self._model.schema.offsets, self._model.rank)
        family = LatentClasses(samples.offsets, self._pseudo_counts, accelerate=True)
        state = run_em(family, samples, family.begin([start]), limits=Limits(MAX_PASSES, self._tol))
        return state.parameters, state.converged

    def make(self, parameters: Parameters) -> JointPMF:
        """Model of parameters."""
        return JointPMF(*parameters, self._model.schema, dict(self._model.origin))
