"""Methods that the published tables of label errors compare with, written from their papers."""
