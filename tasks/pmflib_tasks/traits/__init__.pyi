"""Stages of trait models."""

from pmflib_tasks.traits.feature import FEATURE as FEATURE
