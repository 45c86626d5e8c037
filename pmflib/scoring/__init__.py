"""How good a model is, and what it says of samples: evaluation, the gate, predictions, scores of files."""
