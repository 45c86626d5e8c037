"""A classifier in a pipeline of scikit-learn: gaps and texts in, probabilities of a class out."""

import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score

import pmflib as pmf

rng = np.random.default_rng(0)
kind = rng.integers(3, size=600)  # the class, and what depends on it
frame = pd.DataFrame(
    {
        "colour": np.where(rng.random(600) < 0.7, np.array(["red", "green", "blue"])[kind], "grey"),
        "size": kind + rng.normal(size=600),
        "smell": np.where(rng.random(600) < 0.8, np.where(kind == 0, "none", "strong"), None),
    }
)
frame.loc[rng.random(600) < 0.2, "size"] = np.nan
label = np.array(["A", "B", "C"])[kind]

classifier = pmf.PMFClassifier(rank=6)
print("accuracy:", cross_val_score(classifier, frame, label, cv=3).mean().round(2))
print(classifier.fit(frame, label).predict_proba(frame[:2]).round(2))
print(classifier.model_)
