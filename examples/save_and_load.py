"""A model in a folder: saved by one program, loaded by another, to the same bits."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
side = rng.integers(2, size=(1000, 1))
table = {
    name: np.where(column, "yes", "no")
    for name, column in zip("abcd", ((rng.random((1000, 4)) < 0.85) == side).T, strict=True)
}

model = pmf.fit_em(table, rank=2).model
model.save("model.zarr")  # the schema is in it; the folder must not exist
loaded = pmf.JointPMF.load("model.zarr")
print("equal:", (loaded.factors == model.factors).all())
row = {"a": ["yes"], "b": ["yes"], "c": [None], "d": [None]}
print("d given a=yes, b=yes:", loaded.predict_proba(row, "d").round(2))
