"""Gaps of a table are filled with what is most probable given the rest of the row."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
opinion = rng.integers(2, size=1500)
chance = np.array([[0.9, 0.8, 0.2, 0.7], [0.2, 0.1, 0.9, 0.3]])
whole = rng.random((1500, 4)) < chance[opinion]
is_gap = rng.random(whole.shape) < 0.2
names = ["bread", "milk", "wine", "fruit"]
table = {
    name: [None if gap else ("yes" if yes else "no") for yes, gap in zip(*columns, strict=True)]
    for name, *columns in zip(names, whole.T, is_gap.T, strict=True)
}

model = pmf.fit_em(table, rank=2).model
filled = model.complete(table)  # codes; levels are in order: "no" is 0, "yes" is 1
modes = (whole & ~is_gap).sum(axis=0) > (~whole & ~is_gap).sum(axis=0)
print(f"right by the most frequent level: {(modes == whole)[is_gap].mean():.2f}")
print(f"right by the model: {(filled == whole)[is_gap].mean():.2f}")
print(model.schema.decode(filled[:3]).to_pylist())
