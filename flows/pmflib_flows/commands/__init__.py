"""The commands of `pmf`, grouped by subject."""
