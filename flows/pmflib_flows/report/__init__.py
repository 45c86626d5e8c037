"""The command that writes the report of a run."""
