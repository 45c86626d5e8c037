"""Counts of other sites, pooled."""

from pmflib_tasks.sites.feature import FEATURE as FEATURE
