"""Questions in notation, with what stands behind each answer: samples, the model, an interval, warnings."""

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
codes = schema.encode(survey)
seen, unseen = codes[:1600], codes[1600:]
model = pmf.fit_em(seen, rank=2, schema=schema).model
# rows that were not fitted say how many rows the model counts for beside those that are counted
model = pmf.answering.weigh_model(model, seen, unseen)

for question in (
    'P(recommends=yes | commute=bus, age="under 40")',
    "argmax(commute, age | recommends=yes)",
    "MI(commute; recommends)",
    "OR(recommends=yes | commute=bus; commute=car)",
):
    print(model.ask(question, codes), end="\n\n")
