"""The command that erases samples."""
