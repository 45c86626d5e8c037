"""A stack: rungs of a ladder of models, fitted side by side, as one mixture with weights by held-out samples."""
