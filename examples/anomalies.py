"""Rows that do not fit: those of the least log-probability."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
kind = rng.integers(3, size=(2000, 1))
codes = (kind + (rng.random((2000, 8)) < 0.1)) % 3  # a row holds one level nearly everywhere
odd = rng.choice(2000, 20, replace=False)
codes[odd] = rng.integers(3, size=(20, 8))  # but for these

model = pmf.fit_em(codes, rank=3).model
log_probs = model.log_prob(codes)
suspects = np.argsort(log_probs)[:20]
print("planted rows among the 20 least probable:", len(set(suspects) & set(odd)))
row = suspects[0]
surprise = [model.predict_proba(codes[[row]], index)[0, codes[row, index]] for index in range(8)]
print(
    "the least probable row:",
    codes[row],
    "and its most surprising variable:",
    int(np.argmin(surprise)),
)
