"""Pictures of a model by matplotlib (extra `plot`): its states, what goes together, one variable, the fit."""

import matplotlib
import numpy as np

matplotlib.use("agg")  # no screen is needed; leave this out in a notebook
from matplotlib import pyplot as plt

from pmflib import fit_em

rng = np.random.default_rng(0)
likes = rng.random(2000) < 0.4  # what nobody was asked
survey = {
    "commute": np.where(rng.random(2000) < np.where(likes, 0.7, 0.2), "bus", "car"),
    "age": np.where(rng.random(2000) < np.where(likes, 0.6, 0.3), "under 40", "40 or more"),
    "recommends": np.where(rng.random(2000) < np.where(likes, 0.8, 0.1), "yes", "no"),
}
result = fit_em(survey, rank=2)

figure, axes = plt.subplots(2, 2, figsize=(12, 9))
result.model.plot_states(ax=axes[0, 0])
result.model.plot_associations(ax=axes[0, 1])
result.model.plot_marginal("commute", ax=axes[1, 0])
result.plot_convergence(ax=axes[1, 1])
figure.tight_layout()
figure.savefig("pictures.png")
print("pictures.png")
