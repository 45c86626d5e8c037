"""One model for several groups: which parameters are equal between them."""
