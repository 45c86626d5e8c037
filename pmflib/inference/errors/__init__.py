"""Standard errors of parameters."""
