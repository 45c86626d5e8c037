"""Waves of panel data: latent states with transitions between waves."""
