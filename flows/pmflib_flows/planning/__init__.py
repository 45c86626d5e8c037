"""The command that plans a run."""
