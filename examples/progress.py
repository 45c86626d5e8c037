"""What takes long shows how far it is: bars in a terminal or a notebook, lines or a function of yours elsewhere."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
state = rng.integers(3, size=20_000)
codes = (rng.random((20_000, 12)) < rng.random((3, 12))[state]).astype(int)

with pmf.progress():  # bars, gone at the end; nothing in a batch job
    pmf.fit_em(codes, rank=3)

last = {}
with pmf.progress(lambda progress: last.update({progress.stage: progress})):
    pmf.fit_em(codes, rank="auto")
for stage, progress in last.items():
    print(stage, progress.done, "of", progress.total, progress.text)
