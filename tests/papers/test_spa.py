"""CNMF-SPA: anchors and the direct fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from pmflib.base import FloatArray, RankError
from pmflib.papers import fit_spa, select_anchors
from tests.pair_tables import assert_is_model, every_pair, exact_marginals, owners_of
from tests.reference import offsets_of


def project_naively(matrix, rank):
    """Successive projection with the projector written out."""
    used = np.flatnonzero(matrix.sum(axis=0))
    residual = matrix[:, used] / matrix[:, used].sum(axis=0)
    chosen = []
    for _ in range(rank):
        column = int(np.argmax(np.linalg.norm(residual, axis=0)))
        chosen.append(used[column])
        unit = residual[:, column] / np.linalg.norm(residual[:, column])
        residual = (np.eye(len(unit)) - np.outer(unit, unit)) @ residual
    return chosen


def make_model(rng, cardinalities, rank, pure=()) -> tuple[FloatArray, FloatArray]:
    """Random factors; the first ``rank`` levels of a pure variable are anchors."""
    prior = rng.dirichlet(np.full(rank, 5.0))
    blocks = []
    for variable, cardinality in enumerate(cardinalities):
        block = rng.dirichlet(np.ones(cardinality), rank).T
        if variable in pure:
            block[:rank] = np.diag(np.diag(block[:rank]) + 0.2)
        blocks.append(block / block.sum(axis=0))
    return prior, np.vstack(blocks)


def draw_marginals(rng, prior, factors, offsets, n_rows, rate):
    """Marginals of a sample with entries missing at random."""
    n_variables = len(offsets) - 1
    states = rng.choice(prior.size, n_rows, p=prior)
    seen = np.zeros((n_rows, offsets[-1]))
    for j in range(n_variables):
        cumulated = np.cumsum(factors[offsets[j] : offsets[j + 1]], axis=0)[:-1, states]
        codes = (rng.random(n_rows) > cumulated).sum(axis=0)
        kept = rng.random(n_rows) < rate
        seen[kept, offsets[j] + codes[kept]] = 1
    counts = seen.T @ seen
    starts = offsets[:-1]
    support = np.add.reduceat(np.add.reduceat(counts, starts), starts, axis=1)
    owners = owners_of(offsets)
    return counts / support[np.ix_(owners, owners)]


def factor_error(prior, factors, result, n_variables):
    """Mean squared error after the best permutation of the states."""
    costs = ((factors[:, :, None] - result.factors[:, None, :]) ** 2).sum(axis=0)
    mine, theirs = linear_sum_assignment(costs)
    gap = ((prior[mine] - result.prior[theirs]) ** 2).sum()
    return gap + costs[mine, theirs].sum() / n_variables / prior.size


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_select_anchors__equals_explicit_projection(seed, rank):
    matrix = np.random.default_rng(seed).dirichlet(np.full(12, 0.5), 20).T
    matrix[:, 3] = 0.0
    assert select_anchors(matrix, rank).tolist() == project_naively(matrix, rank)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_select_anchors__finds_the_pure_columns(seed):
    rng = np.random.default_rng(seed)
    weights = np.hstack([np.eye(5), rng.dirichlet(np.ones(5), 30).T])
    shuffled = rng.permutation(35)
    matrix = rng.random((20, 5)) @ weights * rng.uniform(0.01, 100, 35)
    anchors = select_anchors(matrix[:, shuffled], 5)
    assert sorted(shuffled[anchors]) == [0, 1, 2, 3, 4]


def test_select_anchors__nearly_parallel_columns_keep_their_digits():
    # Squared residuals fall to 1e-16 of the start, where plain updates are all rounding.
    base, rng = np.full(6, 1.0 / 6), np.random.default_rng(0)
    offsets = 1e-8 * rng.normal(size=(6, 4))
    pure = base[:, None] + offsets - offsets.mean(axis=0)
    mixed = pure @ rng.dirichlet(np.ones(4), 40).T
    anchors = select_anchors(np.hstack([mixed, pure]), 3)
    assert (anchors >= 40).all()


def test_select_anchors__tie_goes_to_the_larger_original_norm():
    # Past the first column the other two leave residuals of squared norm 1/4; the last is longer.
    spread = [0.0, 0.25, 0.25, 0.25, 0.25]
    mixed = [0.5, 0.5, 0.0, 0.0, 0.0]
    matrix = np.array([[1.0, 0.0, 0.0, 0.0, 0.0], spread, mixed]).T
    np.testing.assert_array_equal(select_anchors(matrix, 2), [0, 2])


def test_select_anchors__empty_column_is_never_chosen():
    matrix = np.zeros((3, 6))
    matrix[:, [1, 3, 4]] = np.eye(3)
    np.testing.assert_array_equal(select_anchors(matrix, 3), [1, 3, 4])


@pytest.mark.parametrize("rank", [3, 7])
def test_select_anchors__refuses_above_the_numerical_rank(rank):
    rng = np.random.default_rng(1)
    matrix = rng.random((8, 2)) @ rng.random((2, 9))
    with pytest.raises(RankError, match="rank"):
        select_anchors(matrix, rank)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_fit_spa__recovers_a_separable_model(seed):
    rng = np.random.default_rng(seed)
    cardinalities = [6, 5, 8, 7, 8]
    offsets, observed = offsets_of(cardinalities), every_pair(5)
    prior, factors = make_model(rng, cardinalities, 4, pure=(4,))
    marginals = exact_marginals(prior, factors, offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=4)
    assert_is_model(result, offsets, 4)
    assert factor_error(prior, factors, result, 5) <= 1e-16
    assert result.loss_history[0] <= 1e-12


def test_fit_spa__error_falls_with_the_sample():
    rng = np.random.default_rng(5)
    cardinalities = [8] * 5
    offsets, observed = offsets_of(cardinalities), every_pair(5)
    errors = []
    for n_rows in (10_000, 160_000):
        total = 0.0
        for _ in range(4):
            prior, factors = make_model(rng, cardinalities, 3, pure=(3, 4))
            marginals = draw_marginals(rng, prior, factors, offsets, n_rows, 0.7)
            total += factor_error(prior, factors, fit_spa(marginals, offsets, observed, rank=3), 5)
        errors.append(total)
    # A rate of 1/S divides the error by 16.
    assert errors[1] < errors[0] / 8


def test_fit_spa__given_split_is_used():
    rng = np.random.default_rng(6)
    offsets, observed = offsets_of([6] * 4), every_pair(4)
    prior, factors = make_model(rng, [6] * 4, 3, pure=(0,))
    marginals = exact_marginals(prior, factors, offsets, observed)
    anchored = fit_spa(
        marginals, offsets, observed, rank=3, split=np.array([False, True, True, True])
    )
    blind = fit_spa(marginals, offsets, observed, rank=3, split=np.array([True, False, True, True]))
    assert factor_error(prior, factors, anchored, 4) <= 1e-16
    assert blind.loss_history[0] > 1e-4


def test_fit_spa__default_is_the_best_split():
    rng = np.random.default_rng(7)
    offsets, observed = offsets_of([5] * 4), every_pair(4)
    marginals = exact_marginals(*make_model(rng, [5] * 4, 4), offsets, observed)
    best = fit_spa(marginals, offsets, observed, rank=4)
    for split in ([1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]):
        tried = fit_spa(marginals, offsets, observed, rank=4, split=np.array(split, np.bool_))
        assert best.loss_history[0] <= tried.loss_history[0]


def test_fit_spa__loss_is_the_mean_divergence():
    rng = np.random.default_rng(8)
    cardinalities = [3, 4, 2]
    offsets = offsets_of(cardinalities)
    observed = every_pair(3)
    observed[0, 2] = observed[2, 0] = False
    marginals = exact_marginals(*make_model(rng, cardinalities, 5), offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=2)
    total = 0.0
    for j, k in ((0, 1), (1, 2)):
        left = result.factors[offsets[j] : offsets[j + 1]]
        right = result.factors[offsets[k] : offsets[k + 1]]
        table = marginals[offsets[j] : offsets[j + 1], offsets[k] : offsets[k + 1]]
        model = np.maximum((left * result.prior) @ right.T, 1e-6)
        total += (table * np.log(table / model)).sum()
    assert result.loss_history == pytest.approx((total / 2,), rel=1e-12)
    assert result.converged
    assert result.n_iter == 0


def test_fit_spa__rank_one_is_the_single_marginals():
    offsets, observed = offsets_of([3, 2, 4]), every_pair(3)
    marginals = exact_marginals(
        *make_model(np.random.default_rng(9), [3, 2, 4], 3), offsets, observed
    )
    result = fit_spa(marginals, offsets, observed, rank=1)
    np.testing.assert_array_equal(result.prior, [1.0])
    np.testing.assert_allclose(result.factors[:, 0], np.diagonal(marginals), rtol=1e-14)


def test_fit_spa__two_variables():
    rng = np.random.default_rng(10)
    offsets, observed = offsets_of([6, 5]), every_pair(2)
    prior, factors = make_model(rng, [6, 5], 3, pure=(1,))
    marginals = exact_marginals(prior, factors, offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=3)
    model = (result.factors * result.prior) @ result.factors.T
    np.testing.assert_allclose(model[:6, 6:], marginals[:6, 6:], rtol=0, atol=1e-12)


def test_fit_spa__level_never_seen_has_no_mass():
    rng = np.random.default_rng(11)
    offsets, observed = offsets_of([5, 6, 5, 6]), every_pair(4)
    prior, factors = make_model(rng, [5, 6, 5, 6], 3, pure=(1, 3))
    for level in (2, 10, 20):
        factors[level] = 0.0
    factors /= np.repeat(np.add.reduceat(factors, offsets[:-1]), np.diff(offsets), axis=0)
    marginals = exact_marginals(prior, factors, offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=3)
    assert_is_model(result, offsets, 3)
    assert factor_error(prior, factors, result, 4) <= 1e-16
    np.testing.assert_array_equal(result.factors[[2, 10, 20]], 0.0)


def test_fit_spa__variable_never_observed_is_uniform():
    rng = np.random.default_rng(12)
    offsets, observed = offsets_of([5, 4, 5, 5]), every_pair(4)
    observed[1] = observed[:, 1] = False
    prior, factors = make_model(rng, [5, 4, 5, 5], 3, pure=(2, 3))
    marginals = exact_marginals(prior, factors, offsets, observed)
    marginals[5:9] = 0.0
    result = fit_spa(marginals, offsets, observed, rank=3)
    assert_is_model(result, offsets, 3)
    np.testing.assert_allclose(result.factors[5:9], 0.25, rtol=1e-12)


def test_fit_spa__nothing_observed():
    offsets, observed = offsets_of([2, 4]), np.zeros((2, 2), np.bool_)
    result = fit_spa(np.zeros((6, 6)), offsets, observed, rank=1)
    np.testing.assert_allclose(result.factors[:, 0], [0.5] * 2 + [0.25] * 4)
    assert result.loss_history == (0.0,)
    with pytest.raises(RankError, match="rank"):
        fit_spa(np.zeros((6, 6)), offsets, observed, rank=2)


def test_fit_spa__unobserved_pairs_are_cut_around():
    # Observed pairs are all between {0, 1, 3} and {2, 4}: the cut needs no filling, and is exact.
    rng = np.random.default_rng(13)
    offsets = offsets_of([6] * 5)
    sides = np.array([True, True, False, True, False])
    observed = sides[:, None] != sides
    prior, factors = make_model(rng, [6] * 5, 4, pure=(4,))
    marginals = exact_marginals(prior, factors, offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=4)
    assert factor_error(prior, factors, result, 5) <= 1e-16


def test_fit_spa__one_level_variable():
    rng = np.random.default_rng(14)
    offsets, observed = offsets_of([5, 1, 5, 1]), every_pair(4)
    prior, factors = make_model(rng, [5, 1, 5, 1], 3, pure=(2,))
    marginals = exact_marginals(prior, factors, offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=3)
    assert factor_error(prior, factors, result, 4) <= 1e-16
    np.testing.assert_allclose(result.factors[[5, 11]], 1.0, rtol=1e-12)


def test_fit_spa__independent_variables_carry_rank_one():
    rng = np.random.default_rng(15)
    offsets, observed = offsets_of([4, 4, 3, 3]), every_pair(4)
    marginals = exact_marginals(*make_model(rng, [4, 4, 3, 3], 1), offsets, observed)
    with pytest.raises(RankError, match="rank"):
        fit_spa(marginals, offsets, observed, rank=2)


def test_fit_spa__independent_attributes_of_a_class():
    # A full factorial design: attributes are independent, the class is a function of them.
    grid = np.array(np.meshgrid(range(3), range(3), range(2), indexing="ij")).reshape(3, -1)
    codes = np.vstack([grid.sum(axis=0) // 2, grid])
    offsets = offsets_of([3, 3, 3, 2])
    indicator = np.zeros((codes.shape[1], offsets[-1]))
    for j, column in enumerate(codes):
        indicator[np.arange(column.size), offsets[j] + column] = 1
    result = fit_spa(indicator.T @ indicator / 18, offsets, every_pair(4), rank=3)
    assert_is_model(result, offsets, 3)


def test_fit_spa__identical_levels_tie():
    rng = np.random.default_rng(16)
    offsets, observed = offsets_of([4, 6]), every_pair(2)
    prior, factors = make_model(rng, [4, 3], 3, pure=(1,))
    factors = np.vstack([factors[:4], np.repeat(factors[4:] / 2, 2, axis=0)])
    marginals = exact_marginals(prior, factors, offsets, observed)
    result = fit_spa(marginals, offsets, observed, rank=3, split=np.array([True, False]))
    assert factor_error(prior, factors, result, 2) <= 1e-16


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0.05, 1.0))
def test_fit_spa__few_samples_give_a_model_or_a_rank_error(seed, rank, rate):
    rng = np.random.default_rng(seed)
    cardinalities = rng.integers(1, 5, 5)
    offsets = offsets_of(cardinalities)
    codes = rng.integers(0, cardinalities, (30, 5))
    seen = np.zeros((30, offsets[-1]))
    for j in range(5):
        kept = rng.random(30) < rate
        seen[kept, offsets[j] + codes[kept, j]] = 1
    counts = seen.T @ seen
    support = np.add.reduceat(np.add.reduceat(counts, offsets[:-1]), offsets[:-1], axis=1)
    owner = np.repeat(np.arange(5), cardinalities)
    marginals = counts / np.maximum(support, 1)[np.ix_(owner, owner)]
    observed = (support > 0) & every_pair(5)
    try:
        result = fit_spa(marginals, offsets, observed, rank=rank)
    except RankError:
        assert rank > 1
        return
    assert_is_model(result, offsets, rank)


def test_fit_spa__same_bits():
    rng = np.random.default_rng(17)
    offsets, observed = offsets_of([7] * 6), every_pair(6)
    prior, factors = make_model(rng, [7] * 6, 5)
    marginals = draw_marginals(rng, prior, factors, offsets, 2_000, 0.6)
    first = fit_spa(marginals, offsets, observed, rank=5)
    again = fit_spa(marginals.copy(), offsets, observed, rank=5)
    np.testing.assert_array_equal(first.factors, again.factors)
    np.testing.assert_array_equal(first.prior, again.prior)
    assert first.notes == again.notes


def test_fit_spa__leaves_its_arguments():
    rng = np.random.default_rng(18)
    offsets, observed = offsets_of([4] * 4), every_pair(4)
    marginals = exact_marginals(*make_model(rng, [4] * 4, 3), offsets, observed)
    before = marginals.copy()
    fit_spa(marginals, offsets, observed, rank=3)
    np.testing.assert_array_equal(marginals, before)


@pytest.mark.parametrize(
    ("rank", "split", "match"),
    [
        (0, None, "rank"),
        (6, None, "rank"),
        (3, [True, False, True], "rank"),
        (2, [True, True, True], "rank"),
    ],
)
def test_fit_spa__refuses_rank(rank, split, match):
    offsets, observed = offsets_of([5, 2, 3]), every_pair(3)
    marginals = exact_marginals(
        *make_model(np.random.default_rng(19), [5, 2, 3], 2), offsets, observed
    )
    with pytest.raises(RankError, match=match):
        fit_spa(
            marginals,
            offsets,
            observed,
            rank=rank,
            split=None if split is None else np.array(split),
        )
