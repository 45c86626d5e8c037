"""Label logs: the command and its flow."""
