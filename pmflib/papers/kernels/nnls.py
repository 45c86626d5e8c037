"""Lawson-Hanson active-set solver for a Gram matrix with diagonal near 1, one right-hand side at a time.

The Cholesky factor of the passive set grows by one row as a variable enters and is rebuilt from the
first row that leaves, so that a column costs about as much as one factorisation.
"""

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.compiled.saved_code import compile_kernel

# A column of length near 1 is linearly dependent if its squared distance from the span of the passive columns is below
# this.
SINGULAR = 1e-14
# A gradient below this fraction of its own terms is rounding error.
STATIONARY = 1e-13


@compile_kernel()
def extend_cholesky(
    gram: FloatArray, passive: IntArray, start: int, size: int, lower: FloatArray
) -> float:
    """Write rows ``start:size`` of the passive set's Cholesky factor; return the last pivot.

    Parameters
    ----------
    gram
        float64 of shape (rank, rank), symmetric, diagonal in [1/4, 1].
    passive
        int64 of shape (rank,); the first ``size`` entries are the passive variables in order.
    start, size
        Rows before ``start`` are already valid; 0 <= start <= size <= rank.
    lower
        float64 of shape (rank, rank), overwritten.
    """
    pivot = 1.0
    for a in range(start, size):
        for b in range(a + 1):
            value = gram[passive[a], passive[b]]
            for c in range(b):
                value -= lower[a, c] * lower[b, c]
            if b < a:
                lower[a, b] = value / lower[b, b]
            else:
                pivot = value
                lower[a, a] = np.sqrt(max(value, SINGULAR))
    return pivot


@compile_kernel()
def solve_passive(
    lower: FloatArray, passive: IntArray, size: int, cross: FloatArray, target: FloatArray
) -> None:
    """Solve the normal equations on the passive set into ``target[:size]``."""
    for a in range(size):
        value = cross[passive[a]]
        for c in range(a):
            value -= lower[a, c] * target[c]
        target[a] = value / lower[a, a]
    for a in range(size - 1, -1, -1):
        value = target[a]
        for c in range(a + 1, size):
            value -= lower[c, a] * target[c]
        target[a] = value / lower[a, a]


@compile_kernel()
def find_entering(
    gram: FloatArray, cross: FloatArray, x: FloatArray, passive: IntArray, size: int, shut: IntArray
) -> int:
    """Return the variable whose increase reduces the loss fastest, or -1 at a stationary point."""
    scale = 0.0
    for f in range(cross.size):
        scale = max(scale, abs(cross[f]))
    for a in range(size):
        scale += x[passive[a]]
    best, steepest = -1, STATIONARY * scale
    for f in range(cross.size):
        if shut[f] == 0:
            slope = cross[f]
            for a in range(size):
                slope -= gram[f, passive[a]] * x[passive[a]]
            if slope > steepest:
                best, steepest = f, slope
    return best


@compile_kernel()
def step_to_target(
    x: FloatArray, passive: IntArray, size: int, target: FloatArray
) -> tuple[int, int]:
    """Move towards the target while x remains positive, and drop variables that reach zero.

    Returns the new size of the passive set and the first stale row of its factor, which equals the new size after a
    full step.
    """
    step, blocking = 1.0, -1
    for a in range(size):
        if target[a] <= 0.0:
            ratio = x[passive[a]] / (x[passive[a]] - target[a])
            if blocking < 0 or ratio < step:
                step, blocking = ratio, a
    kept, stale = 0, -1
    for a in range(size):
        f = passive[a]
        x[f] += step * (target[a] - x[f])
        if blocking < 0:
            x[f] = target[a]
        # Remove the blocking variable even if rounding leaves it slightly positive, so that the loop terminates.
        if a == blocking or x[f] <= 0.0:
            x[f] = 0.0
            if stale < 0:
                stale = kept
        else:
            passive[kept] = f
            kept += 1
    return kept, (kept if stale < 0 else stale)


@compile_kernel()
def solve_columns(gram: FloatArray, cross: FloatArray, max_steps: int, solution: FloatArray) -> int:
    """Minimise 1/2 x'Gx - x'c over x >= 0 for every row c of ``cross``.

    Parameters
    ----------
    gram
        float64 of shape (rank, rank), positive semidefinite, diagonal in [1/4, 1].
    cross
        float64 of shape (n_rhs, rank), C-contiguous.
    max_steps
        Maximum number of entering steps per row.
    solution
        float64 of shape (n_rhs, rank), written.

    Returns
    -------
    Number of rows that reached the maximum number of steps.
    """
    rank = gram.shape[0]
    lower = np.zeros((rank, rank))
    target = np.zeros(rank)
    passive = np.zeros(rank, np.int64)
    unfinished = 0
    for row in range(cross.shape[0]):
        x = solution[row]
        x[:] = 0.0
        # 0: may enter; 1: passive; 2: rejected until the passive set changes.
        shut = np.zeros(rank, np.int64)
        size = 0
        for step in range(max_steps + 1):
            entering = find_entering(gram, cross[row], x, passive, size, shut)
            if entering < 0:
                break
            if step == max_steps:
                unfinished += 1
                break
            passive[size] = entering
            pivot = extend_cholesky(gram, passive, size, size + 1, lower)
            solve_passive(lower, passive, size + 1, cross[row], target)
            # Along a dependent column the loss is constant: use it only to push another variable out.
            blocked = target[: size + 1].min() <= 0.0
            if target[size] <= 0.0 or (pivot <= SINGULAR and not blocked):
                shut[entering] = 2
                continue
            size += 1
            stale = 0
            while True:
                before = size
                size, stale = step_to_target(x, passive, size, target)
                if size == before:
                    break
                extend_cholesky(gram, passive, stale, size, lower)
                solve_passive(lower, passive, size, cross[row], target)
            shut[:] = 0
            for a in range(size):
                shut[passive[a]] = 1
    return unfinished
