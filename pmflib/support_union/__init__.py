"""The rank of a real matrix factorisation, from the moments of its columns."""
