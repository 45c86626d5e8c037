"""How good workers are, and how well that is known."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.solvers.crowd.shrinkage import SHRINKAGE


def measure_skills(model: CrowdModel) -> tuple[FloatArray, FloatArray]:
    """Probability that a worker labels a task drawn at random right, and its standard error, both (n_workers,).

    The probability is the mean of the diagonal of the worker's confusion matrix under the class prior. Its log odds
    have the prior variance of skills, and every label has the information of one that is right as often: of a worker
    without a label, the skill is that of all workers, and hardly known.

    Parameters
    ----------
    model
        Crowd model with one subclass: that of a calibration, whose labels count by calibrated posteriors.
    """
    skill = np.diagonal(model.confusion, axis1=1, axis2=2) @ model.prior
    pseudo_labels = model.pseudo_count * model.n_classes
    n_labels = np.maximum(model.mass.sum(axis=(1, 2)) - pseudo_labels, 0.0)
    spread = skill * (1 - skill)
    information = n_labels * spread + 1 / SHRINKAGE.skill_variance
    return np.asarray(skill), np.asarray(spread / np.sqrt(information))
