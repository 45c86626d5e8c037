"""The stage that rakes samples to known margins."""

from pmflib_tasks.margins.feature import FEATURE as FEATURE
