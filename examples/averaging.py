"""An average of several fits is better than one; distilled, it is as small as one, and loses little."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
position = rng.random((900, 1))  # no few states make these rows: every state is an approximation
codes = (rng.random((900, 12)) < 1 / (1 + np.exp(8 * (rng.random(12) - position)))).astype(int)
training, validation, test = codes[:400], codes[400:600], codes[600:]

options = {"validation": validation, "max_passes": 60}
one = pmf.fit_em(training, rank=5, **options).model
average = pmf.fit_em(training, rank=5, members=4, **options).model
small = pmf.fits.distil(average, 5, n_samples=5000, **options).model
for name, model in (("one fit", one), ("average of four", average), ("distilled", small)):
    print(f"{name}: {model.rank} states, {model.log_prob(test).mean():.3f} nats per row")
