"""From expected counts and pairs of workers to confusion matrices."""
