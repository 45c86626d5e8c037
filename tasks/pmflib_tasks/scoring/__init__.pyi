"""Evaluation of models, their comparison, imputation, and answers about stored samples."""

from pmflib_tasks.scoring.feature import FEATURE as FEATURE
