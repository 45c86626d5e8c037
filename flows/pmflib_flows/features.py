"""All features of the pipeline: those with tasks, and those that are flows or commands alone."""

from __future__ import annotations

from pmflib_flows.demo.feature import FEATURE as DEMO
from pmflib_flows.doctor.feature import FEATURE as DOCTOR
from pmflib_tasks.feature import Feature
from pmflib_tasks.features import FEATURES as TASK_FEATURES

FEATURES: tuple[Feature, ...] = (*TASK_FEATURES, DEMO, DOCTOR)
"""Declarations of the features; what several of them add stands in this order."""
