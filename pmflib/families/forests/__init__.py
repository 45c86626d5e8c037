"""Local dependence: latent classes with forests of dependent variables, one shared by all classes or one per class."""
