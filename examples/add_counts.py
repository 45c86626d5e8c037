"""Pair counts of partitions add up and subtract exactly: days come and go, and no row is read again."""

import numpy as np

import pmflib as pmf

rng = np.random.default_rng(0)
schema = pmf.Schema.from_cardinalities([3] * 6)
days = [(rng.integers(3, size=(1000, 1)) + (rng.random((1000, 6)) < 0.2)) % 3 for _ in range(7)]

counts = sum(pmf.count_pairs(day, schema) for day in days)
print(counts)
newest = counts - pmf.count_pairs(days[0], schema)  # the oldest day is taken out
again = sum(pmf.count_pairs(day, schema) for day in days[1:])
print("the same as counted anew:", (newest.to_dense() == again.to_dense()).all())

# a file that does not fit in memory is counted in batches, such as pandas.read_csv(..., chunksize=)
batches = (day for day in days)
print(pmf.count_pairs(batches, schema))
print(pmf.fit(newest, rank=3))  # from the counts alone: the cost does not depend on the rows
