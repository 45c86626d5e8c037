"""Errors by how a sample was drawn: a model fitted again to each replicate of the design, from where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FloatArray, Parameters, check_model_type
from pmflib.core.blocks import DenseBlock
from pmflib.core.errors import PmfError
from pmflib.core.survey_design import SurveyDesign
from pmflib.counting.marginals import estimate_block_singles
from pmflib.em.joint_pmf_em import EMState, run_joint_pmf_em
from pmflib.em.samples import SamplesInMemory
from pmflib.fitting.weighted_samples import weigh_block
from pmflib.model import JointPMF
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.solvers import PseudoCounts

MAX_PASSES = 500
"""Passes of a refit at most; from the model of the whole sample few are needed."""
TOL = 1e-9
"""Share of the objective that passes to come may gain where a refit ends, at most."""
GAIN = 1e-5
"""The same in nats, of all samples together: a replicate of a hundred moves a parameter by a tenth of its standard
error, which is worth .005 nats. Of 40,000 people errors of shares were a tenth too small with `TOL` alone."""


@dataclass(frozen=True, eq=False)
class Replicates:
    """A model fitted to a sample, and again to each replicate of its design.

    Parameters
    ----------
    model
        The model at the optimum of the whole sample.
    models
        The models of the replicates, with the same states in the same order.
    factors
        float64 of shape (n_replicates,): share of the squared departure of each in a variance.
    design
        The design.
    n_stopped
        Refits that were stopped before they had converged.
    """

    model: JointPMF
    models: tuple[JointPMF, ...]
    factors: FloatArray
    design: SurveyDesign
    n_stopped: int

    def find_errors(
        self, function: Callable[[JointPMF], FloatArray | float]
    ) -> tuple[FloatArray, FloatArray]:
        """Values of anything that a model says, and their standard errors, of the shape of the values.

        Parameters
        ----------
        function
            Gives numbers of one shape from each model, such as ``lambda model: model.marginal(["smokes"])``.
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
        return (values, *span_logits(values, errors, self.design.find_quantile(level)))


def span_logits(
    values: FloatArray, errors: FloatArray, quantile: float
) -> tuple[FloatArray, FloatArray]:
    """Ends of intervals of probabilities that are symmetric in the logit."""
    inside = (values > 0) & (values < 1)
    clipped = np.where(inside, values, 0.5)
    logits = np.log(clipped / (1 - clipped))
    reach = quantile * errors / (clipped * (1 - clipped))
    low, high = (1 / (1 + np.exp(-(logits + side * reach))) for side in (-1, 1))
    return np.where(inside, low, values), np.where(inside, high, values)


def fit_replicates(model: JointPMF, samples: object, design: SurveyDesign) -> Replicates:
    """Fit a model again to each replicate of a design, from the parameters that it has.

    Parameters
    ----------
    model
        Latent classes of `pmflib.fit_em`, a single fit to these samples with this design or its weights. Its
        pseudo-count is kept.
    samples
        A table, or codes of shape (n_rows, n_variables), -1 missing: in memory.
    design
        How they were drawn.

    Returns
    -------
    The model, fitted to the end, and those of the replicates.

    Raises
    ------
    PmfError
        If the model is an average, has forests or traits, or the design is of another number of rows.
    SchemaError
        If the samples do not fit the schema.

    Notes
    -----
    Refits begin at the model, so that its states are theirs. Variances are sums of factor times squared departure from
    the model of the whole, as the method of the replicates has it. The same bits with any number of threads.

    References
    ----------
    Wolter (2007), Introduction to Variance Estimation; Asparouhov (2005), Structural Equation Modeling 12(3), for
    mixtures under complex sampling by the weighted log-likelihood.
    """
    check_model_type("model", model, JointPMF)
    if not isinstance(design, SurveyDesign):
        raise PmfError(f"design is {design!r}; give a pmflib.SurveyDesign")
    if model.origin.get("final") or isinstance(model, TreePMF) or model.trait_model is not None:
        raise PmfError(
            "model is an average of fits, or has forests or traits; a design gives errors of latent classes of one fit"
        )
    block = weigh_block(model.schema.encode(samples), design)
    pseudo_count = float(model.origin.get("pseudo_count", 0.0))
    fitter = _Refits(model, block, pseudo_count)
    start, is_converged = fitter.fit(block, (model.prior, model.factors))
    scale = round(design.weights.n_effective) / float(design.weights.units.sum())
    models, factors, n_stopped = [], [], int(not is_converged)
    for each in design.iterate_replicates():
        kept = np.flatnonzero(each.weights)
        part = DenseBlock(block.codes[kept], each.weights[kept] * scale)
        found, is_converged = fitter.fit(part, start)
        models.append(fitter.make(found))
        factors.append(each.factor)
        n_stopped += int(not is_converged)
    return Replicates(fitter.make(start), tuple(models), np.array(factors), design, n_stopped)


class _Refits:
    """Fits from a model, under its pseudo-count."""

    def __init__(self, model: JointPMF, block: DenseBlock, pseudo_count: float) -> None:
        self._model = model
        offsets = model.schema.offsets
        singles = estimate_block_singles(block, offsets)
        self._pseudo_counts = PseudoCounts.shaped_by(singles, offsets, pseudo_count)
        held = SamplesInMemory(block, offsets, model.rank)
        total = held.evaluate([(model.prior, model.factors)])[0].log_likelihood
        self._tol = min(TOL, GAIN / max(abs(total), 1.0))

    def fit(self, block: DenseBlock, start: Parameters) -> tuple[Parameters, bool]:
        """Parameters at the optimum that passes from a start lead to, and whether they have reached it."""
        samples = SamplesInMemory(block, self._model.schema.offsets, self._model.rank)
        state = run_joint_pmf_em(
            lambda parameters: samples.evaluate([parameters])[0],
            EMState(*start),
            self._model.schema.offsets,
            pseudo_counts=self._pseudo_counts,
            max_passes=MAX_PASSES,
            tol=self._tol,
            accelerate=True,
        )
        return (state.prior, state.factors), state.converged

    def make(self, parameters: Parameters) -> JointPMF:
        """Model of parameters."""
        return JointPMF(*parameters, self._model.schema, dict(self._model.origin))
