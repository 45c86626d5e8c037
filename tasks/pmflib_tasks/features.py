"""The features of the pipeline that have tasks: the table that a new feature, or a removed one, changes."""

from __future__ import annotations

from pmflib_tasks.feature import Feature

FEATURES: tuple[Feature, ...] = ()
"""Declarations of the features; what several of them add stands in this order."""
