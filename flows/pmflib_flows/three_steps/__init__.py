"""The command that relates latent classes to external variables."""
