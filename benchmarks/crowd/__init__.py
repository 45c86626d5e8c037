"""True labels from label logs: errors and speed."""
