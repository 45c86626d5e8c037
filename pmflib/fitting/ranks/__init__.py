"""How many latent states."""
