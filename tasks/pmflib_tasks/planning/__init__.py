"""What a run would do and need, before it runs."""
