"""Whether one model is better than another: by rows that neither has seen, with the error of the difference."""

import numpy as np

import pmflib as pmf
from pmflib.base.comparison import compare_samples

rng = np.random.default_rng(0)
state = rng.integers(3, size=3000)
codes = (rng.random((3000, 9)) < rng.random((3, 9))[state]).astype(int)
training, held_out = codes[:2000], codes[2000:]

models = {rank: pmf.fit_em(training, rank=rank).model for rank in (1, 2, 3, 6)}
best = models[3].log_prob(held_out)
for rank, model in models.items():
    scores = model.log_prob(held_out)
    difference = compare_samples(best, scores)
    print(
        f"rank {rank}: {scores.mean():.4f} nats per row; "
        f"rank 3 is better by {difference.mean:.4f} +- {difference.error:.4f}"
    )
