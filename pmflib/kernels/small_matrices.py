"""Small symmetric matrices, such as covariances of traits: in loops, which take less time than a call to LAPACK."""

import math

from pmflib.kernels.em_segments import INNER
from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel(saved=False, **INNER)
def factorise(matrix):  # type: ignore[no-untyped-def]
    """Cholesky factor in place of the lower triangle of a positive definite matrix."""
    n = len(matrix)
    for f in range(n):
        for g in range(f + 1):
            left = matrix[f, g]
            for k in range(g):
                left -= matrix[f, k] * matrix[g, k]
            matrix[f, g] = math.sqrt(left) if f == g else left / matrix[g, g]


@compile_kernel(saved=False, **INNER)
def solve(factor, vector):  # type: ignore[no-untyped-def]
    """Solve for the matrix of a Cholesky factor, in place of the vector."""
    n = len(factor)
    for f in range(n):
        for g in range(f):
            vector[f] -= factor[f, g] * vector[g]
        vector[f] /= factor[f, f]
    for f in range(n - 1, -1, -1):
        for g in range(f + 1, n):
            vector[f] -= factor[g, f] * vector[g]
        vector[f] /= factor[f, f]


@compile_kernel(saved=False, **INNER)
def invert(factor, work, inverse):  # type: ignore[no-untyped-def]
    """Fill the inverse of the matrix of a Cholesky factor."""
    n = len(factor)
    for f in range(n):
        for g in range(n):
            work[g] = 0.0
        work[f] = 1.0
        solve(factor, work)
        for g in range(n):
            inverse[f, g] = work[g]


@compile_kernel(saved=False, **INNER)
def add_outer(vector, curvature):  # type: ignore[no-untyped-def]
    """Add the outer product of a vector to the lower triangle."""
    for f in range(vector.size):
        for g in range(f + 1):
            curvature[f, g] += vector[f] * vector[g]


@compile_kernel(saved=False, **INNER, forceinline=True)
def find_variance(covariance, vector):  # type: ignore[no-untyped-def]
    """Variance along a vector, of a covariance."""
    variance = 0.0
    for f in range(vector.size):
        left = 0.0
        for g in range(vector.size):
            left += covariance[f, g] * vector[g]
        variance += left * vector[f]
    return variance
