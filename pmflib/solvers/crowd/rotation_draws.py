"""Turns of a square root that pairs cannot tell apart: drawn from their posterior, by a random walk."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln, log_ndtr

from pmflib.arrays import FloatArray
from pmflib.solvers.crowd.worker_marginals import WorkerPairs
from pmflib.solvers.numeric.rotation import find_nearest_rotation

SETTLING = 1000
"""Steps that find their size, and are not drawn."""
STRIDE = 50
"""Steps from one draw to the next."""
TRIAL = 50
"""Steps between changes of their size."""
FIRST_SIZE = 0.05
"""Standard deviation of the angles of the first steps, radians."""
SIZES = (1e-6, 0.5)
LIKELY = (0.15, 0.4)
"""Shares of steps taken between which their size is right."""
LEAST_NOISE = 1e-5
"""Least standard deviation of an entry of the root, as a share of its root mean square."""
LEAST_ENTRY = 1e-3
"""Probabilities below this are as good as it for how spread confusion matrices are."""
CONCENTRATIONS = np.geomspace(0.5, 4.0, 10)
"""How spread columns of confusion matrices may be: parameters of a symmetric Dirichlet distribution."""


def measure_noise(root: FloatArray, pairs: WorkerPairs) -> FloatArray:
    """Covariance of the errors of every annotator's rows of a square root, from how far its pairs are from the root's.

    Parameters
    ----------
    root
        float64 of shape (n_annotators * n_classes, n_classes), U with U_m U_j' near the pairs' marginals.
    pairs
        Pairwise marginals.

    Returns
    -------
    float64 of shape (n_annotators, n_classes, n_classes): that of a row of U_m as least squares would find it from the
    others, with the mean squared residual of the annotator's pairs.
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


def draw_turns(
    root: FloatArray,
    noise: FloatArray,
    start: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Draw nonnegative square roots that the pairs cannot tell from a given one.

    Parameters
    ----------
    root
        float64 of shape (n_annotators * n_classes, n_classes).
    noise
        Covariance of its rows, as from `measure_noise`.
    start
        Nonnegative matrix near the turned root to start from, as from `rotate_nonnegative`.
    n_draws
        Number of draws.
    rng
        Source of randomness.

    Returns
    -------
    As many turned roots, rectified, their columns in the order of the first.

    Notes
    -----
    Beforehand, all columns of confusion matrices and the prior have Dirichlet distributions: even for the prior, and of
    a concentration that is drawn along for the columns. A turn is then as probable as all its entries are nonnegative
    but for their errors, times the density of what it says of annotators: the prior to the power of -1/2 for every free
    entry of a column, for a column of the root is that of a confusion matrix times the square root of the prior.

    References
    ----------
    Metropolis et al. (1953), Journal of Chemical Physics 21, for the walk.
    """
    n_classes = root.shape[1]
    if n_classes == 1 or not root.any():
        return [start] * n_draws
    target = _Target(root, noise)
    here = find_nearest_rotation(root.T @ start)
    height, logs = target.weigh(here)
    size, taken, pick = FIRST_SIZE, 0, int(np.argmin(np.abs(np.log(CONCENTRATIONS))))
    places = np.triu_indices(n_classes, 1)
    drawn: list[FloatArray] = []
    for step in range(1, SETTLING + n_draws * STRIDE + 1):
        there = here @ _rotate_by(rng.normal(0.0, size, places[0].size), n_classes)
        new_height, new_logs = target.weigh(there)
        gain = new_height - height + (CONCENTRATIONS[pick] - 1) * (new_logs - logs)
        if np.log(rng.random()) < gain:
            here, height, logs, taken = there, new_height, new_logs, taken + 1
        if step % TRIAL == 0:
            pick = target.draw_concentration(logs, rng)
            if step <= SETTLING:
                share, taken = taken / TRIAL, 0
                size *= 1.5 if share > LIKELY[1] else 0.6 if share < LIKELY[0] else 1.0
                size = float(np.clip(size, *SIZES))
        if step > SETTLING and step % STRIDE == 0:
            turned = np.maximum(root @ here, 0.0)
            first = drawn[0] if drawn else turned
            drawn.append(turned[:, linear_sum_assignment(-first.T @ turned)[1]])
    return drawn


class _Target:
    """Log-density of turns."""

    def __init__(self, root: FloatArray, noise: FloatArray) -> None:
        n_classes = root.shape[1]
        self.kept = np.abs(root.reshape(-1, n_classes * n_classes)).max(axis=1) > 0
        self.root = root.reshape(-1, n_classes, n_classes)[self.kept]
        self.noise = noise[self.kept]
        size = self.root.shape[0] * n_classes
        self.free = size * (n_classes - 1) / (2 * n_classes)
        self.levels = size * (
            gammaln(n_classes * CONCENTRATIONS) - n_classes * gammaln(CONCENTRATIONS)
        )

    def weigh(self, turn: FloatArray) -> tuple[float, float]:
        """Log-density under concentration 1, and the sum of the logarithms of the confusion matrices."""
        turned = self.root @ turn
        squares = (turn[:, None] * turn).reshape(-1, turn.shape[1])
        errors = np.sqrt(np.maximum(self.noise.reshape(-1, len(squares)) @ squares, 1e-300))
        height = float(log_ndtr(turned / errors[:, None, :]).sum())
        sums = np.maximum(turned, 0.0).sum(axis=1)
        prior = np.maximum((sums**2).mean(axis=0), 1e-12)
        height -= self.free * float(np.log(prior / prior.sum()).sum())
        shares = turned / np.maximum(sums, 1e-12)[:, None, :]
        return height, float(np.log(np.maximum(shares, LEAST_ENTRY)).sum())

    def draw_concentration(self, logs: float, rng: np.random.Generator) -> int:
        """Place in ``CONCENTRATIONS`` of one drawn for given confusion matrices."""
        heights = self.levels + (CONCENTRATIONS - 1) * logs
        chances = np.exp(heights - heights.max()).cumsum()
        return int(np.searchsorted(chances, rng.random() * chances[-1]))


def _rotate_by(angles: FloatArray, n_classes: int) -> FloatArray:
    """Rotation by small angles in the planes of each two columns, Cayley's."""
    skew = np.zeros((n_classes, n_classes))
    skew[np.triu_indices(n_classes, 1)] = angles / 2
    skew -= skew.T
    return np.asarray(np.linalg.solve(np.eye(n_classes) - skew, np.eye(n_classes) + skew))
