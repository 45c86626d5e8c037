"""Imputation with the live model: the command and its flow."""
