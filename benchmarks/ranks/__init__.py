"""Number of latent states, and model selection for NMF."""
