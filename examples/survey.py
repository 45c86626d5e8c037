"""A survey in a table, and a question answered: how likely an answer is, given others."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
likes = rng.random(2000) < 0.4  # what nobody was asked
survey = {
    "commute": np.where(rng.random(2000) < np.where(likes, 0.7, 0.2), "bus", "car"),
    "age": np.where(rng.random(2000) < np.where(likes, 0.6, 0.3), "under 40", "40 or more"),
    "recommends": np.where(rng.random(2000) < np.where(likes, 0.8, 0.1), "yes", "no"),
}

model = pmf.fit_em(survey, rank="auto").model
for commute in ("bus", "car"):
    pmf_of_answer = model.marginal(["recommends"], given={"commute": commute, "age": "under 40"})
    answers = dict(zip(model.schema["recommends"].levels, pmf_of_answer.round(2), strict=True))
    print(f"under 40, by {commute}:", {level: float(p) for level, p in answers.items()})
