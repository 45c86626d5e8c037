"""The table of methods that only a pipeline has."""

from pmflib.base.methods import tabulate
from pmflib_tasks.features import FEATURES

SAMPLE_METHODS = tabulate(*(method for feature in FEATURES for method in feature.methods))
"""Methods available only in the pipeline, which features declare.

"samples" fits samples directly; the stages `select` and `fit` are skipped. "choice" fits both ways and compares them:
called with a `PairedGain`, it returns a `ModelChoice`.
"""
