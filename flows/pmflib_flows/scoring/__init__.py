"""Scoring of samples with the live model: the command and its flow."""
