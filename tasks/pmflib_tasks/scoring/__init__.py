"""Evaluation of models, their comparison, imputation, and answers about stored samples."""
