"""Relations of classes in stored samples."""

from pmflib_tasks.three_steps.feature import FEATURE as FEATURE
