"""Crowdsourced labels: labels of many workers in, true labels and every worker's confusion matrix out.

The same model as everything else: a variable is a worker, a sample a task, a latent state a class.
"""

from pmflib.base.faces import make_face

__all__ = [
    "Aggregation",
    "Calibration",
    "CrowdAggregator",
    "CrowdOptions",
    "DawidSkene",
    "LabelLog",
    "MajorityVote",
    "OneCoinDawidSkene",
    "TagAggregation",
    "TagLog",
    "aggregate",
    "aggregate_tags",
    "calibrate",
    "read_labels",
    "read_tags",
]

__getattr__, __dir__ = make_face(__name__)
