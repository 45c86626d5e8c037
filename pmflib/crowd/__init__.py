"""Crowdsourced labels: answers of many annotators in, true labels and every annotator's confusion matrix out.

The same model as everything else: a variable is an annotator, a sample an item, a latent state a class.
"""

from pmflib.crowd.aggregation import aggregate
from pmflib.crowd.estimators import (
    CrowdAggregator,
    DawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
)
from pmflib.crowd.label_log import Answers, read_answers
from pmflib.crowd.true_labels import Aggregation

__all__ = [
    "Aggregation",
    "Answers",
    "CrowdAggregator",
    "DawidSkene",
    "MajorityVote",
    "OneCoinDawidSkene",
    "aggregate",
    "read_answers",
]
