"""EM of latent classes whose variables hang together by forests."""
