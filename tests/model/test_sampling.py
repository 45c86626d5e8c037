import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import RankError, SchemaError
from pmflib.model import check_parameters, choose_variables, sample_answers, sample_codes

CARDINALITIES = np.array([3, 2, 5, 4])
OFFSETS = np.concatenate([[0], np.cumsum(CARDINALITIES)])
# No cell of a test counts beyond this many standard deviations: two-sided chance 2e-9 a cell.
DEVIATIONS = 6.0


def make_model(seed, rank=3, cardinalities=CARDINALITIES):
    rng = np.random.default_rng(seed)
    blocks = [rng.dirichlet(np.ones(size), rank).T for size in cardinalities]
    return rng.dirichlet(np.ones(rank)), np.vstack(blocks)


def assert_binomial(hits, trials, probability):
    expected = trials * probability
    assert np.all(np.abs(hits - expected) <= DEVIATIONS * np.sqrt(expected * (1 - probability)))


def test_sample_codes__pair_marginals_agree_with_the_model():
    prior, factors = make_model(0)
    codes = sample_codes(prior, factors, OFFSETS, 200_000, np.random.default_rng(1), observed=0.7)
    marginals = (factors * prior) @ factors.T
    for j in range(4):
        for k in range(j):
            both = codes[(codes[:, j] >= 0) & (codes[:, k] >= 0)]
            for a in range(CARDINALITIES[j]):
                for b in range(CARDINALITIES[k]):
                    hits = np.sum((both[:, j] == a) & (both[:, k] == b))
                    assert_binomial(hits, len(both), marginals[OFFSETS[j] + a, OFFSETS[k] + b])


def test_sample_codes__entries_are_observed_with_their_own_probability():
    prior, factors = make_model(0)
    observed = np.array([0.0, 0.25, 0.9, 1.0])
    codes = sample_codes(
        prior, factors, OFFSETS, 50_000, np.random.default_rng(2), observed=observed
    )
    assert_binomial(np.sum(codes >= 0, axis=0), 50_000, observed)
    both = np.sum((codes[:, 1] >= 0) & (codes[:, 2] >= 0))
    assert_binomial(both, 50_000, 0.25 * 0.9)


def test_sample_codes__same_seed_same_codes_whatever_the_chunk(monkeypatch):
    prior, factors = make_model(3)
    whole = sample_codes(prior, factors, OFFSETS, 1000, np.random.default_rng(4), observed=0.5)
    monkeypatch.setattr("pmflib.model.sampling.CHUNK_ENTRIES", 37)
    chunked = sample_codes(prior, factors, OFFSETS, 1000, np.random.default_rng(4), observed=0.5)
    np.testing.assert_array_equal(whole, chunked)
    other = sample_codes(prior, factors, OFFSETS, 1000, np.random.default_rng(5), observed=0.5)
    assert np.any(whole != other)


def test_sample_codes__equals_a_slow_inverse_of_the_cumulative_probabilities():
    prior, factors = make_model(6)
    codes = sample_codes(prior, factors, OFFSETS, 300, np.random.default_rng(7), observed=0.8)
    uniforms = np.random.default_rng(7).random((300, 5))
    for row, numbers in zip(codes, uniforms, strict=True):
        state = int(np.sum(numbers[0] >= np.cumsum(prior)))
        for j in range(4):
            edges = 0.8 * np.cumsum(factors[OFFSETS[j] : OFFSETS[j + 1], state])
            level = int(np.sum(numbers[j + 1] >= edges))
            assert row[j] == (level if level < CARDINALITIES[j] else -1)


def test_sample_codes__never_draws_a_level_of_probability_zero():
    class Highest:
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0.0))

    # Ten times 0.1 sums to less than 1 in floating point.
    factors = np.concatenate([np.full(10, 0.1), [0.0]])[:, None]
    codes = sample_codes(np.ones(1), factors, np.array([0, 11]), 3, Highest())  # type: ignore[arg-type]
    np.testing.assert_array_equal(codes, 9)


@pytest.mark.parametrize(("cardinality", "dtype"), [(127, np.int8), (128, np.int16)])
def test_sample_codes__dtype_holds_the_largest_code(cardinality, dtype):
    factors = np.zeros((cardinality, 1))
    factors[-1] = 1.0
    codes = sample_codes(
        np.ones(1), factors, np.array([0, cardinality]), 5, np.random.default_rng(0)
    )
    assert codes.dtype == dtype
    np.testing.assert_array_equal(codes, cardinality - 1)


def test_sample_codes__no_rows():
    prior, factors = make_model(0)
    assert sample_codes(prior, factors, OFFSETS, 0, np.random.default_rng(0)).shape == (0, 4)


def test_sample_codes__refuses_what_does_not_fit():
    prior, factors = make_model(0)
    rng = np.random.default_rng(0)
    with pytest.raises(pmf.PmfError, match="n_rows"):
        sample_codes(prior, factors, OFFSETS, -1, rng)
    with pytest.raises(pmf.PmfError, match="observed"):
        sample_codes(prior, factors, OFFSETS, 1, rng, observed=1.5)
    with pytest.raises(SchemaError, match="observed"):
        sample_codes(prior, factors, OFFSETS, 1, rng, observed=np.ones(3))


def test_check_model__names_what_is_wrong():
    prior, factors = make_model(0)
    with pytest.raises(RankError, match="prior"):
        check_parameters(prior[:2], factors, OFFSETS)
    with pytest.raises(SchemaError, match="factors"):
        check_parameters(prior, factors, OFFSETS[:-1])
    with pytest.raises(SchemaError, match="offsets"):
        check_parameters(prior, factors, OFFSETS[::-1])
    with pytest.raises(SchemaError, match="prior"):
        check_parameters(2 * prior, factors, OFFSETS)
    with pytest.raises(SchemaError, match="factors"):
        check_parameters(prior, np.where(factors == factors.max(), np.nan, factors), OFFSETS)


def test_sample_answers__pairs_of_one_row_share_a_state():
    prior, factors = make_model(8)
    n_rows = 100_000
    row_starts = np.arange(n_rows + 1) * 2
    variables = np.tile([2, 0], n_rows)
    codes = sample_answers(
        prior, factors, OFFSETS, row_starts, variables, np.random.default_rng(9)
    ).reshape(-1, 2)
    marginals = (factors * prior) @ factors.T
    for a in range(5):
        for b in range(3):
            hits = np.sum((codes[:, 0] == a) & (codes[:, 1] == b))
            assert_binomial(hits, n_rows, marginals[OFFSETS[2] + a, OFFSETS[0] + b])


def test_choose_variables__no_variable_twice_in_a_row():
    popularity = 1 / np.arange(1.0, 41.0)
    sizes = np.array([0, 1, 5, 10, 11, 39, 40])
    row_starts = np.concatenate([[0], np.cumsum(sizes)])
    chosen = choose_variables(popularity, row_starts, np.random.default_rng(0))
    assert chosen.min() >= 0
    assert chosen.max() < 40
    for row in np.split(chosen, row_starts[1:-1]):
        assert np.unique(row).size == row.size
    assert np.unique(chosen[-40:]).size == 40


@pytest.mark.parametrize("first", [0.5, 4.0, 40.0])
def test_choose_variables__pairs_follow_successive_draws(first):
    # A dominant first variable takes more than half the weight at once, a light one does not.
    popularity = np.array([first, 3.0, 2.0, 1.0])
    n_rows = 100_000
    chosen = choose_variables(popularity, np.arange(n_rows + 1) * 2, np.random.default_rng(1))
    shares = popularity / popularity.sum()
    pairs = chosen.reshape(-1, 2)
    for a in range(4):
        for b in range(4):
            probability = 0.0 if a == b else shares[a] * shares[b] / (1 - shares[a])
            hits = np.sum((pairs[:, 0] == a) & (pairs[:, 1] == b))
            assert_binomial(hits, n_rows, probability)
