"""Slow, obvious versions of what the kernels and the model compute, and small random inputs for them."""

import itertools
import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

import pmflib as pmf
from pmflib.base import FloatArray


def offsets_of(cardinalities):
    return np.concatenate([[0], np.cumsum(cardinalities)]).astype(np.int64)


def pair_table(codes, cardinalities):
    """Upper triangle of pair counts, one pair of one row at a time."""
    offsets = offsets_of(cardinalities)
    table = np.zeros((offsets[-1], offsets[-1]), np.int64)
    for row in codes.tolist():
        for j, k in itertools.combinations_with_replacement(range(len(row)), 2):
            if row[j] >= 0 and row[k] >= 0:
                table[offsets[j] + row[j], offsets[k] + row[k]] += 1
    return table


def joint_tensor(prior, factors, cardinalities):
    """The whole joint PMF, one axis per variable."""
    offsets = offsets_of(cardinalities)
    tensor = np.zeros(tuple(cardinalities))
    for cell in itertools.product(*map(range, cardinalities)):
        for f in range(len(prior)):
            held = [factors[offsets[j] + code, f] for j, code in enumerate(cell)]
            tensor[cell] += prior[f] * math.prod(held)
    return tensor


def restrict(tensor, row):
    """The tensor with observed variables fixed at their code, and the axes that are left."""
    place = tuple(slice(None) if code < 0 else int(code) for code in row)
    return np.asarray(tensor[place]), [j for j, code in enumerate(row) if code < 0]


def row_probability(tensor, row):
    return float(restrict(tensor, row)[0].sum())


def conditional_pmf(tensor, row, variable):
    """PMF of one variable given the codes of the others."""
    hidden = np.array(row)
    hidden[variable] = -1
    rest, axes = restrict(tensor, hidden)
    keep = axes.index(variable)
    pmf = rest.sum(axis=tuple(axis for axis in range(rest.ndim) if axis != keep))
    return pmf / pmf.sum()


def e_step(codes, offsets, prior, factors):
    """Level masses, state masses and log-likelihood, by Bayes' rule a row at a time."""
    level_mass, state_mass = np.zeros_like(factors), np.zeros_like(prior)
    log_likelihood = 0.0
    for row in codes.tolist():
        held = [offsets[j] + code for j, code in enumerate(row) if code >= 0]
        if not held:
            continue
        joint = [prior[f] * math.prod(factors[a, f] for a in held) for f in range(len(prior))]
        total = math.fsum(joint)
        log_likelihood += math.log(total)
        for f, mass in enumerate(joint):
            state_mass[f] += mass / total
            for a in held:
                level_mass[a, f] += mass / total
    return level_mass, state_mass, log_likelihood


def make_model(rng, cardinalities, rank) -> tuple[FloatArray, FloatArray]:
    """Random prior and factors, no probability near zero."""
    blocks = [rng.dirichlet(np.full(size, 2.0), rank).T for size in cardinalities]
    return rng.dirichlet(np.full(rank, 2.0)), np.vstack(blocks)


def make_codes(rng, n_rows, cardinalities, missing=0.3):
    codes = rng.integers(0, cardinalities, (n_rows, len(cardinalities)))
    codes[rng.random(codes.shape) < missing] = -1
    return pmf.Codes(codes.astype(np.int8 if max(cardinalities) <= 127 else np.int16))


@st.composite
def tables_of_codes(draw, *, min_variables=1, max_levels=4, max_rows=12):
    """Cardinalities and codes that fit them, gaps included; one variable in four is wide enough for int16."""
    sizes = st.one_of(st.integers(1, max_levels), st.integers(1, max_levels), st.just(1))
    cardinalities = draw(st.lists(sizes, min_size=min_variables, max_size=4))
    if draw(st.booleans()) and draw(st.booleans()):
        cardinalities[0] = 130
    shape = (draw(st.integers(0, max_rows)), len(cardinalities))
    raw = draw(hnp.arrays(np.int16, shape, elements=st.integers(-1, 1000)))
    codes = (raw + 1) % (np.array(cardinalities) + 1) - 1
    return cardinalities, pmf.Codes(
        codes.astype(np.int8 if max(cardinalities) <= 127 else np.int16)
    )


def same_bits(one, other):
    """Whether statistics of EM are equal to the last bit."""
    return (
        one.level_mass.tobytes() == other.level_mass.tobytes()
        and one.state_mass.tobytes() == other.state_mass.tobytes()
        and one.log_likelihood == other.log_likelihood
        and one.n_rows == other.n_rows
    )
