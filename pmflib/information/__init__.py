"""The information of samples on the parameters of a model, its inverse, and what each kind of model says of it."""
