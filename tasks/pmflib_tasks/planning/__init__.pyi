"""What a run would do and need, before it runs."""

from pmflib_tasks.planning.feature import FEATURE as FEATURE
from pmflib_tasks.planning.planning import PlannedWorkers as PlannedWorkers
from pmflib_tasks.planning.planning import plan_run as plan_run
