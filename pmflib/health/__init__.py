"""Whether everything is there that a pipeline needs: facts are gathered, and checks make lines of them."""
