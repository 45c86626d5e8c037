"""Continuous traits, discretised into the latent states of a joint PMF."""
