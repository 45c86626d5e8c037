"""Crowdsourced labels: labels of many workers in, true labels and every worker's confusion matrix out.

The same model as everything else: a variable is a worker, a sample a task, a latent state a class.
"""

from pmflib.crowd.aggregation import aggregate
from pmflib.crowd.estimators import (
    CrowdAggregator,
    DawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
)
from pmflib.crowd.label_log import LabelLog, read_labels
from pmflib.crowd.true_labels import Aggregation

__all__ = [
    "Aggregation",
    "CrowdAggregator",
    "DawidSkene",
    "LabelLog",
    "MajorityVote",
    "OneCoinDawidSkene",
    "aggregate",
    "read_labels",
]
