import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import RankError, SchemaError
from pmflib.model import planted_factors, published_factors

CARDINALITIES = [4, 3, 4, 2, 4, 4]
OFFSETS = np.concatenate([[0], np.cumsum(CARDINALITIES)])


@pytest.mark.parametrize("concentration", [0.1, 1.0, 10.0])
def test_planted_factors__is_a_model(concentration):
    prior, factors = planted_factors(
        CARDINALITIES, 4, np.random.default_rng(0), concentration=concentration
    )
    assert prior.shape == (4,)
    assert factors.shape == (21, 4)
    np.testing.assert_allclose(prior.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(np.add.reduceat(factors, OFFSETS[:-1]), 1, rtol=1e-12)


def test_planted_factors__small_concentration_is_sharper():
    sharp, flat = (
        np.mean(planted_factors([5] * 50, 4, np.random.default_rng(0), concentration=c)[1] ** 2)
        for c in (0.1, 10.0)
    )
    assert sharp > 3 * flat


def test_published_factors__uniform_prior_and_scaled_rows():
    prior, factors = published_factors(5, 10, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(prior, 0.25)
    rows = np.random.default_rng(0).dirichlet(np.ones(4), (5, 10))
    for block, raw in zip(np.split(factors, 5), rows, strict=True):
        np.testing.assert_allclose(block, raw / raw.sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize(("label", "impurity"), [(0.1, 0.0005), (0.2, 0.015), (0.3, 0.03)])
def test_published_factors__one_late_variable_has_nearly_pure_levels(label, impurity):
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(20):
        _, factors = published_factors(5, 10, 5, rng, separability=label)
        expected = np.full((5, 5), impurity)
        np.fill_diagonal(expected, 0.4)
        blocks = np.split(factors, 5)
        pure = [j for j, block in enumerate(blocks) if np.allclose(block[:5], expected, rtol=1e-12)]
        assert len(pure) == 1
        np.testing.assert_allclose(blocks[pure[0]].sum(axis=0), 1, rtol=1e-12)
        seen.update(pure)
    assert seen == {3, 4}


def test_published_factors__as_many_levels_as_states():
    _, factors = published_factors(4, 3, 3, np.random.default_rng(0), separability=0.1)
    np.testing.assert_allclose(np.diag(factors[9:]), 0.4 / 0.401, rtol=1e-12)


def test_published_factors__refuses_what_the_experiments_do_not_have():
    rng = np.random.default_rng(0)
    with pytest.raises(pmf.PmfError, match="separability"):
        published_factors(5, 10, 5, rng, separability=0.5)
    with pytest.raises(SchemaError, match=r"n_variables is 3.*separability"):
        published_factors(3, 10, 5, rng, separability=0.1)
    with pytest.raises(RankError, match="rank"):
        published_factors(5, 10, 0, rng)
    with pytest.raises(SchemaError):
        published_factors(5, 0, 2, rng)
