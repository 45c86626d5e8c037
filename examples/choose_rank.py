"""How many latent states there are: ranks are compared by pairs that were held out."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
state = rng.integers(4, size=5000)  # the rank to be found
factors = rng.dirichlet(np.full(3, 0.3), (10, 4))  # variable, state, level
codes = np.stack([[rng.choice(3, p=f[s]) for s in state] for f in factors], axis=1)

counts = pmf.count_pairs(codes, [3] * 10)
choice = pmf.fits.select_rank(counts)
print(choice.summary())  # in a notebook, `choice` alone shows the same
model = pmf.fit_em(codes, rank=choice.rank).model
print(model.summary())
