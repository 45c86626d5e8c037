"""EM for latent class models in which the variables of each class form a forest."""
