"""Mistakes between ordered classes: neighbours are taken for each other more often, as far as the log says so.

The mistakes that all workers make at tasks of one class are a PMF, and the classes' PMFs have a Dirichlet prior. Its
mean falls with the distance from the true class, by the same factor for each step; that factor and the concentration
are those that make the mistakes of the log most probable. A log whose mistakes do not go by distance gets a factor near
1, and one with many labels is hardly changed.
"""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray

DECAY_VARIANCE = 4.0
"""Prior variance of the logarithm of the factor by which mistakes change with each step; its mean is 0."""
DECAY_STEPS = 12
"""Newton steps of that logarithm, of at most 1 each."""
FIRST_CONCENTRATION = 4.0
"""Pseudo-mistakes for each class that learning starts from, and the mode of their Gamma prior of shape 2."""
LEAST_CONCENTRATION, MOST_CONCENTRATION = 0.5, 100.0
"""Limits of what is learnt."""
CONCENTRATION_STEPS = 20
"""Steps of Minka's fixed point: a pass makes them on one matrix, not on one for each worker."""


def share_mistakes(counts: FloatArray) -> FloatArray:
    """Share out the mistakes of all workers among the classes that they are mistaken for.

    Parameters
    ----------
    counts
        float64 of shape (n_classes, n_states), at least 0: labels by true state, in the order of the classes. A state
        ``s`` is of class ``s % n_classes``.

    Returns
    -------
    float64 of the same shape: PMF of the wrong labels of each state, 0 at the right one.

    References
    ----------
    Minka (2000), Estimating a Dirichlet distribution, for the fixed point of the concentration.
    """
    n_classes, n_states = counts.shape
    steps = np.abs(np.arange(n_classes)[:, None] - np.arange(n_states) % n_classes).astype(float)
    mistakes = np.where(steps > 0, counts, 0.0)
    if n_classes < 2:
        return mistakes
    profile = _shape_profile(mistakes, steps)
    shared = mistakes + _learn_concentration(mistakes, profile) * profile
    return np.asarray(shared / shared.sum(axis=0))


def _shape_profile(mistakes: FloatArray, steps: FloatArray) -> FloatArray:
    """PMFs of mistakes that change with each step by the factor that makes those of the log most probable."""
    totals, observed, log_factor = mistakes.sum(axis=0), float((mistakes * steps).sum()), 0.0
    for _ in range(DECAY_STEPS):
        profile = _decay(steps, log_factor)
        means = (profile * steps).sum(axis=0)
        spread = (profile * steps**2).sum(axis=0) - means**2
        slope = observed - totals @ means - log_factor / DECAY_VARIANCE
        log_factor += float(np.clip(slope / (totals @ spread + 1.0 / DECAY_VARIANCE), -1.0, 1.0))
    return _decay(steps, log_factor)


def _decay(steps: FloatArray, log_factor: float) -> FloatArray:
    logs = log_factor * steps
    weights = np.where(steps > 0, np.exp(logs - logs.max()), 0.0)
    return np.asarray(weights / weights.sum(axis=0))


def _learn_concentration(mistakes: FloatArray, profile: FloatArray) -> float:
    """Pseudo-mistakes of each state about the profile that make the mistakes most probable."""
    from pmflib.kernels.digamma import find_rises

    wrong = profile > 0
    n_cells = int(wrong.sum())
    values = np.concatenate([mistakes[wrong], mistakes.sum(axis=0)])
    shares = np.concatenate([profile[wrong], np.ones(mistakes.shape[1])])
    rises, concentration = np.empty(values.size), FIRST_CONCENTRATION
    for _ in range(CONCENTRATION_STEPS):
        find_rises(values, shares, concentration, rises)
        spent, gained = float(rises[n_cells:].sum()), float(rises[:n_cells] @ shares[:n_cells])
        renewed = (concentration * gained + 1.0) / (spent + 1.0 / FIRST_CONCENTRATION)
        concentration = min(max(renewed, LEAST_CONCENTRATION), MOST_CONCENTRATION)
    return concentration
