"""Sample levels and missingness patterns from cumulative probabilities."""

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.compiled.saved_code import compile_kernel


@compile_kernel()
def first_above(edges: FloatArray, begin: int, end: int, value: float) -> int:
    """Return the position in [begin, end] of the first edge above a value; edges are non-decreasing."""
    while begin < end:
        middle = (begin + end) // 2
        if value < edges[middle]:
            end = middle
        else:
            begin = middle + 1
    return begin


@compile_kernel()
def draw_rows(
    uniforms: FloatArray,
    prior_edges: FloatArray,
    level_edges: FloatArray,
    offsets: IntArray,
    codes: IntArray,
) -> None:
    """Convert uniform random numbers to dense rows of codes.

    Parameters
    ----------
    uniforms
        Shape (n_rows, n_variables + 1), in [0, 1); column 0 draws the latent state.
    prior_edges
        Shape (rank,), cumulative, the last is 1.
    level_edges
        Shape (rank, n_levels), cumulative within a variable; the last edge is the probability that the variable is
        observed.
    offsets
        Shape (n_variables + 1,).
    codes
        Shape (n_rows, n_variables), overwritten; -1 is missing.
    """
    n_rows, n_variables = codes.shape
    for row in range(n_rows):
        state = first_above(prior_edges, 0, prior_edges.size, uniforms[row, 0])
        edges = level_edges[state]
        for j in range(n_variables):
            begin, end = offsets[j], offsets[j + 1]
            level = first_above(edges, begin, end, uniforms[row, j + 1])
            codes[row, j] = level - begin if level < end else -1


@compile_kernel()
def draw_answers(
    uniforms: FloatArray,
    states: IntArray,
    row_starts: IntArray,
    variables: IntArray,
    level_edges: FloatArray,
    offsets: IntArray,
    codes: IntArray,
) -> None:
    """Convert uniform random numbers to codes of the listed (row, variable) entries.

    Parameters
    ----------
    uniforms
        Shape (n_answers,), in [0, 1).
    states
        Shape (n_rows,), the latent state of each row.
    row_starts
        Shape (n_rows + 1,); row s owns the entries ``row_starts[s]:row_starts[s + 1]``.
    variables
        Shape (n_answers,).
    level_edges
        Shape (rank, n_levels), cumulative within a variable, its last edge is 1.
    offsets
        Shape (n_variables + 1,).
    codes
        Shape (n_answers,), overwritten.
    """
    for row in range(states.size):
        edges = level_edges[states[row]]
        for entry in range(row_starts[row], row_starts[row + 1]):
            j = variables[entry]
            level = first_above(edges, offsets[j], offsets[j + 1], uniforms[entry])
            codes[entry] = level - offsets[j]


@compile_kernel()
def choose_by_weight(
    rng: np.random.Generator, weights: FloatArray, row_starts: IntArray, chosen: IntArray
) -> None:
    """Choose variables for each row by weight, without replacement.

    Parameters
    ----------
    rng
        Random generator; how far it advances depends on the draws.
    weights
        Shape (n_variables,), positive.
    row_starts
        Shape (n_rows + 1,); row s gets ``row_starts[s + 1] - row_starts[s]`` variables, at most
        n_variables.
    chosen
        Shape (row_starts[-1],), overwritten.
    """
    n_variables = weights.size
    all_edges, left_edges = np.cumsum(weights), np.empty(n_variables)
    last_row = np.full(n_variables, -1, np.int64)
    for row in range(row_starts.size - 1):
        edges, used, entry = all_edges, 0.0, row_starts[row]
        while entry < row_starts[row + 1]:
            j = first_above(edges, 0, n_variables, rng.random() * edges[-1])
            # Rounding may put the value exactly on the last edge.
            if j == n_variables or last_row[j] == row:
                continue
            last_row[j] = row
            chosen[entry] = j
            entry += 1
            used += weights[j]
            # Rejecting repeated draws is exact, and cheap while at least half of the weight remains.
            if 2 * used > edges[-1]:
                total = 0.0
                for k in range(n_variables):
                    if last_row[k] != row:
                        total += weights[k]
                    left_edges[k] = total
                edges, used = left_edges, 0.0
