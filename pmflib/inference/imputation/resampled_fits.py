"""Refits to bootstrap samples, which reflect the uncertainty of parameters in multiple imputation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import at_least, check
from pmflib.base.defaults import LIMITS
from pmflib.base.errors import PmfError
from pmflib.em.latent_classes import split_members
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.from_samples import make_stack
from pmflib.information.kinds import find_entry
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin

MEMORY_CELLS = 20_000_000
"""Maximum number of cells of stored samples whose rows are resampled in memory; otherwise folds are resampled, as they
are stored."""


def fit_resampled(
    model: JointPMF,
    samples: IntArray | DenseBlock | StoredSamples,
    draws: int,
    seed: int = 0,
    on_fit: Callable[[int, int], None] = lambda *_: None,
) -> list[JointPMF]:
    """Refit a model to bootstrap samples, starting from its parameters.

    If the model is an average of fits, refits start from these in turn, as differences between starts are a part of the
    uncertainty.

    Parameters
    ----------
    model
        A model fitted to the samples. Refits keep its rank, pseudo-count and options of forests, and the number of
        passes of an average, which held-out samples have chosen; traits keep dimensions, shrinkage and passes.
    samples
        Codes of shape (n_rows, n_variables), -1 missing, at least one row; a block of codes, which may have weights; or
        stored samples. Rows are drawn with replacement, with their weights; of stored samples with more than
        ``MEMORY_CELLS`` cells, folds are drawn. Sampling units are ignored.
    draws
        Number of refits, at least 1.
    seed
        Integer of at least 0.
    on_fit
        Called with the number of finished refits and their total.

    Returns
    -------
    The refits, numbered by ``resampled`` in their origin; the same bits for any number of workers.

    Raises
    ------
    PmfError
        If there are no samples, or ``draws`` is below 1.

    References
    ----------
    Honaker, King (2010), "What to do about missing values in time-series cross-section data", American Journal of
    Political Science 54(2): draws of parameters by EM on bootstrap samples; Efron (1994), "Missing data, imputation,
    and the bootstrap", Journal of the American Statistical Association 89.
    """
    check(at_least(1, whole=True), draws=draws)
    if isinstance(samples, StoredSamples):
        if samples.n_rows * samples.schema.n_variables <= MEMORY_CELLS:
            samples = samples.read_block()
    if isinstance(samples, np.ndarray):
        samples = DenseBlock(model.schema.encode(samples))
    n_rows = samples.n_rows if isinstance(samples, StoredSamples) else len(samples)
    if not n_rows:
        raise PmfError("samples has no rows; a model is fitted again to at least one")
    kind = StackRefits if "stack" in model.origin else find_entry("refits", model, Refits)
    refits: Refits | StackRefits = kind(model)
    fits = []
    on_fit(0, draws)
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw])
        if isinstance(samples, StoredSamples):
            resampled: DenseBlock | StoredSamples = _resample_folds(samples, rng)
        else:
            resampled = samples[rng.integers(n_rows, size=n_rows)]
        refit = refits.fit(draw, resampled, int(rng.integers(2**31)))
        fits.append(replace(refit, origin=refit.origin.add(resampled=draw)))
        on_fit(draw + 1, draws)
    return fits


def _resample_folds(samples: StoredSamples, rng: np.random.Generator) -> StoredSamples:
    """Draw folds with replacement, as many as there are."""
    folds = sorted({block.fold for block in samples.blocks})
    drawn = np.sort(rng.integers(len(folds), size=len(folds))).tolist()
    blocks = [block for each in drawn for block in samples.blocks if block.fold == folds[each]]
    return samples.with_blocks(blocks)


class Refits:
    """Refits of latent classes to other samples; families derive from it for their kind, under the hook ``"refits"``.

    Parameters
    ----------
    model
        The fitted model, or an average of fits.
    """

    def __init__(self, model: JointPMF) -> None:
        self.model = model
        n_members = model.origin.n_members
        self.starts: Sequence[JointPMF] = [model]
        if n_members > 1 and not model.rank % n_members:
            self.starts = self.split_average(n_members)

    def split_average(self, n_members: int) -> Sequence[JointPMF]:
        """Split an average into its models."""
        parts = split_members((self.model.prior, self.model.factors), n_members)
        return [JointPMF(*part, self.model.schema, self.origin) for part in parts]

    @property
    def origin(self) -> ModelOrigin:
        """Origin of the models of an average."""
        return self.model.origin.drop("average", "final")

    def fit(self, draw: int, samples: DenseBlock | StoredSamples, seed: int) -> JointPMF:
        """Refit the model to some samples, in turn from each of an average, starting from its parameters."""
        start, origin = self.starts[draw % len(self.starts)], self.model.origin
        # the fits of an average were stopped early by held-out samples
        is_stopped = start is not self.model and origin.passes is not None
        limit = max(1, origin.passes or 0) if is_stopped else LIMITS.max_passes
        options = Options.make("auto", origin.pseudo_count or 0.0, 1, start.rank)
        fit = EMFit(self.model.schema, start.rank, options, seed, Passes(limit)).refining(start)
        counts = samples.count_pairs() if isinstance(samples, StoredSamples) else None
        return self.refine(fit, start, samples, None, counts)

    def refine(self, fit: EMFit, start: Any, *samples: Any) -> JointPMF:
        """Run a prepared fit that starts from a model; samples are the arguments of `EMFit.fit_samples`."""
        return fit.fit_samples(*samples).model


class StackRefits:
    """Refits of a stack: its models from starts of their own, with their numbers of passes and their weights.

    Parameters
    ----------
    model
        The stack.
    """

    def __init__(self, model: JointPMF) -> None:
        self.model = model

    def fit(self, draw: int, samples: DenseBlock | StoredSamples, seed: int) -> JointPMF:
        """Refit the models of the stack to some samples."""
        count = self.model.origin.pseudo_count
        fit = make_stack(
            self.model.schema, "normal", pseudo_count="auto" if count is None else count
        )
        return replace(fit, seed=seed).refit(self.model, samples)
