"""Scores and reports of a target."""

from pmflib_tasks.target.feature import FEATURE as FEATURE
