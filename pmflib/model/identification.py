"""Whether latent states are determined by the joint PMF of the variables at all, with any number of samples.

The joint PMF of N variables with F states has F - 1 + F * sum(I_n - 1) free parameters. Where its derivatives by these
have a smaller rank, other states give the same PMF: two variables never determine two states.
"""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.model.mixture import Mixture

MOST_CELLS = 1 << 12
"""Maximum number of cells of the table whose derivatives are computed."""
MOST_ENTRIES = 1 << 20
"""Maximum number of derivatives: a tenth of a second."""
SMALL = 1e-9
"""Singular value, relative to the largest, below which a direction changes no probability."""


def count_open_directions(model: Mixture) -> int:
    """Count the directions in which parameters can be moved without a change of the joint PMF.

    Parameters
    ----------
    model
        Latent classes. States without samples are left out.

    Returns
    -------
    Number of directions; 0 if the states are determined, and where the table of all variables is too large to tell:
    with as many variables, they are but for special values (Allman et al. 2009). Permutations of states do not count.

    References
    ----------
    Goodman (1974), Biometrika 61(2): the rank of the derivatives. Allman, Matias and Rhodes (2009), Annals of
    Statistics 37(6).
    """
    states = np.flatnonzero(model.prior > 0)
    sizes = np.sort(model.schema.cardinalities[model.schema.cardinalities > 1])[::-1]
    if states.size < 2:
        return 0
    if sizes.size < 3:
        # F states of two variables are a factorisation of rank F, of one variable a mean: neither is unique
        free = states.size - 1 + states.size * int((sizes - 1).sum())
        kept = min(states.size, *sizes.tolist()) if sizes.size == 2 else 1
        dimension = (
            int(kept * (sizes.sum() - kept)) - 1 if sizes.size == 2 else int(sizes.sum()) - 1
        )
        return max(free - dimension, 0)
    n_cells = list(accumulate(sizes.tolist(), lambda a, b: a * b))
    n_entries = math.prod(sizes.tolist()) * (1 + int(sizes.sum())) * states.size
    if n_cells[-1] > MOST_CELLS or n_entries > MOST_ENTRIES:
        return 0
    derivatives, n_free = _differentiate(model, states)
    values = np.linalg.svd(derivatives, compute_uv=False)
    rank = int((values > SMALL * values[0]).sum()) if values.size else 0
    return n_free - rank


def _differentiate(model: Mixture, states: np.ndarray) -> tuple[FloatArray, int]:
    """Derivatives of the cells, (n_cells, n_free), at interior values, which are typical; also n_free."""
    rng = np.random.default_rng(0)
    variables = [each for each in model.schema if each.cardinality > 1]
    factors = [rng.dirichlet(np.ones(each.cardinality), states.size) for each in variables]
    prior = rng.dirichlet(np.full(states.size, 3.0))
    columns = []
    for state in range(states.size):
        own = [each[state] for each in factors]
        columns.append(_multiply(own) - _multiply([each[-1] for each in factors]))
        for place, each in enumerate(own):
            for level in range(each.size - 1):
                moved = np.zeros(each.size)
                moved[level], moved[-1] = prior[state], -prior[state]
                columns.append(_multiply([*own[:place], moved, *own[place + 1 :]]))
    # the share of the last state follows from the others
    free = [n for n in range(len(columns)) if n != len(columns) * (states.size - 1) // states.size]
    return np.stack([columns[n] for n in free], axis=1), len(free)


def _multiply(parts: list[FloatArray]) -> FloatArray:
    """Outer product of vectors, flat."""
    found = np.ones(1)
    for each in parts:
        found = np.multiply.outer(found, each).ravel()
    return found


def describe_undetermined(model: Mixture) -> str:
    """Say that no data determine the states of a model, and how to change that; "" if they do, or it is not known."""
    if model.kind != "classes" or model.origin.get("average") or model.origin.is_stack:
        return ""
    n_open = count_open_directions(model)
    if not n_open:
        return ""
    directions = "one direction changes" if n_open == 1 else f"{n_open} directions change"
    return (
        f"the states are not determined: {directions} their shares and probabilities, and not the joint PMF of "
        f"{model.schema.n_variables} variables, so that no number of samples tells them apart; answers hold, but do "
        "not read the states: fit fewer, or add variables"
    )
