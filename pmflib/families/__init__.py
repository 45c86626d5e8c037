"""Other families of models than latent classes."""
