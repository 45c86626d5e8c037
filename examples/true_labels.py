"""A label log of workers of unequal skill: true labels, and who can be relied on."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
truth = np.array(["cat", "dog"])[rng.integers(2, size=500)]
skill = rng.uniform(0.5, 0.95, 20)
task, worker = rng.integers(500, size=4000), rng.integers(20, size=4000)
is_right = rng.random(4000) < skill[worker]
label = np.where(is_right == (truth[task] == "cat"), "cat", "dog")

found = pmf.crowd.aggregate({"task": task, "worker": worker, "label": label})
votes = pmf.crowd.aggregate({"task": task, "worker": worker, "label": label}, "majority")
tasks = found.labels["task"].to_numpy()
for name, each in (("majority", votes), ("auto", found)):
    print(f"{name}: {np.mean(each.labels['label'].to_numpy() == truth[tasks]):.1%} are right")
print(f"correlation of skill with what was found: {np.corrcoef(skill, found.accuracy)[0, 1]:.2f}")
print("ask again:", found.ask_again(3)["task"].to_pylist())
