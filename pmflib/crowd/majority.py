"""Majority vote: the classes' shares of the votes, and the confusion matrices that these imply."""

from __future__ import annotations

import numpy as np

from pmflib.crowd.e_step import LogWeights, cut_log, score_blocks
from pmflib.crowd.label_log import LabelLog
from pmflib.crowd.true_labels import Aggregation
from pmflib.solvers.crowd.annotator_model import MAXIMUM_LIKELIHOOD, CrowdModel


def take_majority(log: LabelLog) -> Aggregation:
    """Take the shares of the votes for posteriors.

    Parameters
    ----------
    log
        Labels as codes.
    """
    weights = LogWeights.from_votes(log.n_workers, log.n_classes)
    posterior = score_blocks(cut_log(log), weights, log.n_classes)
    n_labels = np.diff(log.block.indptr)
    counted = np.zeros((log.n_workers * log.n_classes, log.n_classes))
    np.add.at(counted, log.block.indices, posterior[np.repeat(np.arange(log.n_tasks), n_labels)])
    states = posterior[n_labels > 0].sum(axis=0) + 1.0
    mass = counted.reshape(-1, log.n_classes, log.n_classes)
    model = CrowdModel(states, mass, 0.0, MAXIMUM_LIKELIHOOD)
    return Aggregation(log, posterior, model.prior, model.confusion, "majority")
