"""Drafts of schemas and configurations."""

from pmflib_tasks.drafting.draft_options import DraftOptions as DraftOptions
from pmflib_tasks.drafting.drafting import draft_pipeline as draft_pipeline
from pmflib_tasks.drafting.drafting import read_rank as read_rank
from pmflib_tasks.drafting.feature import FEATURE as FEATURE
