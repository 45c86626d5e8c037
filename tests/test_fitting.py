from functools import partial

import numpy as np
import pytest
from reference import make_codes, make_model

import pmflib as pmf
from pmflib.errors import ConvergenceWarning, PmfError, RankError, SchemaError
from pmflib.fitting import AUTO_SMOOTHING, choose_smoothing
from pmflib.solvers.mirror import fit_mirror

CARDINALITIES = [3, 2, 4, 3]


@pytest.fixture(scope="module")
def truth():
    parameters = make_model(np.random.default_rng(0), CARDINALITIES, 2)
    return pmf.JointPMF(*parameters, pmf.Schema.from_cardinalities(CARDINALITIES))


@pytest.fixture(scope="module")
def codes(truth):
    drawn = truth.sample(3000, rng=1)
    drawn[np.random.default_rng(2).random(drawn.shape) < 0.2] = -1
    return drawn


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
        pmf.fit_em(codes, rank=1, smoothing=0).model.factors[:, 0],
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


def test_fit__opt_is_no_worse_than_spa_by_the_loss_of_both(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    spa, opt = (pmf.fit(counts, 2, method=method) for method in ("spa", "opt"))
    assert opt.loss_history[-1] <= spa.loss_history[-1]


def test_fit__opt_says_why_it_started_at_random(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    result = pmf.fit(counts, 11, method="opt", rng=3)
    assert result.notes[0].startswith("random start, because spa cannot: rank is 11")
    again = pmf.fit(counts, 11, method="opt", rng=np.random.default_rng(3))
    assert np.array_equal(again.model.factors, result.model.factors)
    with pytest.raises(RankError, match="rank is 11"):
        pmf.fit(counts, 11, method="spa")


def test_fit__warns_when_a_method_stops_at_its_limit(codes, monkeypatch):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    monkeypatch.setattr("pmflib.fitting.fit_mirror", partial(fit_mirror, max_iter=1))
    with pytest.warns(ConvergenceWarning, match="mirror stopped after 1 iterations") as caught:
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
    assert (result.method, result.notes) == (
        "random",
        ("random start: a single variable has no pairs",),
    )
    with pytest.raises(PmfError, match="method is 'opt', and a single variable has no pairs"):
        pmf.fit(counts, 1, method="opt")
    np.testing.assert_allclose(
        pmf.fit_em(np.array([[0], [1], [1]]), rank=1, smoothing=0).model.factors[:, 0],
        [1 / 3, 2 / 3],
        rtol=1e-6,
    )


def test_fit__refuses_ranks_and_methods_that_are_none(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    with pytest.raises(RankError, match="rank is 0; give at least 1"):
        pmf.fit(counts, 0)
    with pytest.raises(PmfError, match=r"method is 'sap'; give one of .*'symnmf'"):
        pmf.fit(counts, 1, method="sap")


def test_fit_em__raises_the_likelihood_of_its_start(codes):
    start = pmf.fit(pmf.count_pairs(codes, CARDINALITIES), 2).model
    result = pmf.fit_em(codes, start, smoothing=0, max_passes=5000)
    assert result.converged
    assert result.method == "given+em"
    assert result.model.log_prob(codes).mean() > start.log_prob(codes).mean()
    # the history ends before the last pass, which can only have lowered the loss
    assert -result.model.log_prob(codes).mean() <= result.loss_history[-1] + 1e-12
    assert result.best_pass == len(result.loss_history) == result.model.origin["passes"]


def test_fit_em__warns_when_it_stops_at_its_limit(codes):
    with pytest.warns(ConvergenceWarning, match="EM stopped at max_passes=1 before it converged"):
        result = pmf.fit_em(codes, rank=2, max_passes=1)
    assert not result.converged
    # the warning points at the line that called
    with pytest.warns(ConvergenceWarning) as caught:
        pmf.fit_em(codes, rank=2, max_passes=1)
    assert caught[0].filename == __file__


def test_fit_em__no_pass_gives_back_the_model(truth, codes):
    result = pmf.fit_em(codes, truth, max_passes=0)
    assert np.array_equal(result.model.factors, truth.factors)
    assert result.loss_history == ()


def test_fit_em__validation_keeps_the_best_pass(codes):
    train, held_out = codes[:60], codes[60:160]
    result = pmf.fit_em(
        train, rank=8, validation=held_out, smoothing=0.01, patience=3, max_passes=300, rng=1
    )
    per_row = result.model.log_prob(held_out).mean()
    assert per_row == pytest.approx(max(result.held_out), rel=1e-12)
    assert result.best_pass == int(np.argmax(result.held_out))
    assert result.best_pass < len(result.loss_history)


def test_fit_em__tables_are_encoded():
    table = {"a": ["x", "y", "x", None] * 5, "b": [1, 2, 1, 2] * 5}
    result = pmf.fit_em(table, rank=1)
    assert result.model.schema.names == ("a", "b")
    held_out = {"a": ["x", "y"], "b": [1, None]}
    start = result.model
    assert len(pmf.fit_em(table, start, validation=held_out, patience=1).held_out) >= 2


def test_fit_em__reads_levels_off_the_samples():
    codes = np.array([[127, -1], [0, -1]], np.int8)
    result = pmf.fit_em(codes, rank=1, max_passes=0)
    assert result.model.schema.cardinalities.tolist() == [128, 1]


@pytest.mark.parametrize(
    ("codes", "arguments", "error", "message"),
    [
        ([[0, 1]], {}, PmfError, "model is absent and rank is None; give one of the two"),
        (np.zeros((0, 2), int), {"rank": 1}, SchemaError, r"of shape \(0, 2\); codes are integers"),
        (np.array([[0.0, np.nan]]), {"rank": 1}, SchemaError, "codes is an array of float64"),
        (np.zeros(3, int), {"rank": 1}, SchemaError, r"of shape \(3,\)"),
        (np.zeros((1, 1), int), {"rank": 1, "smoothing": -1.0}, PmfError, "smoothing is -1.0"),
        (np.zeros((1, 1), int), {"rank": 1, "max_passes": -1}, PmfError, "max_passes is -1"),
        (
            np.zeros((1, 1), int),
            {"rank": 1, "validation": np.zeros((0, 1), int)},
            PmfError,
            "validation has no rows",
        ),
        (
            np.zeros((0, 1), int),
            {"rank": 1, "schema": pmf.Schema.from_cardinalities([2])},
            PmfError,
            "codes has no rows",
        ),
    ],
)
def test_fit_em__refuses(codes, arguments, error, message):
    with pytest.raises(error, match=message):
        pmf.fit_em(codes, **arguments)


def test_fit_em__refuses_a_model_and_a_rank(truth, codes):
    with pytest.raises(PmfError, match="model is given and rank is 2"):
        pmf.fit_em(codes, truth, rank=2)


def test_fit_em__samples_with_nothing_observed():
    result = pmf.fit_em(np.full((4, 2), -1), rank=1, schema=pmf.Schema.from_cardinalities([2, 3]))
    np.testing.assert_allclose(result.model.factors[:, 0], [1 / 2] * 2 + [1 / 3] * 3)


def test_fit_em__gaps_and_int16_codes():
    codes = make_codes(np.random.default_rng(4), 400, [200, 3], missing=0.5)
    result = pmf.fit_em(codes, rank=2, schema=pmf.Schema.from_cardinalities([200, 3]))
    assert np.all(np.diff(result.loss_history) <= 1e-12)


def test_choose_smoothing__auto_and_numbers():
    assert choose_smoothing("auto") == AUTO_SMOOTHING
    assert choose_smoothing(0.25) == 0.25
