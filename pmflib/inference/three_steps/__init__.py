"""Relations of latent classes to other variables, corrected for errors of classification."""
