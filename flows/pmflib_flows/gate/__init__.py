"""Commands about models that went live or did not, and about differences between runs."""
