"""The features of the pipeline that have tasks: the table that a new feature, or a removed one, changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pmflib_tasks.crowd.feature import FEATURE as CROWD
from pmflib_tasks.drafting.feature import FEATURE as DRAFTING
from pmflib_tasks.erasure.feature import FEATURE as ERASURE
from pmflib_tasks.feature import Feature
from pmflib_tasks.imputation.feature import FEATURE as IMPUTATION
from pmflib_tasks.lineage.feature import FEATURE as LINEAGE
from pmflib_tasks.margins.feature import FEATURE as MARGINS
from pmflib_tasks.planning.feature import FEATURE as PLANNING
from pmflib_tasks.questions.feature import FEATURE as QUESTIONS
from pmflib_tasks.recommending.feature import FEATURE as RECOMMENDING
from pmflib_tasks.report.feature import FEATURE as REPORT
from pmflib_tasks.scoring.feature import FEATURE as SCORING
from pmflib_tasks.sites.feature import FEATURE as SITES
from pmflib_tasks.target.feature import FEATURE as TARGET
from pmflib_tasks.three_steps.feature import FEATURE as THREE_STEPS
from pmflib_tasks.traits.feature import FEATURE as TRAITS

FEATURES: tuple[Feature, ...] = (
    DRAFTING,
    QUESTIONS,
    SCORING,
    IMPUTATION,
    RECOMMENDING,
    THREE_STEPS,
    REPORT,
    CROWD,
    LINEAGE,
    ERASURE,
    PLANNING,
    MARGINS,
    SITES,
    TRAITS,
    TARGET,
)
"""Declarations of the features; what several of them add stands in this order."""


def list_offers(field: str) -> Iterator[Any]:
    """Load what the features declare in a field of `Feature`, in their order; features that leave it out have none."""
    places = (getattr(feature, field) for feature in FEATURES)
    return (place.load() for place in places if place is not None)
