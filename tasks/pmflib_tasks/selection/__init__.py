"""The stage that chooses the rank."""
