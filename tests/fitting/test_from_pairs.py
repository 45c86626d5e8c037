from functools import partial

import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.errors import RankError
from pmflib.solvers.pairs.mirror import fit_mirror

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
        np.diagonal(pmf.Marginals.from_counts(counts).pairs),
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


def test_fit__warns_when_a_method_stops_at_its_limit(codes, monkeypatch):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    monkeypatch.setattr("pmflib.fitting.pair_fits.fit_mirror", partial(fit_mirror, max_iter=1))
    with pytest.warns(pmf.ConvergenceWarning, match="mirror") as caught:
        result = pmf.fit(counts, 2, method="mirror")
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
