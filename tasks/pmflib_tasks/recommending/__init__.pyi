"""Items ranked from stored models and counts."""

from pmflib_tasks.recommending.feature import FEATURE as FEATURE
