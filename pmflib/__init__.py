"""Learn the joint distribution of many categorical variables from pairwise co-occurrence counts.

>>> import numpy as np, pmflib as pmf
>>> rng = np.random.default_rng(0)
>>> side = rng.integers(2, size=(5000, 1))
>>> codes = np.where(rng.random((5000, 4)) < 0.9, side, 1 - side)
>>> result = pmf.fit_em(codes, pmf.fit(pmf.count_pairs(codes, [2] * 4), rank=2).model)
>>> result.model.predict_proba(np.array([[-1, 1, 1, 1]]), 0).round(1).tolist()
[[0.1, 0.9]]
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pmflib import answering as answering
    from pmflib import apps as apps
    from pmflib import counts as counts
    from pmflib import em as em
    from pmflib import families as families
    from pmflib import fits as fits
    from pmflib import inference as inference
    from pmflib import papers as papers
    from pmflib import surveys as surveys
    from pmflib.apps import crowd as crowd
    from pmflib.apps.estimators import PMFClassifier, PMFImputer
    from pmflib.base import errors as errors
    from pmflib.base.codes import Codes
    from pmflib.base.display.progress_bars import progress
    from pmflib.base.errors import PmfError
    from pmflib.counts.open_marginals import open_marginals
    from pmflib.counts.pair_counts import PairCounts, count_pairs
    from pmflib.fits.fit_result import FitResult
    from pmflib.fits.from_counts import fit
    from pmflib.fits.from_samples import fit_em
    from pmflib.model import JointPMF
    from pmflib.schema import Schema, Variable

__all__ = [
    "Codes",
    "FitResult",
    "JointPMF",
    "PMFClassifier",
    "PMFImputer",
    "PairCounts",
    "PmfError",
    "Schema",
    "Variable",
    "count_pairs",
    "fit",
    "fit_em",
    "open_marginals",
    "progress",
]

_HOMES = {
    "Codes": "pmflib.base.codes",
    "FitResult": "pmflib.fits.fit_result",
    "JointPMF": "pmflib.model",
    "PMFClassifier": "pmflib.apps.estimators",
    "PMFImputer": "pmflib.apps.estimators",
    "PairCounts": "pmflib.counts.pair_counts",
    "PmfError": "pmflib.base.errors",
    "Schema": "pmflib.schema",
    "Variable": "pmflib.schema",
    "count_pairs": "pmflib.counts.pair_counts",
    "fit": "pmflib.fits.from_counts",
    "fit_em": "pmflib.fits.from_samples",
    "open_marginals": "pmflib.counts.open_marginals",
    "progress": "pmflib.base.display.progress_bars",
}
"""Module of each public name. Importing all of them takes 0.3 s, which a command like ``pmf --help`` can avoid."""

_PACKAGES = {
    "answering": "pmflib.answering",
    "apps": "pmflib.apps",
    "counts": "pmflib.counts",
    "crowd": "pmflib.apps.crowd",
    "em": "pmflib.em",
    "errors": "pmflib.base.errors",
    "families": "pmflib.families",
    "fits": "pmflib.fits",
    "inference": "pmflib.inference",
    "papers": "pmflib.papers",
    "surveys": "pmflib.surveys",
}
"""Public packages: rooms of the core and wings of features, each with public names of its own."""

_MOVED = {
    "ConvergenceWarning": "errors.ConvergenceWarning",
    "IdentificationWarning": "errors.IdentificationWarning",
    "Marginals": "counts.Marginals",
    "NMFRank": "papers.NMFRank",
    "PMFDensity": "apps.PMFDensity",
    "PMFTransformer": "apps.PMFTransformer",
    "RakedDesign": "surveys.RakedDesign",
    "RankChoice": "fits.RankChoice",
    "RankWarning": "errors.RankWarning",
    "SchemaWarning": "errors.SchemaWarning",
    "StoredSamples": "em.StoredSamples",
    "SurveyDesign": "surveys.SurveyDesign",
    "bivariate_residuals": "inference.bivariate_residuals",
    "bound_sample_size": "inference.bound_sample_size",
    "class_regression": "inference.class_regression",
    "classify": "inference.classify",
    "count_triples": "counts.count_triples",
    "diagnose": "inference.diagnose",
    "distal_outcome": "inference.distal_outcome",
    "distil": "fits.distil",
    "fit_groups": "families.fit_groups",
    "fit_item_responses": "families.fit_item_responses",
    "fit_replicates": "surveys.fit_replicates",
    "fit_traits": "families.fit_traits",
    "fit_transitions": "families.fit_transitions",
    "fit_triples": "fits.fit_triples",
    "likelihood_ratio_test": "inference.likelihood_ratio_test",
    "measure_recommendations": "apps.measure_recommendations",
    "pool": "inference.pool",
    "questions": "answering",
    "rake": "surveys.rake",
    "read_counts": "surveys.read_counts",
    "recommend": "apps.recommend",
    "sample_size": "inference.sample_size",
    "score_file": "apps.score_file",
    "select_nmf_rank": "fits.select_nmf_rank",
    "select_rank": "fits.select_rank",
    "spread_waves": "families.spread_waves",
    "standard_errors": "inference.standard_errors",
    "weigh_model": "answering.weigh_model",
}
"""Names of version 0.1, which were all at the top, and where they are now."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(_PACKAGES[name])
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("pmflib")
    if name in _MOVED:
        warnings.warn(
            f"pmflib.{name} is deprecated, and is removed in the next version; use pmflib.{_MOVED[name]}",
            DeprecationWarning,
            stacklevel=2,
        )
        package, _, attribute = _MOVED[name].partition(".")
        found = importlib.import_module(_PACKAGES[package])
        return getattr(found, attribute) if attribute else found
    if name not in _HOMES:
        from pmflib.base.texts import suggest

        known = (*__all__, *_PACKAGES)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{suggest(name, known)}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
