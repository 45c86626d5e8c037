"""Support of a model by counts, and standard errors of its parameters."""
