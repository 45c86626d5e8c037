"""Refits to bootstrap samples, which reflect the uncertainty of parameters in multiple imputation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pmflib.base.arrays import IntArray, check_whole
from pmflib.base.blocks import DenseBlock
from pmflib.base.defaults import LIMITS
from pmflib.base.errors import PmfError
from pmflib.em.latent_classes import split_members
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.forests.dependence import refine_forests
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.families.traits.item_responses import fit_item_responses
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.families.traits.traits import fit_traits
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.model import JointPMF

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
    check_whole("draws", draws)
    if draws < 1:
        raise PmfError(f"draws is {draws}; give at least 1")
    if isinstance(samples, StoredSamples):
        if samples.n_rows * samples.schema.n_variables <= MEMORY_CELLS:
            samples = samples.read_block()
    if isinstance(samples, np.ndarray):
        samples = DenseBlock(samples)
    n_rows = samples.n_rows if isinstance(samples, StoredSamples) else len(samples)
    if not n_rows:
        raise PmfError("samples has no rows; a model is fitted again to at least one")
    members = _split_average(model)
    fits = []
    on_fit(0, draws)
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw])
        if isinstance(samples, StoredSamples):
            resampled: DenseBlock | StoredSamples = _resample_folds(samples, rng)
        else:
            resampled = samples[rng.integers(n_rows, size=n_rows)]
        refit = _refit(members[draw % len(members)], model, resampled, int(rng.integers(2**31)))
        fits.append(replace(refit, origin={**refit.origin, "resampled": draw}))
        on_fit(draw + 1, draws)
    return fits


def _resample_folds(samples: StoredSamples, rng: np.random.Generator) -> StoredSamples:
    """Draw folds with replacement, as many as there are."""
    folds = sorted({block.fold for block in samples.blocks})
    drawn = np.sort(rng.integers(len(folds), size=len(folds))).tolist()
    blocks = [block for each in drawn for block in samples.blocks if block.fold == folds[each]]
    return samples.with_blocks(blocks)


def _split_average(model: JointPMF) -> Sequence[JointPMF]:
    """Split an average into its models; return any other model alone."""
    n_members = int(model.origin.get("average", 1)) if model.origin.get("final") else 1
    if n_members == 1 or model.rank % n_members:
        return [model]
    kept = {"average", "final"}
    origin = {name: fact for name, fact in model.origin.items() if name not in kept}
    parts = split_members((model.prior, model.factors), n_members)
    if not isinstance(model, TreePMF):
        return [JointPMF(*part, model.schema, origin) for part in parts]
    found: list[JointPMF] = []
    first = 0
    for part, parents in zip(parts, np.split(model.forest.parents, n_members), strict=True):
        forest = Forest(parents, model.schema.offsets)
        tables = model.tables[first : first + forest.n_entries]
        first += forest.n_entries
        found.append(TreePMF.make(TreeParameters(part[0], forest, tables), model.schema, origin))
    return found


def _refit(
    start: JointPMF, model: JointPMF, samples: DenseBlock | StoredSamples, seed: int
) -> JointPMF:
    """Refit one of the models of an average to some samples, starting from its parameters."""
    schema, origin = model.schema, model.origin
    if isinstance(model, TraitPMF) and model.is_mixture:
        n_traits, pseudo_count = model.trait_model.n_traits, float(origin["pseudo_count"])
        again = fit_item_responses(
            samples, n_traits, schema=schema, pseudo_count=pseudo_count, seed=seed
        )
        return again.model
    if isinstance(model, TraitPMF):
        settings = {name: origin[name] for name in ("dimensions", "shrinkage", "passes")}
        given: object = samples
        if isinstance(samples, DenseBlock):
            given = samples.to_sparse(schema.offsets)
        return fit_traits(given, schema, n_states=model.rank, rng=seed, **settings).model
    # the fits of an average were stopped early by held-out samples
    is_stopped = start is not model and "passes" in origin
    limit = max(1, int(origin["passes"])) if is_stopped else LIMITS.max_passes
    options = Options.make("auto", origin.get("pseudo_count", 0.0), 1, start.rank)
    fit = EMFit(schema, start.rank, options, seed, Passes(limit)).refining(start)
    counts = samples.count_pairs() if isinstance(samples, StoredSamples) else None
    if isinstance(start, TreePMF):
        return refine_forests(fit, start, samples, None, counts).model
    return fit.fit_samples(samples, None, counts).model
