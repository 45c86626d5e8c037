"""The stage that rakes samples to known margins."""

from pmflib_tasks.margins.feature import FEATURE as FEATURE
from pmflib_tasks.margins.section import MarginsConfig as MarginsConfig
