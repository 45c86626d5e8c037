"""A trait model compiled into a joint PMF: latent states where people are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.blocks import Block
from pmflib.errors import PmfError
from pmflib.model import JointPMF
from pmflib.traits.trait_model import TraitModel


def compile_states(
    traits: TraitModel,
    samples: Block,
    n_states: int,
    seed: int,
    origin: Mapping[str, Any] | None = None,
) -> JointPMF:
    """Joint PMF whose states are people: equally probable points of the traits, each with its PMFs.

    The first states are the posterior means of people, all of them or as many as there are states, in their order; of
    fewer people than states, the others are drawn from the people's posteriors. Points at the posterior means did
    better than points drawn from the prior or the posteriors: what few ratings leave open is noise of the cloud.

    Parameters
    ----------
    traits
        The model.
    samples
        People with anything observed are taken; where there are none, points are drawn from the prior.
    n_states
        Number of states, at least 1.
    seed
        Integer of at least 0.
    origin
        Facts on the fit, as in `JointPMF`.

    Returns
    -------
    The model; it carries the trait model.

    Raises
    ------
    PmfError
        If there are no states.
    """
    if n_states < 1:
        raise PmfError(f"n_states is {n_states}; give at least 1")
    points = draw_points(traits, samples, n_states, np.random.default_rng(seed))
    prior = np.full(n_states, 1.0 / n_states)
    return JointPMF(prior, traits.find_factors(points), traits.schema, dict(origin or {}), traits)


def draw_points(
    traits: TraitModel, samples: Block, n_states: int, rng: np.random.Generator
) -> FloatArray:
    """Points of the traits where people are: float64 of shape (n_states, n_traits)."""
    sparse = samples.to_sparse(traits.schema.offsets)
    people = np.flatnonzero(np.diff(sparse.indptr))
    if not people.size:
        root = np.linalg.cholesky(traits.covariance) if traits.n_traits else traits.covariance
        noise = rng.standard_normal((n_states, traits.n_traits))
        drawn: FloatArray = traits.mean + np.einsum("fg,ng->nf", root, noise)
        return drawn
    # round after round through all people: no one is taken twice before everybody was once
    n_rounds = -(-n_states // people.size)
    taken = np.tile(people, n_rounds)[:n_states]
    noise = rng.standard_normal((n_states, traits.n_traits))
    noise[: people.size] = 0.0
    points = np.empty((n_states, traits.n_traits))
    order = np.argsort(taken, kind="stable")
    for rows, folded in traits.fold_in(sparse.take(taken[order])):
        own = order[rows]
        # of few dimensions, and row by row: LAPACK gives the same bits wherever a batch begins
        roots = np.linalg.cholesky(folded.covariances) if traits.n_traits else folded.covariances
        points[own] = folded.modes + np.einsum("nfg,ng->nf", roots, noise[own])
    return points
