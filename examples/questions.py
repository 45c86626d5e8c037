"""Questions in notation, with what stands behind each answer: support, standard error, warnings."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
likes = rng.random(2000) < 0.4  # what nobody was asked
survey = {
    "commute": np.where(rng.random(2000) < np.where(likes, 0.7, 0.2), "bus", "car"),
    "age": np.where(rng.random(2000) < np.where(likes, 0.6, 0.3), "under 40", "40 or more"),
    "recommends": np.where(rng.random(2000) < np.where(likes, 0.8, 0.1), "yes", "no"),
}
schema = pmf.Schema.infer(survey)
counts = pmf.count_pairs(survey, schema, n_folds=8)
model = pmf.fit_em(survey, rank=2, schema=schema).model

for question in (
    'P(recommends=yes | commute=bus, age="under 40")',
    "argmax(commute, age | recommends=yes)",
    "MI(commute; recommends)",
    "OR(recommends=yes | commute=bus; commute=car)",
):
    print(model.ask(question, counts), end="\n\n")
