"""Crowdsourced labels: labels of many workers in, true labels and every worker's confusion matrix out.

The same model as everything else: a variable is a worker, a sample a task, a latent state a class.
"""

import importlib
from typing import TYPE_CHECKING, Any

from pmflib.apps.crowd.aggregation import aggregate
from pmflib.apps.crowd.confidence import Calibration, calibrate
from pmflib.apps.crowd.label_log import LabelLog, read_labels
from pmflib.apps.crowd.tags.tag_log import TagLog, read_tags
from pmflib.apps.crowd.tags.tags import TagAggregation, aggregate_tags
from pmflib.apps.crowd.true_labels import Aggregation
from pmflib.base.options import CrowdOptions

if TYPE_CHECKING:
    from pmflib.apps.crowd.estimators import (
        CrowdAggregator,
        DawidSkene,
        MajorityVote,
        OneCoinDawidSkene,
    )

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

_ESTIMATORS = ("CrowdAggregator", "DawidSkene", "MajorityVote", "OneCoinDawidSkene")
"""Names that load scikit-learn, which takes a second: only where one is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("pmflib.apps.crowd.estimators"), name)
