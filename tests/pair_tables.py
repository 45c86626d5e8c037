"""Small marginals for the pairwise solvers, exact or of random counts."""

import hypothesis.strategies as st
import numpy as np

from tests.reference import make_model, offsets_of


def every_pair(n_variables):
    return ~np.eye(n_variables, dtype=np.bool_)


def owners_of(offsets):
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def exact_marginals(prior, factors, offsets, observed):
    owners = owners_of(offsets)
    pairs = (factors * prior) @ factors.T
    return np.where(observed[np.ix_(owners, owners)], pairs, 0) + np.where(
        owners[:, None] == owners, np.diag(factors @ prior), 0
    )


def divergence(marginals, offsets, prior, factors, weights):
    """Weighted mean KL over the pairs, one cell at a time."""
    total = 0.0
    for j in range(len(offsets) - 1):
        for k in range(j + 1, len(offsets) - 1):
            for a in range(offsets[j], offsets[j + 1]):
                for b in range(offsets[k], offsets[k + 1]):
                    x, m = marginals[a, b], sum(prior * factors[a] * factors[b])
                    if weights[j, k] and x:
                        total += weights[j, k] * x * np.log(x / m)
    return total / np.triu(weights, 1).sum()


@st.composite
def problems(draw):
    """Marginals of sparse random pair tables, some pairs unobserved, some levels unseen; a start."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    offsets = offsets_of(cardinalities)
    observed = every_pair(len(cardinalities)) & (
        rng.random((len(cardinalities),) * 2) < draw(st.sampled_from([0.5, 1.0]))
    )
    observed &= observed.T
    marginals = np.zeros((offsets[-1], offsets[-1]))
    for j, k in np.argwhere(np.triu(observed)):
        counts = rng.poisson(1.0, (cardinalities[j], cardinalities[k])) * 1.0
        counts[0, 0] += 1
        block = np.s_[offsets[j] : offsets[j + 1], offsets[k] : offsets[k + 1]]
        marginals[block] = counts / counts.sum()
    marginals += marginals.T
    singles = rng.random(offsets[-1])
    singles /= np.repeat(np.add.reduceat(singles, offsets[:-1]), cardinalities)
    marginals += np.diag(singles)
    initial = make_model(rng, cardinalities, draw(st.integers(1, 6)))
    return marginals, offsets, observed, initial


def assert_is_model(result, offsets, rank):
    assert result.prior.shape == (rank,)
    assert result.factors.shape == (offsets[-1], rank)
    assert (result.factors >= 0).all()
    assert (result.prior >= 0).all()
    np.testing.assert_allclose(result.prior.sum(), 1, rtol=0, atol=1e-12)
    sums = np.add.reduceat(result.factors, offsets[:-1], axis=0)
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-12)
    assert np.isfinite(result.loss_history).all()
