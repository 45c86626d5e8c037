"""Continuous traits: people who differ by degree, compiled into the latent states of a joint PMF."""
