"""Recommendations by the live model: the command and its flow."""
