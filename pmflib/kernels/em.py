"""EM row kernels in the log domain; dense and sparse blocks share every operation, so their bits agree."""

import math

import numpy as np
from numba import njit


@njit(nogil=True)
def _gather_levels(codes, offsets, held):  # type: ignore[no-untyped-def]
    """Level indices of one row of codes into held; returns how many there are."""
    n_held = 0
    for variable in range(codes.size):
        code = codes[variable]
        if code >= 0:
            held[n_held] = offsets[variable] + code
            n_held += 1
    return n_held


@njit(nogil=True)
def _find_posterior(held, log_prior, log_factors, posterior):  # type: ignore[no-untyped-def]
    """Posterior of the latent state given the levels held, and the log-probability of these."""
    rank = log_prior.size
    for f in range(rank):
        posterior[f] = log_prior[f]
    for i in range(held.size):
        row = log_factors[held[i]]
        for f in range(rank):
            posterior[f] += row[f]
    largest = posterior[0]
    for f in range(1, rank):
        largest = max(largest, posterior[f])
    total = 0.0
    for f in range(rank):
        posterior[f] = math.exp(posterior[f] - largest)
        total += posterior[f]
    for f in range(rank):
        posterior[f] /= total
    return largest + math.log(total)


@njit(nogil=True)
def _add_masses(held, posterior, level_mass, state_mass):  # type: ignore[no-untyped-def]
    """Add one row's posterior to the sufficient statistics."""
    rank = posterior.size
    for f in range(rank):
        state_mass[f] += posterior[f]
    for i in range(held.size):
        row = level_mass[held[i]]
        for f in range(rank):
            row[f] += posterior[f]


@njit(nogil=True)
def add_statistics_dense(codes, offsets, log_prior, log_factors, level_mass, state_mass):  # type: ignore[no-untyped-def]
    """Add the sufficient statistics of a dense block; returns its log-likelihood, nats.

    codes: signed integers (n_rows, n_variables), -1 missing. offsets: int64 (n_variables + 1,). log_prior: float64
    (rank,). log_factors: float64 (n_levels, rank). level_mass, state_mass: float64, of the shapes of log_factors and
    log_prior, changed in place.
    """
    held = np.empty(codes.shape[1], np.int64)
    posterior = np.empty(log_prior.size)
    log_likelihood = 0.0
    for s in range(codes.shape[0]):
        row = held[: _gather_levels(codes[s], offsets, held)]
        if row.size:
            log_likelihood += _find_posterior(row, log_prior, log_factors, posterior)
            _add_masses(row, posterior, level_mass, state_mass)
    return log_likelihood


@njit(nogil=True)
def add_statistics_sparse(indptr, indices, log_prior, log_factors, level_mass, state_mass):  # type: ignore[no-untyped-def]
    """Add the sufficient statistics of a sparse block; as `add_statistics_dense`, to the same bits."""
    posterior = np.empty(log_prior.size)
    log_likelihood = 0.0
    for s in range(indptr.size - 1):
        row = indices[indptr[s] : indptr[s + 1]]
        if row.size:
            log_likelihood += _find_posterior(row, log_prior, log_factors, posterior)
            _add_masses(row, posterior, level_mass, state_mass)
    return log_likelihood


@njit(nogil=True)
def fill_posteriors(codes, offsets, log_prior, log_factors, posteriors, log_probs):  # type: ignore[no-untyped-def]
    """Posterior of every row, float64 (n_rows, rank), and log-probability, float64 (n_rows,), nats; both are filled."""
    held = np.empty(codes.shape[1], np.int64)
    for s in range(codes.shape[0]):
        row = held[: _gather_levels(codes[s], offsets, held)]
        log_probs[s] = _find_posterior(row, log_prior, log_factors, posteriors[s])
