"""The most surprising cell of each row, and the expected log-probability of rows with the same missing cells."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.model.kernels.em_arguments import INNER, UNCOUNTED

SAFE = 1e-30
"""Smallest conditional probability that a posterior is divided by: posteriors lost below 1e-90
(`pmflib.model.kernels.em_arguments.THRESHOLD`) then remain negligible.
"""
LANES = 4
"""Number of partial sums over states; fixing their order makes vector code and plain code agree."""
U1, U2, U3 = np.uint64(1), np.uint64(2), np.uint64(3)


@compile_kernel(saved=False, **INNER)
def _add_logs(codes, r, offsets, log_prior, log_factors, logs):  # type: ignore[no-untyped-def]
    """Compute the log of the joint probability of each state and the observed cells of a row."""
    for f in range(log_prior.size):
        logs[f] = log_prior[f]
    for n in range(codes.shape[1]):
        if codes[r, n] >= 0:
            for f in range(log_prior.size):
                logs[f] += log_factors[offsets[n] + codes[r, n], f]


@compile_kernel(saved=False, **INNER)
def _weigh_without(logs, log_factors, level, weights):  # type: ignore[no-untyped-def]
    """Compute the unnormalised posterior without one cell, from `_add_logs`; returns that cell's probability."""
    peak = -math.inf
    for f in range(logs.size):
        peak = max(peak, logs[f] - log_factors[level, f])
    above, below = 0.0, 0.0
    for f in range(logs.size):
        weights[f] = math.exp(logs[f] - log_factors[level, f] - peak)
        above += weights[f] * math.exp(log_factors[level, f])
        below += weights[f]
    return above / below


@compile_kernel(saved=False, **INNER)
def _find_expected(factors, first, stop, weights, rank):  # type: ignore[no-untyped-def]
    """Return the most probable level of a variable and its probability under an unnormalised posterior."""
    total = 0.0
    for f in range(rank):
        total += weights[f]
    most, expected = -1.0, 0
    for level in range(first, stop):
        chance = 0.0
        for f in range(rank):
            chance += weights[f] * factors[level, f]
        if chance > most:
            most, expected = chance, level - first
    return expected, min(most / total, 1.0)


@lru_cache
def make_find_surprises(padded: int) -> Any:
    """Make the kernel for tables of ``padded`` columns, a multiple of ``LANES``.

    It takes ``(codes, offsets, posteriors, tables, work, found)``. codes: int8 or int16 (n_rows, n_variables), -1
    missing. offsets: int64 (n_variables + 1,). posteriors: float64 (n_rows, rank). tables: inverses of the
    probabilities of the levels, (n_levels * padded,), 0 in the padding; safe, uint8 (n_levels,), whether all are at
    least ``SAFE``; factors, and the logarithms of prior and factors, finite. work: float64 (2, padded), zeros. Filled
    are, (n_rows,) each: states int32; variables int32, -1 where nothing is observed; probabilities float64, nan there;
    expected int32 and expected_probabilities, likewise.

    The probability of a cell given the others is ``1 / sum_f posterior_f / A[x, f]``; if a probability is too small to
    divide by, the same is computed in the log domain. Ties go to the first level.
    """

    @compile_kernel(padded, **UNCOUNTED)
    def find_surprises(codes, offsets, posteriors, tables, work, found):  # type: ignore[no-untyped-def]
        inverses, safe, factors, log_prior, log_factors = tables
        states, variables, probabilities, expected, expected_probabilities = found
        rank = log_prior.size
        weights, logs = work[0], work[1, :rank]
        for r in range(codes.shape[0]):
            best = 0
            for f in range(rank):
                weights[f] = posteriors[r, f]
                if weights[f] > weights[best]:
                    best = f
            states[r] = best
            most, index, has_logs = 0.0, -1, False
            for n in range(codes.shape[1]):
                code = codes[r, n]
                if code < 0:
                    continue
                level = offsets[n] + code
                if safe[level]:
                    at = np.uint64(level) * np.uint64(padded)
                    s0 = s1 = s2 = s3 = 0.0
                    for k in range(0, padded, LANES):
                        u = np.uint64(k)
                        s0 += weights[u] * inverses[at + u]
                        s1 += weights[u + U1] * inverses[at + u + U1]
                        s2 += weights[u + U2] * inverses[at + u + U2]
                        s3 += weights[u + U3] * inverses[at + u + U3]
                    ratio = (s0 + s1) + (s2 + s3)
                else:
                    if not has_logs:
                        has_logs = True
                        _add_logs(codes, r, offsets, log_prior, log_factors, logs)
                    chance = _weigh_without(logs, log_factors, level, weights)
                    ratio = 1.0 / chance if chance > 0 else math.inf
                    for f in range(rank):
                        weights[f] = posteriors[r, f]
                if ratio > most:
                    most, index = ratio, n
            variables[r], expected[r] = index, -1
            probabilities[r] = expected_probabilities[r] = math.nan
            if index < 0:
                continue
            probabilities[r] = min(1.0 / most, 1.0)
            level = offsets[index] + codes[r, index]
            # unnormalised posterior given the other cells
            if safe[level]:
                at = np.uint64(level) * np.uint64(padded)
                for f in range(rank):
                    weights[f] *= inverses[at + np.uint64(f)]
            else:
                _weigh_without(logs, log_factors, level, weights)
            expected[r], expected_probabilities[r] = _find_expected(
                factors, offsets[index], offsets[index + 1], weights, rank
            )

    return find_surprises


@compile_kernel(**UNCOUNTED)
def expect_log_probs(codes, log_prior, gains, prior, means, deviations, n_observed, work):  # type: ignore[no-untyped-def]
    """Compute the expected log-probability of rows that share a pattern of observed cells.

    codes: (n_rows, n_variables), -1 missing. log_prior, prior: (rank,). gains: float64 (n_variables, 4 + rank), of each
    variable the mean given the state of its log-probability; variance of that within states; variance of the logarithm
    of its marginal; logarithm of the share of the entropy of the state that it leaves; and the first by state. Filled
    are means and deviations, float64 (n_rows,), nats, 0 for a row with nothing observed, and n_observed, int32. work:
    float64 (2, 4 + rank).

    The mean is ``sum_n E[log A_n[x, f]] - k H(f)``, where the observed variables say the share
    ``k = 1 - prod_n (1 - I(x_n; f) / H(f))`` of the entropy of the state, as if each left its share of what the others
    leave. The variance lies between that of independent variables, ``k = 0``, and that of a state that is known,
    ``k = 1``: within states, and between them; the weight of the second is ``k**2``.
    """
    n_variables, rank = codes.shape[1], log_prior.size
    complete, sums = work[0], work[1]
    entropy = 0.0
    for f in range(rank):
        entropy -= prior[f] * log_prior[f]
    for k in range(4 + rank):
        complete[k] = 0.0
        for n in range(n_variables):
            complete[k] += gains[n, k]
    for r in range(codes.shape[0]):
        n_present = 0
        for n in range(n_variables):
            n_present += codes[r, n] >= 0
        n_observed[r] = n_present
        means[r] = deviations[r] = 0.0
        if n_present == 0:
            continue
        # the shorter way: add the observed variables, or subtract the missing ones
        from_all = 2 * n_present > n_variables
        sign = -1.0 if from_all else 1.0
        for k in range(4 + rank):
            sums[k] = complete[k] if from_all else 0.0
        if not (from_all and n_present == n_variables):
            for n in range(n_variables):
                if (codes[r, n] < 0) == from_all:
                    for k in range(4 + rank):
                        sums[k] += sign * gains[n, k]
        known = 1.0 - math.exp(sums[3])
        mean, between = 0.0, 0.0
        for f in range(rank):
            mean += prior[f] * (sums[4 + f] + known * log_prior[f])
        for f in range(rank):
            between += prior[f] * (sums[4 + f] + known * log_prior[f] - mean) ** 2
        weight = known * known
        variance = weight * (sums[1] + between) + (1.0 - weight) * sums[2]
        means[r] = sums[0] - entropy * known
        deviations[r] = math.sqrt(max(variance, 0.0))
