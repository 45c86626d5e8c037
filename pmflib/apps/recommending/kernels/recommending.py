"""Sums of products of items, the weights that follow from them, and the best items of each sample."""

import math

from pmflib.base.compiled.saved_code import compile_kernel


@compile_kernel()
def add_products(indptr, indices, data, sums):  # type: ignore[no-untyped-def]
    """Add the products of all pairs of entries of each row to the upper triangle of a matrix of columns by columns.

    indptr, indices, data: sparse rows, columns increasing within a row. sums: float32 (n_columns, n_columns).
    """
    for row in range(indptr.size - 1):
        for first in range(indptr[row], indptr[row + 1]):
            own, value = sums[indices[first]], data[first]
            for second in range(first, indptr[row + 1]):
                own[indices[second]] += value * data[second]


@compile_kernel()
def scale_columns(matrix, diagonal):  # type: ignore[no-untyped-def]
    """Turn the upper triangle of a symmetric matrix into minus its columns by their diagonal entries, whose own are 0.

    matrix: float32 (n, n), overwritten. diagonal: float32 (n,).
    """
    for row in range(len(matrix)):
        matrix[row, row] = 0.0
        for column in range(row + 1, len(matrix)):
            value = -matrix[row, column]
            matrix[row, column] = value / diagonal[column]
            matrix[column, row] = value / diagonal[row]


@compile_kernel()
def select_best(values, groups, most_per_group, items, n_found):  # type: ignore[no-untyped-def]
    """Find the items with the largest values of each sample, with a maximum number per group.

    values: floats (n_rows, n_items); items of value -inf are left out. groups: int32 (n_items,), -1 for one that is not
    limited. most_per_group: at least 1. items: int32 (n_rows, top), overwritten up to n_found, int64 (n_rows,), in
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
