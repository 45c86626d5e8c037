"""The features of the pipeline that have tasks: the table that a new feature, or a removed one, changes."""

from __future__ import annotations

from pmflib_tasks.crowd.feature import FEATURE as CROWD
from pmflib_tasks.drafting.feature import FEATURE as DRAFTING
from pmflib_tasks.erasure.feature import FEATURE as ERASURE
from pmflib_tasks.feature import Feature
from pmflib_tasks.gate.feature import FEATURE as GATE
from pmflib_tasks.imputation.feature import FEATURE as IMPUTATION
from pmflib_tasks.planning.feature import FEATURE as PLANNING
from pmflib_tasks.questions.feature import FEATURE as QUESTIONS
from pmflib_tasks.recommending.feature import FEATURE as RECOMMENDING
from pmflib_tasks.report.feature import FEATURE as REPORT
from pmflib_tasks.scoring.feature import FEATURE as SCORING
from pmflib_tasks.sites.feature import FEATURE as SITES
from pmflib_tasks.three_steps.feature import FEATURE as THREE_STEPS

FEATURES: tuple[Feature, ...] = (
    DRAFTING,
    QUESTIONS,
    SCORING,
    IMPUTATION,
    RECOMMENDING,
    THREE_STEPS,
    REPORT,
    CROWD,
    GATE,
    ERASURE,
    PLANNING,
    SITES,
)
"""Declarations of the features; what several of them add stands in this order."""
