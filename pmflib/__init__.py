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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pmflib import answering as questions
    from pmflib.answering.weighing import weigh_model
    from pmflib.apps import crowd
    from pmflib.apps.estimators import PMFClassifier, PMFDensity, PMFImputer, PMFTransformer
    from pmflib.apps.recommending.recommending import measure_recommendations, recommend
    from pmflib.apps.scoring.file_scoring import score_file
    from pmflib.base.display.progress_bars import progress
    from pmflib.base.errors import (
        ConvergenceWarning,
        IdentificationWarning,
        PmfError,
        RankWarning,
        SchemaWarning,
    )
    from pmflib.counts.marginals import Marginals
    from pmflib.counts.pair_counts import PairCounts, count_pairs
    from pmflib.counts.triple_counts import count_triples
    from pmflib.em.stored_samples import StoredSamples
    from pmflib.families.groups.groups import fit_groups
    from pmflib.families.panels.fit import fit_transitions
    from pmflib.families.panels.waves import spread_waves
    from pmflib.families.traits.item_responses import fit_item_responses
    from pmflib.families.traits.traits import fit_traits
    from pmflib.fits.fit_result import FitResult
    from pmflib.fits.from_counts import fit, fit_triples
    from pmflib.fits.from_samples import distil, fit_em
    from pmflib.fits.ranks.by_moments import select_nmf_rank
    from pmflib.fits.ranks.by_pairs import select_rank
    from pmflib.fits.ranks.choice import RankChoice
    from pmflib.inference.checks.bivariate_residuals import bivariate_residuals
    from pmflib.inference.checks.diagnostics import diagnose
    from pmflib.inference.checks.rank_tests import likelihood_ratio_test
    from pmflib.inference.errors.standard_errors import standard_errors
    from pmflib.inference.imputation.pooling import pool
    from pmflib.inference.planning.sample_sizes import bound_sample_size, sample_size
    from pmflib.inference.three_steps.classification import classify
    from pmflib.inference.three_steps.three_steps import class_regression, distal_outcome
    from pmflib.model import JointPMF
    from pmflib.papers.nmf_rank import NMFRank
    from pmflib.schema import Schema, Variable
    from pmflib.surveys.design.replicates import fit_replicates
    from pmflib.surveys.design.survey_design import SurveyDesign
    from pmflib.surveys.margins.samples import RakedDesign, rake
    from pmflib.surveys.sites.site_counts import read_counts

__all__ = [
    "ConvergenceWarning",
    "FitResult",
    "IdentificationWarning",
    "JointPMF",
    "Marginals",
    "NMFRank",
    "PMFClassifier",
    "PMFDensity",
    "PMFImputer",
    "PMFTransformer",
    "PairCounts",
    "PmfError",
    "RakedDesign",
    "RankChoice",
    "RankWarning",
    "Schema",
    "SchemaWarning",
    "StoredSamples",
    "SurveyDesign",
    "Variable",
    "bivariate_residuals",
    "bound_sample_size",
    "class_regression",
    "classify",
    "count_pairs",
    "count_triples",
    "crowd",
    "diagnose",
    "distal_outcome",
    "distil",
    "fit",
    "fit_em",
    "fit_groups",
    "fit_item_responses",
    "fit_replicates",
    "fit_traits",
    "fit_transitions",
    "fit_triples",
    "likelihood_ratio_test",
    "measure_recommendations",
    "pool",
    "progress",
    "questions",
    "rake",
    "read_counts",
    "recommend",
    "sample_size",
    "score_file",
    "select_nmf_rank",
    "select_rank",
    "spread_waves",
    "standard_errors",
    "weigh_model",
]

_HOMES = {
    "ConvergenceWarning": "pmflib.base.errors",
    "FitResult": "pmflib.fits.fit_result",
    "IdentificationWarning": "pmflib.base.errors",
    "JointPMF": "pmflib.model",
    "Marginals": "pmflib.counts.marginals",
    "NMFRank": "pmflib.papers.nmf_rank",
    "PMFClassifier": "pmflib.apps.estimators",
    "PMFDensity": "pmflib.apps.estimators",
    "PMFImputer": "pmflib.apps.estimators",
    "PMFTransformer": "pmflib.apps.estimators",
    "PairCounts": "pmflib.counts.pair_counts",
    "PmfError": "pmflib.base.errors",
    "RakedDesign": "pmflib.surveys.margins.samples",
    "RankChoice": "pmflib.fits.ranks.choice",
    "RankWarning": "pmflib.base.errors",
    "Schema": "pmflib.schema",
    "SchemaWarning": "pmflib.base.errors",
    "StoredSamples": "pmflib.em.stored_samples",
    "SurveyDesign": "pmflib.surveys.design.survey_design",
    "Variable": "pmflib.schema",
    "bivariate_residuals": "pmflib.inference.checks.bivariate_residuals",
    "bound_sample_size": "pmflib.inference.planning.sample_sizes",
    "class_regression": "pmflib.inference.three_steps.three_steps",
    "classify": "pmflib.inference.three_steps.classification",
    "count_pairs": "pmflib.counts.pair_counts",
    "count_triples": "pmflib.counts.triple_counts",
    "diagnose": "pmflib.inference.checks.diagnostics",
    "distal_outcome": "pmflib.inference.three_steps.three_steps",
    "distil": "pmflib.fits.from_samples",
    "fit": "pmflib.fits.from_counts",
    "fit_em": "pmflib.fits.from_samples",
    "fit_groups": "pmflib.families.groups.groups",
    "fit_item_responses": "pmflib.families.traits.item_responses",
    "fit_replicates": "pmflib.surveys.design.replicates",
    "fit_traits": "pmflib.families.traits.traits",
    "fit_transitions": "pmflib.families.panels.fit",
    "fit_triples": "pmflib.fits.from_counts",
    "likelihood_ratio_test": "pmflib.inference.checks.rank_tests",
    "measure_recommendations": "pmflib.apps.recommending.recommending",
    "pool": "pmflib.inference.imputation.pooling",
    "progress": "pmflib.base.display.progress_bars",
    "rake": "pmflib.surveys.margins.samples",
    "read_counts": "pmflib.surveys.sites.site_counts",
    "recommend": "pmflib.apps.recommending.recommending",
    "sample_size": "pmflib.inference.planning.sample_sizes",
    "score_file": "pmflib.apps.scoring.file_scoring",
    "select_nmf_rank": "pmflib.fits.ranks.by_moments",
    "select_rank": "pmflib.fits.ranks.by_pairs",
    "spread_waves": "pmflib.families.panels.waves",
    "standard_errors": "pmflib.inference.errors.standard_errors",
    "weigh_model": "pmflib.answering.weighing",
}
"""Module of each public name. Importing all of them takes 0.3 s, which a command like ``pmf --help`` can avoid."""


_FOLDERS = {"crowd": "pmflib.apps.crowd", "questions": "pmflib.answering"}
"""Public modules."""


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return importlib.import_module(_FOLDERS[name])
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("pmflib")
    if name not in _HOMES:
        from pmflib.base.texts import suggest

        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{suggest(name, __all__)}"
        )
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
