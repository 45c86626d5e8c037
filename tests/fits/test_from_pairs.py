import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import RankError
from pmflib.papers import fit_spa

CARDINALITIES = [3, 2, 4, 3]


def test_fit__explains_more_than_the_single_marginals(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    result = pmf.fit(counts, 2, method="spa")
    assert (result.method, result.model.origin["method"]) == ("spa", "spa")
    alone = pmf.fit(counts, 1).model
    assert result.model.log_prob(codes).mean() > alone.log_prob(codes).mean()


def test_fit__rank_one_is_the_single_marginals(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    found = pmf.fit(counts, 1, method="random").model.factors[:, 0]
    np.testing.assert_allclose(
        pmf.fit_em(codes, rank=1, pseudo_count=0).model.factors[:, 0],
        np.diagonal(pmf.counts.Marginals.from_counts(counts).pairs),
        rtol=1e-9,
    )
    assert found.min() > 0


@pytest.mark.parametrize("method", ["opt", "mirror", "symnmf"])
def test_fit__pairwise_methods_lower_their_loss(codes, method):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    result = pmf.fit(counts, 2, method=method)
    assert (result.method, result.model.origin["method"]) == (method, method)
    assert result.converged
    assert np.all(np.diff(result.loss_history) <= 1e-12)
    alone = pmf.fit(counts, 1).model
    assert result.model.log_prob(codes).mean() > alone.log_prob(codes).mean()


def test_fit__opt_starts_at_random_where_spa_cannot(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    result = pmf.fit(counts, 11, method="opt", rng=3)
    again = pmf.fit(counts, 11, method="opt", rng=np.random.default_rng(3))
    assert np.array_equal(again.model.factors, result.model.factors)
    with pytest.raises(RankError, match="rank"):
        pmf.fit(counts, 11, method="spa")


def test_fit__warns_when_a_method_stops_at_its_limit(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    with pytest.warns(pmf.errors.ConvergenceWarning, match="mirror") as caught:
        result = pmf.fit(counts, 2, method={"name": "mirror", "max_iter": 1})
    assert not result.converged
    assert caught[0].filename == __file__


def test_fit__no_samples_give_uniform_columns():
    counts = pmf.PairCounts.zero(pmf.Schema.from_cardinalities([2, 4]))
    for method in ("auto", "opt", "mirror", "symnmf"):
        factors = pmf.fit(counts, 2, method=method).model.factors
        np.testing.assert_allclose(factors[:, 0], [1 / 2] * 2 + [1 / 4] * 4)


def test_fit__single_variable_has_no_pairs():
    counts = pmf.count_pairs(np.array([[0], [1], [1]]), [2])
    result = pmf.fit(counts, 1)
    assert result.method == "random"
    with pytest.raises(pmf.PmfError, match="method"):
        pmf.fit(counts, 1, method="opt")
    np.testing.assert_allclose(
        pmf.fit_em(np.array([[0], [1], [1]]), rank=1, pseudo_count=0).model.factors[:, 0],
        [1 / 3, 2 / 3],
        rtol=1e-6,
    )


def test_fit__refuses_ranks_and_methods_that_are_none(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    with pytest.raises(RankError, match="rank"):
        pmf.fit(counts, 0)
    with pytest.raises(pmf.PmfError, match="method"):
        pmf.fit(counts, 1, method="sap")


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ({"name": "spa", "splits": "first"}, "splits"),
        ({"name": "spa", "split": "last"}, "split"),
        ({"name": "opt", "tol": -1.0}, "tol"),
        ({"name": "opt", "tol": float("nan")}, "tol"),
        ({"name": "opt", "max_iter": 2.5}, "max_iter"),
        ({"name": "opt", "max_iter": True}, "max_iter"),
        ({"name": "symnmf", "shift_decay": 1.5}, "shift_decay"),
        ({"name": "spa", "split": "first", "n_first": 4}, "n_first"),
        ({"name": "random", "tol": 1e-3}, "tol"),
        ({"split": "first"}, "name"),
        (["spa"], "method"),
        ({"name": 3}, "method"),
    ],
)
def test_fit__refuses_options_that_a_method_does_not_have(codes, method, argument):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    with pytest.raises(pmf.PmfError, match=argument):
        pmf.fit(counts, 2, method=method)


def test_fit__split_of_the_variables_is_an_option(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    marginals = pmf.counts.Marginals.from_counts(counts)
    given = np.array([True, True, True, False])
    expected = fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=2, split=given)
    found = pmf.fit(counts, 2, method={"name": "spa", "split": "first", "n_first": 3})
    np.testing.assert_array_equal(found.model.factors, expected.factors)


def test_fit__pairs_of_little_support_are_unobserved(codes):
    # two of three thousand samples have both of the first two variables
    thinned = codes.copy()
    thinned[2:, 0] = -1
    counts = pmf.count_pairs(thinned, CARDINALITIES)
    few = pmf.fit(counts, 2, method={"name": "opt", "min_support": 3})
    singles = np.bincount(thinned[:2, 0], minlength=3) / 2
    np.testing.assert_allclose(few.model.factor(0), singles[:, None] * [1, 1])
    zero = pmf.fit(counts, 2, method={"name": "spa", "min_support": 3, "unobserved": "zero"})
    assert "unobserved pairs taken as zero: 3" in zero.notes


def test_fit__least_squares_of_pairs_lower_that_loss(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    squares = pmf.fit(counts, 2, method={"name": "opt", "loss": "squares"})
    divergence = pmf.fit(counts, 2, method="opt")
    pairs = pmf.counts.Marginals.from_counts(counts).pairs

    def distance(model):
        sizes = np.repeat(range(4), CARDINALITIES)
        gap = (model.factors * model.prior) @ model.factors.T - pairs
        return (gap[sizes[:, None] != sizes] ** 2).sum()

    assert distance(squares.model) <= distance(divergence.model)
    assert np.all(np.diff(squares.loss_history) <= 0)
    assert squares.loss_history[-1] == pytest.approx(distance(squares.model) / 24, rel=1e-6)
