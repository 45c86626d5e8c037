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
    from pmflib import crowd
    from pmflib.core.errors import (
        ConvergenceWarning,
        IdentificationWarning,
        PmfError,
        RankWarning,
        SchemaWarning,
    )
    from pmflib.core.survey_design import SurveyDesign
    from pmflib.counting.marginals import Marginals
    from pmflib.counting.pair_counts import PairCounts, count_pairs
    from pmflib.counting.raking import RakedDesign, rake
    from pmflib.counting.site_counts import read_counts
    from pmflib.counting.triple_counts import count_triples
    from pmflib.display.progress_bars import progress
    from pmflib.em.stored_samples import StoredSamples
    from pmflib.estimators import PMFClassifier, PMFDensity, PMFImputer, PMFTransformer
    from pmflib.fitting.bivariate_residuals import bivariate_residuals
    from pmflib.fitting.classification import classify
    from pmflib.fitting.diagnostics import diagnose
    from pmflib.fitting.fit_result import FitResult
    from pmflib.fitting.from_counts import fit, fit_triples
    from pmflib.fitting.from_samples import distil, fit_em
    from pmflib.fitting.groups import fit_groups
    from pmflib.fitting.item_responses import fit_item_responses
    from pmflib.fitting.rank_tests import likelihood_ratio_test
    from pmflib.fitting.ranks.by_pairs import select_rank
    from pmflib.fitting.ranks.choice import RankChoice
    from pmflib.fitting.replicates import fit_replicates
    from pmflib.fitting.sample_sizes import bound_sample_size, sample_size
    from pmflib.fitting.standard_errors import standard_errors
    from pmflib.fitting.support_union import NMFRank, select_nmf_rank
    from pmflib.fitting.three_steps import class_regression, distal_outcome
    from pmflib.fitting.traits import fit_traits
    from pmflib.fitting.transitions import fit_transitions
    from pmflib.fitting.weighing import weigh_model
    from pmflib.model import JointPMF, questions
    from pmflib.model.recommending import measure_recommendations, recommend
    from pmflib.schema import Schema, Variable
    from pmflib.schema.waves import spread_waves
    from pmflib.scoring.file_scoring import score_file
    from pmflib.solvers.numeric.pooling import pool

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
    "ConvergenceWarning": "pmflib.core.errors",
    "FitResult": "pmflib.fitting.fit_result",
    "IdentificationWarning": "pmflib.core.errors",
    "JointPMF": "pmflib.model",
    "Marginals": "pmflib.counting.marginals",
    "NMFRank": "pmflib.fitting.support_union",
    "PMFClassifier": "pmflib.estimators",
    "PMFDensity": "pmflib.estimators",
    "PMFImputer": "pmflib.estimators",
    "PMFTransformer": "pmflib.estimators",
    "PairCounts": "pmflib.counting.pair_counts",
    "PmfError": "pmflib.core.errors",
    "RakedDesign": "pmflib.counting.raking",
    "RankChoice": "pmflib.fitting.ranks.choice",
    "RankWarning": "pmflib.core.errors",
    "Schema": "pmflib.schema",
    "SchemaWarning": "pmflib.core.errors",
    "StoredSamples": "pmflib.em.stored_samples",
    "SurveyDesign": "pmflib.core.survey_design",
    "Variable": "pmflib.schema",
    "bivariate_residuals": "pmflib.fitting.bivariate_residuals",
    "bound_sample_size": "pmflib.fitting.sample_sizes",
    "class_regression": "pmflib.fitting.three_steps",
    "classify": "pmflib.fitting.classification",
    "count_pairs": "pmflib.counting.pair_counts",
    "count_triples": "pmflib.counting.triple_counts",
    "diagnose": "pmflib.fitting.diagnostics",
    "distal_outcome": "pmflib.fitting.three_steps",
    "distil": "pmflib.fitting.from_samples",
    "fit": "pmflib.fitting.from_counts",
    "fit_em": "pmflib.fitting.from_samples",
    "fit_groups": "pmflib.fitting.groups",
    "fit_item_responses": "pmflib.fitting.item_responses",
    "fit_replicates": "pmflib.fitting.replicates",
    "fit_traits": "pmflib.fitting.traits",
    "fit_transitions": "pmflib.fitting.transitions",
    "fit_triples": "pmflib.fitting.from_counts",
    "likelihood_ratio_test": "pmflib.fitting.rank_tests",
    "measure_recommendations": "pmflib.model.recommending",
    "pool": "pmflib.solvers.numeric.pooling",
    "progress": "pmflib.display.progress_bars",
    "rake": "pmflib.counting.raking",
    "read_counts": "pmflib.counting.site_counts",
    "recommend": "pmflib.model.recommending",
    "sample_size": "pmflib.fitting.sample_sizes",
    "score_file": "pmflib.scoring.file_scoring",
    "select_nmf_rank": "pmflib.fitting.support_union",
    "select_rank": "pmflib.fitting.ranks.by_pairs",
    "spread_waves": "pmflib.schema.waves",
    "standard_errors": "pmflib.fitting.standard_errors",
    "weigh_model": "pmflib.fitting.weighing",
}
"""Module of each public name. Importing all of them takes 0.3 s, which a command like ``pmf --help`` can avoid."""


_FOLDERS = {"crowd": "pmflib.crowd", "questions": "pmflib.model.questions"}
"""Public modules."""


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return importlib.import_module(_FOLDERS[name])
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("pmflib")
    if name not in _HOMES:
        from pmflib.core.texts import suggest

        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{suggest(name, __all__)}"
        )
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
