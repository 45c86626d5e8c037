"""Values of items for samples, and the best items of each sample."""

import math

from pmflib.base.compiled.saved_code import compile_kernel


@compile_kernel()
def expect_values(codes, offsets, posteriors, numerators, denominators, inverses, out):  # type: ignore[no-untyped-def]
    """Compute the value of each item for each sample, given the other cells of the sample.

    codes: signed integers (n_rows, n_items), -1 missing. offsets: int64 (n_items,), first level of each item among the
    rows of inverses. posteriors: float64 (n_rows, rank), given all cells of the sample. numerators, denominators:
    float64 (n_items, rank), whose ratio is the value in a state. inverses: float64 (n_levels, rank), inverses of the
    factors, by which a cell is taken out of the posterior. out: float64 (n_rows, n_items), overwritten; -inf where the
    denominator is 0.

    States are summed in order, so that values do not depend on the batch or on threads, unlike those of BLAS.
    """
    n_rows, n_items = codes.shape
    rank = posteriors.shape[1]
    for row in range(n_rows):
        for item in range(n_items):
            above, below = 0.0, 0.0
            code = codes[row, item]
            if code < 0:
                for f in range(rank):
                    above += posteriors[row, f] * numerators[item, f]
                    below += posteriors[row, f] * denominators[item, f]
            else:
                level = offsets[item] + code
                for f in range(rank):
                    weight = posteriors[row, f] * inverses[level, f]
                    above += weight * numerators[item, f]
                    below += weight * denominators[item, f]
            out[row, item] = above / below if below > 0.0 else -math.inf


@compile_kernel()
def select_best(values, groups, most_per_group, items, n_found):  # type: ignore[no-untyped-def]
    """Find the items with the largest values of each sample, with a maximum number per group.

    values: float64 (n_rows, n_items); items of value -inf are left out. groups: int32 (n_items,), -1 for one that is
    not limited. most_per_group: at least 1. items: int32 (n_rows, top), overwritten up to n_found, int64 (n_rows,), in
    decreasing order of value; ties keep the order of items.
    """
    top = items.shape[1]
    for row in range(values.shape[0]):
        best = items[row]
        n = 0
        for item in range(values.shape[1]):
            value = values[row, item]
            if value == -math.inf or (n == top and value <= values[row, best[n - 1]]):
                continue
            # the item replaces the worst of its group if that is full, else the worst of all if the list is
            last = n
            if groups[item] >= 0:
                n_same, worst = 0, -1
                for k in range(n):
                    if groups[best[k]] == groups[item]:
                        n_same += 1
                        worst = k
                if n_same == most_per_group:
                    if value <= values[row, best[worst]]:
                        continue
                    last = worst
            if last == n:
                if n == top:
                    last = n - 1
                else:
                    n += 1
            while last > 0 and values[row, best[last - 1]] < value:
                best[last] = best[last - 1]
                last -= 1
            best[last] = item
        n_found[row] = n
