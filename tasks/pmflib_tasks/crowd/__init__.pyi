"""Stages of label logs, their guards and their publication."""

from pmflib_tasks.crowd.crowd_model import worker_pairs as worker_pairs
from pmflib_tasks.crowd.feature import FEATURE as FEATURE
from pmflib_tasks.crowd.known import find_known_labels as find_known_labels
from pmflib_tasks.crowd.labels import find_labels as find_labels
from pmflib_tasks.crowd.log_names import list_log_names as list_log_names
from pmflib_tasks.crowd.section import CrowdConfig as CrowdConfig
from pmflib_tasks.crowd.section import make_crowd as make_crowd
