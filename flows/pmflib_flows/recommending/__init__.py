"""Recommendations by the samples of a pipeline: the command and its flow."""
