"""OpenLineage events of runs."""

from pmflib_tasks.lineage.feature import FEATURE as FEATURE
