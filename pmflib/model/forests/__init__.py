"""Local dependence: latent classes whose variables hang together by forests, one for all classes or one per class."""
