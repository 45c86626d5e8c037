"""EM for models with continuous latent traits."""
