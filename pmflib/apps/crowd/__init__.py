"""Crowdsourced labels: labels of many workers in, true labels and every worker's confusion matrix out.

The same model as everything else: a variable is a worker, a sample a task, a latent state a class.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
    from pmflib.apps.crowd.options import CrowdOptions
    from pmflib.apps.crowd.tags.tag_log import TagLog, read_tags
    from pmflib.apps.crowd.tags.tags import TagAggregation, aggregate_tags
    from pmflib.apps.crowd.true_labels import Aggregation

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
    "Aggregation": "true_labels",
    "Calibration": "confidence",
    "CrowdAggregator": "estimators",
    "CrowdOptions": "options",
    "DawidSkene": "estimators",
    "LabelLog": "label_log",
    "MajorityVote": "estimators",
    "OneCoinDawidSkene": "estimators",
    "TagAggregation": "tags.tags",
    "TagLog": "tags.tag_log",
    "aggregate": "aggregation",
    "aggregate_tags": "tags.tags",
    "calibrate": "confidence",
    "read_labels": "label_log",
    "read_tags": "tags.tag_log",
}
"""Module of each public name: the table of methods and the options load none of them, and estimators scikit-learn."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
