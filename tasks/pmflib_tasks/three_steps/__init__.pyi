"""Relations of classes in stored samples."""

from pmflib_tasks.three_steps.feature import FEATURE as FEATURE
from pmflib_tasks.three_steps.sample_relations import read_samples as read_samples
