"""Synthetic data with known parameters: models, raw logs and label logs."""

from pmflib.apps.demo.demo import RANK as RANK
from pmflib.apps.demo.demo import write_demo_log as write_demo_log
from pmflib.apps.demo.raw_logs import write_rating_log as write_rating_log
from pmflib.apps.demo.raw_logs import write_survey as write_survey
