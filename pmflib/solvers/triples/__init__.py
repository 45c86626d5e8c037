"""From the marginals of triples to prior and factors."""
