"""Ratings with most of them missing: what a person would give a film that they have not seen."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
taste = rng.integers(3, size=3000)
liking = rng.uniform(1, 5, (3, 12))  # of each taste for each film
stars = np.clip(np.rint(liking[taste] + rng.normal(0, 0.7, (3000, 12))), 1, 5)
given = rng.random(stars.shape) < 0.4

codes = np.where(given, stars - 1, -1).astype(int)  # codes count from 0, and -1 is missing
schema = pmf.Schema.from_cardinalities([5] * 12)  # levels "0" to "4", with the values 0 to 4
model = pmf.fit_em(codes, rank=3, schema=schema).model

hidden = ~given[:, 0]
guess = 1 + model.expected_value(codes, "v0")[hidden]
mean = stars[given[:, 0], 0].mean()
for name, each in (("mean rating", mean), ("model", guess)):
    print(f"error of the {name}: {np.sqrt(np.mean((stars[hidden, 0] - each) ** 2)):.2f} stars")
