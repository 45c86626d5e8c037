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
    from pmflib import crowd, questions
    from pmflib.counting.marginals import Marginals
    from pmflib.counting.pair_counts import PairCounts, count_pairs
    from pmflib.counting.triple_counts import count_triples
    from pmflib.diagnosis.diagnostics import diagnose
    from pmflib.em.stored_samples import StoredSamples
    from pmflib.errors import ConvergenceWarning, PmfError, SchemaWarning
    from pmflib.estimators import PMFClassifier, PMFDensity, PMFImputer, PMFTransformer
    from pmflib.fitting.distillation import distil
    from pmflib.fitting.from_pairs import FitResult, fit
    from pmflib.fitting.from_samples import fit_em
    from pmflib.fitting.from_triples import fit_triples
    from pmflib.model import JointPMF
    from pmflib.model.file_scoring import score_file
    from pmflib.ranks.by_pairs import select_rank
    from pmflib.ranks.choice import RankChoice
    from pmflib.reporting.progress_context import progress
    from pmflib.schema import Schema, Variable
    from pmflib.traits.compiled_fit import fit_traits

__all__ = [
    "ConvergenceWarning",
    "FitResult",
    "JointPMF",
    "Marginals",
    "PMFClassifier",
    "PMFDensity",
    "PMFImputer",
    "PMFTransformer",
    "PairCounts",
    "PmfError",
    "RankChoice",
    "Schema",
    "SchemaWarning",
    "StoredSamples",
    "Variable",
    "count_pairs",
    "count_triples",
    "crowd",
    "diagnose",
    "distil",
    "fit",
    "fit_em",
    "fit_traits",
    "fit_triples",
    "progress",
    "questions",
    "score_file",
    "select_rank",
]

_HOMES = {
    "ConvergenceWarning": "pmflib.errors",
    "FitResult": "pmflib.fitting.from_pairs",
    "JointPMF": "pmflib.model",
    "Marginals": "pmflib.counting.marginals",
    "PMFClassifier": "pmflib.estimators",
    "PMFDensity": "pmflib.estimators",
    "PMFImputer": "pmflib.estimators",
    "PMFTransformer": "pmflib.estimators",
    "PairCounts": "pmflib.counting.pair_counts",
    "PmfError": "pmflib.errors",
    "RankChoice": "pmflib.ranks.choice",
    "Schema": "pmflib.schema",
    "SchemaWarning": "pmflib.errors",
    "StoredSamples": "pmflib.em.stored_samples",
    "Variable": "pmflib.schema",
    "count_pairs": "pmflib.counting.pair_counts",
    "count_triples": "pmflib.counting.triple_counts",
    "diagnose": "pmflib.diagnosis.diagnostics",
    "distil": "pmflib.fitting.distillation",
    "fit": "pmflib.fitting.from_pairs",
    "fit_em": "pmflib.fitting.from_samples",
    "fit_traits": "pmflib.traits.compiled_fit",
    "fit_triples": "pmflib.fitting.from_triples",
    "progress": "pmflib.reporting.progress_context",
    "score_file": "pmflib.model.file_scoring",
    "select_rank": "pmflib.ranks.by_pairs",
}
"""Module of each name. All of them would take .3 s to import, of which a command like ``pmf --help`` needs nothing."""


def __getattr__(name: str) -> Any:
    if name in ("crowd", "questions"):
        return importlib.import_module(f"pmflib.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("pmflib")
    if name not in _HOMES:
        from pmflib.near_names import suggest

        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{suggest(name, __all__)}"
        )
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
