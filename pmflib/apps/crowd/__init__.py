"""Crowdsourced labels: labels of many workers in, true labels and every worker's confusion matrix out.

The same model as everything else: a variable is a worker, a sample a task, a latent state a class.
"""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.apps.crowd.aggregation import aggregate
    from pmflib.apps.crowd.confidence import Calibration, calibrate
    from pmflib.apps.crowd.estimators import (
        CrowdAggregator,
        DawidSkene,
        MajorityVote,
        OneCoinDawidSkene,
    )
    from pmflib.apps.crowd.label_log import LabelLog, read_labels
    from pmflib.apps.crowd.tags.tag_log import TagLog, read_tags
    from pmflib.apps.crowd.tags.tags import TagAggregation, aggregate_tags
    from pmflib.apps.crowd.true_labels import Aggregation
    from pmflib.base.options import CrowdOptions

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

_HOMES = {
    "Aggregation": "pmflib.apps.crowd.true_labels",
    "Calibration": "pmflib.apps.crowd.confidence",
    "CrowdAggregator": "pmflib.apps.crowd.estimators",
    "CrowdOptions": "pmflib.base.options",
    "DawidSkene": "pmflib.apps.crowd.estimators",
    "LabelLog": "pmflib.apps.crowd.label_log",
    "MajorityVote": "pmflib.apps.crowd.estimators",
    "OneCoinDawidSkene": "pmflib.apps.crowd.estimators",
    "TagAggregation": "pmflib.apps.crowd.tags.tags",
    "TagLog": "pmflib.apps.crowd.tags.tag_log",
    "aggregate": "pmflib.apps.crowd.aggregation",
    "aggregate_tags": "pmflib.apps.crowd.tags.tags",
    "calibrate": "pmflib.apps.crowd.confidence",
    "read_labels": "pmflib.apps.crowd.label_log",
    "read_tags": "pmflib.apps.crowd.tags.tag_log",
}

__getattr__, __dir__ = make_face(__name__, _HOMES)
