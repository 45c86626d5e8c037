"""How well one variable is predicted from the others, by a model and by what it has to be better than."""
