"""Posterior draws, by a random walk, of rotations of a square root that pairs of workers do not identify."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_ndtr

from pmflib.apps.crowd.pairs.class_matching import match_columns
from pmflib.apps.crowd.pairs.worker_marginals import WorkerPairs
from pmflib.base.arrays import FloatArray
from pmflib.papers.rotation import find_nearest_rotation

LEAST_NOISE = 1e-5
"""Minimum standard deviation of an entry of the root, relative to its root mean square; exact pairs have rounding
errors."""
LEAST_ENTRY = 1e-3
"""Floor for the probabilities from which the concentration of confusion matrices is computed."""
CONCENTRATIONS = np.geomspace(0.5, 4.0, 10)
"""Candidate parameters of the symmetric Dirichlet distribution of the columns of confusion matrices, from nearly
certain to nearly uniform."""


@dataclass(frozen=True)
class RandomWalk:
    """Parameters of the random walk. benchmarks/crowd/noiseless.py measures its accuracy on exact pairs.

    Parameters
    ----------
    burn_in
        Number of initial steps, which tune the step size and are discarded.
    thinning
        Number of steps between draws.
    tuning_interval
        Number of steps between changes of the step size, and between draws of the concentration.
    first_step_size
        Standard deviation of the angles of the first steps, radians.
    least_step_size, longest_step_size
        Limits of that standard deviation, radians.
    least_acceptance, most_acceptance
        Range of acceptance rates in which the step size is kept; about a quarter is optimal in many dimensions
        (Roberts, Gelman, Gilks 1997, Annals of Applied Probability 7).
    """

    burn_in: int = 1000
    thinning: int = 50
    tuning_interval: int = 50
    first_step_size: float = 0.05
    least_step_size: float = 1e-6
    longest_step_size: float = 0.5
    least_acceptance: float = 0.15
    most_acceptance: float = 0.4

    def tune(self, step_size: float, acceptance: float) -> float:
        """Return the step size after an interval with the given acceptance rate."""
        if acceptance > self.most_acceptance:
            step_size *= 1.5
        elif acceptance < self.least_acceptance:
            step_size *= 0.6
        return float(np.clip(step_size, self.least_step_size, self.longest_step_size))


WALK = RandomWalk()


def measure_noise(root: FloatArray, pairs: WorkerPairs) -> FloatArray:
    """Estimate the error covariance of each worker's rows of a square root from the residuals of its pairs.

    Parameters
    ----------
    root
        float64 of shape (n_workers * n_classes, n_classes): U, such that U_m U_j' is close to the pairs' marginals.
    pairs
        Pairwise marginals.

    Returns
    -------
    float64 of shape (n_workers, n_classes, n_classes): covariance of the least-squares estimate of a row of U_m given
    the other workers, with the mean squared residual of the worker's pairs.
    """
    n_classes = root.shape[1]
    factors = root.reshape(-1, n_classes, n_classes)
    model = factors[pairs.first] @ factors[pairs.second].transpose(0, 2, 1)
    misses = ((pairs.blocks - model) ** 2).mean(axis=(1, 2))
    own = factors.transpose(0, 2, 1) @ factors
    squares, number = np.zeros(len(factors)), np.zeros(len(factors))
    gram = np.zeros_like(factors)
    for one, other in ((pairs.first, pairs.second), (pairs.second, pairs.first)):
        np.add.at(squares, one, misses)
        np.add.at(number, one, 1)
        np.add.at(gram, one, own[other])
    size = float(np.mean(root**2))
    gram += np.maximum(size * 1e-6, 1e-300) * np.eye(n_classes)
    spread = np.linalg.inv(gram) * (squares / np.maximum(number, 1))[:, None, None]
    return np.asarray(spread + LEAST_NOISE**2 * size * np.eye(n_classes))


def draw_roots(
    root: FloatArray,
    noise: FloatArray,
    start: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Draw nonnegative square roots that fit the pairs as well as a given one.

    Parameters
    ----------
    root
        float64 of shape (n_workers * n_classes, n_classes).
    noise
        Covariance of its rows, as from `measure_noise`.
    start
        Nonnegative matrix near the rotated root to start from, as from `rotate_nonnegative`.
    n_draws
        Number of draws.
    rng
        Random number generator.

    Returns
    -------
    ``n_draws`` rotated roots, with negative entries set to 0 and columns in the order of the first.

    Notes
    -----
    The columns of confusion matrices and the class prior have symmetric Dirichlet prior distributions: uniform for the
    class prior, and with a concentration that is sampled as well for the columns. The density of a rotation is the
    probability that all entries are nonnegative up to their errors, times the prior density of the workers' parameters.
    The latter includes the class prior to the power of -1/2 for every free entry of a column, because a column of the
    root is a column of a confusion matrix times the square root of the class prior.

    References
    ----------
    Metropolis et al. (1953), Journal of Chemical Physics 21, for the walk.
    """
    # importing it takes longer than processing most label logs

    n_classes = root.shape[1]
    if n_classes == 1 or not root.any():
        return [start] * n_draws
    target = _Target(root, noise)
    here = find_nearest_rotation(root.T @ start)
    density, logs = target.weigh(here)
    pick = int(np.argmin(np.abs(np.log(CONCENTRATIONS))))
    step_size, n_accepted = WALK.first_step_size, 0
    n_angles = n_classes * (n_classes - 1) // 2
    samples: list[FloatArray] = []
    for step in range(1, WALK.burn_in + n_draws * WALK.thinning + 1):
        there = here @ _rotate_by(rng.normal(0.0, step_size, n_angles), n_classes)
        new_density, new_logs = target.weigh(there)
        gain = new_density - density + (CONCENTRATIONS[pick] - 1) * (new_logs - logs)
        if np.log(rng.random()) < gain:
            here, density, logs, n_accepted = there, new_density, new_logs, n_accepted + 1
        if step % WALK.tuning_interval == 0:
            pick = target.draw_concentration(logs, rng)
            if step <= WALK.burn_in:
                step_size = WALK.tune(step_size, n_accepted / WALK.tuning_interval)
                n_accepted = 0
        if step > WALK.burn_in and step % WALK.thinning == 0:
            rotated = np.maximum(root @ here, 0.0)
            first = samples[0] if samples else rotated
            samples.append(rotated[:, match_columns(first.T @ rotated)])
    return samples


class _Target:
    """Log-density of rotations."""

    def __init__(self, root: FloatArray, noise: FloatArray) -> None:
        n_classes = root.shape[1]
        kept = np.abs(root.reshape(-1, n_classes * n_classes)).max(axis=1) > 0
        self.root = root.reshape(-1, n_classes, n_classes)[kept]
        self.noise = noise[kept]
        n_columns = self.root.shape[0] * n_classes
        self.free = n_columns * (n_classes - 1) / (2 * n_classes)
        self.normalisers = n_columns * (
            gammaln(n_classes * CONCENTRATIONS) - n_classes * gammaln(CONCENTRATIONS)
        )

    def weigh(self, rotation: FloatArray) -> tuple[float, float]:
        """Compute the log-density for concentration 1, and the sum of the logarithms of the confusion matrices."""
        rotated = self.root @ rotation
        squares = (rotation[:, None] * rotation).reshape(-1, rotation.shape[1])
        errors = np.sqrt(np.maximum(self.noise.reshape(-1, len(squares)) @ squares, 1e-300))
        density = float(log_ndtr(rotated / errors[:, None, :]).sum())
        sums = np.maximum(rotated, 0.0).sum(axis=1)
        prior = np.maximum((sums**2).mean(axis=0), 1e-12)
        density -= self.free * float(np.log(prior / prior.sum()).sum())
        shares = rotated / np.maximum(sums, 1e-12)[:, None, :]
        return density, float(np.log(np.maximum(shares, LEAST_ENTRY)).sum())

    def draw_concentration(self, logs: float, rng: np.random.Generator) -> int:
        """Draw a concentration given confusion matrices, and return its index in ``CONCENTRATIONS``."""
        densities = self.normalisers + (CONCENTRATIONS - 1) * logs
        edges = np.exp(densities - densities.max()).cumsum()
        return int(np.searchsorted(edges, rng.random() * edges[-1]))


def _rotate_by(angles: FloatArray, n_classes: int) -> FloatArray:
    """Return the rotation by small angles in the planes of all pairs of columns, by the Cayley transform."""
    skew = np.zeros((n_classes, n_classes))
    skew[np.triu_indices(n_classes, 1)] = angles / 2
    skew -= skew.T
    return np.asarray(np.linalg.solve(np.eye(n_classes) - skew, np.eye(n_classes) + skew))
