import math

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import ConvergenceWarning, MemoryPlanError, SchemaError
from pmflib.families.forests import Forest, TreeParameters, TreePMF
from pmflib.fits import STILL, Criteria, count_parameters
from pmflib.fits.criteria import _take_information, _take_score, score_composite, score_samples
from pmflib.model import published_factors, sample_codes
from tests.stored_samples import write_partition


def make_model(cardinalities, rank, seed=0):
    rng = np.random.default_rng(seed)
    factors = np.concatenate([rng.dirichlet(np.ones(n), rank).T for n in cardinalities])
    schema = pmf.Schema.from_cardinalities(cardinalities)
    return pmf.JointPMF(rng.dirichlet(np.ones(rank) * 5), factors, schema)


def test_count_parameters__by_hand():
    model = make_model([3, 2, 1], 4)
    assert count_parameters(model) == 3 + 4 * (2 + 1 + 0)


def test_count_parameters__levels_never_seen_and_variables_never_observed_are_none():
    model = make_model([3, 2, 4], 2)
    level_counts = np.array([5, 0, 5, 3, 3, 0, 0, 0, 0])
    assert count_parameters(model, level_counts) == 1 + 2 * (1 + 1 + 0)


def test_count_parameters__zeros_and_states_of_no_mass_are_fixed():
    model = make_model([3, 2], 3)
    factors, prior = model.factors.copy(), np.array([0.5, 0.5, 0.0])
    factors[:3, 0] = [0.5, 0.5, 0]
    assert count_parameters(pmf.JointPMF(prior, factors, model.schema)) == 1 + (1 + 1) + (2 + 1)


def test_score_samples__is_the_formula():
    model = make_model([2, 2], 2)
    codes = np.array([[0, 1], [1, -1], [-1, -1], [0, 0]])
    found = score_samples(model, codes)
    posterior, likelihood = 0.0, 0.0
    for row in codes:
        if (row < 0).all():
            continue
        joint = model.prior.copy()
        for index, code in enumerate(row):
            if code >= 0:
                joint = joint * model.factor(index)[code]
        likelihood += math.log(joint.sum())
        state = joint / joint.sum()
        posterior -= float(state @ np.log(state))
    # the second variable's levels were both seen
    assert (found.n_rows, found.n_parameters) == (3, 1 + 2 * (1 + 1))
    assert found.log_likelihood == pytest.approx(likelihood)
    assert found.entropy == pytest.approx(posterior)
    assert found.aic == pytest.approx(-2 * likelihood + 10)
    assert found.bic == pytest.approx(-2 * likelihood + 5 * math.log(3))
    assert found.icl == pytest.approx(found.bic + 2 * posterior)


def test_score_samples__bic_finds_the_planted_rank():
    rng = np.random.default_rng(1)
    prior, factors = published_factors(8, 4, 3, rng)
    schema = pmf.Schema.from_cardinalities([4] * 8)
    codes = sample_codes(prior, factors, schema.offsets, 5000, rng)
    scores = {
        rank: score_samples(
            pmf.fit_em(codes, rank=rank, schema=schema, pseudo_count=0.0, tol=1e-5).model, codes
        ).bic
        for rank in (2, 3, 4)
    }
    assert min(scores, key=scores.__getitem__) == 3


def test_criteria_of_a_fit__by_hand():
    """One state of two variables is independence: relative frequencies, and no entropy."""
    codes = pmf.Codes([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [0, -1]])
    result = pmf.fit_em(codes, rank=1, pseudo_count=0.0, validation=codes)
    likelihood = 6 * math.log(1 / 2) + 2 * math.log(2 / 5) + 3 * math.log(3 / 5)
    found = result.criteria(codes)
    assert isinstance(found, Criteria)
    assert (found.n_parameters, found.n_rows) == (2, 6)
    assert found.log_likelihood == pytest.approx(likelihood, abs=1e-4)
    assert found.entropy == pytest.approx(0, abs=1e-9)
    assert found.aic == pytest.approx(-2 * likelihood + 4, abs=1e-3)
    assert found.bic == found.icl == pytest.approx(-2 * likelihood + 2 * math.log(6), abs=1e-3)


def test_criteria_of_a_fit__of_counts_are_those_of_the_pairs():
    codes = np.random.default_rng(0).integers(0, 3, (4000, 3))
    counts = pmf.count_pairs(codes, [3] * 3, n_folds=16)
    result = pmf.fit(counts, rank=1)
    found = result.criteria(counts)
    assert found == score_composite(result.model, counts)


def test_score_samples__stored_and_in_batches_is_the_same_as_in_memory(tmp_path, thread_client):
    model = make_model([3, 2, 2, 4], 2)
    rng = np.random.default_rng(0)
    codes = model.sample(300, rng=0)
    codes[rng.random(codes.shape) < 0.2] = -1
    blocks = write_partition(tmp_path / "part", codes, model.schema)
    stored = pmf.em.StoredSamples(blocks, model.schema)
    whole, alone = score_samples(model, codes), score_samples(model, stored)
    assert alone == score_samples(model, stored.with_client(thread_client))
    assert (alone.n_rows, alone.n_parameters) == (whole.n_rows, whole.n_parameters)
    assert alone.log_likelihood == pytest.approx(whole.log_likelihood)
    assert alone.entropy == pytest.approx(whole.entropy)
    assert score_samples(model, pmf.em.StoredSamples([], model.schema)).n_rows == 0
    with pytest.raises(SchemaError, match="schema"):
        score_samples(make_model([2], 1), stored)


def test_criteria__of_forests_and_of_traits():
    schema = pmf.Schema.from_cardinalities([3, 2])
    forest = Forest(np.array([[-1, 0], [-1, -1]], np.int32), schema.offsets)
    tables = np.array([0.5, 0.5, 0.0, *[0.5, 0.5] * 3, 0.2, 0.3, 0.5, 0.4, 0.6])
    model = TreePMF.make(TreeParameters(np.array([0.5, 0.5]), forest, tables), schema)
    # of the first state a level that nobody holds, and a row for each level of the parent
    assert count_parameters(model) == 1 + (1 + 3) + (2 + 1)
    counts = pmf.count_pairs(np.array([[0, 1], [1, 1]]), schema, n_folds=2)
    with pytest.raises(pmf.PmfError, match="model"):
        score_composite(model, counts)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (200, 4))
    traits = pmf.families.fit_traits(
        codes, dimensions=1, n_states=20, shrinkage=1.0, passes=3, rng=0
    )
    with pytest.raises(pmf.PmfError, match="model"):
        count_parameters(traits.model)
    # states are points of an integral: their likelihood is known, a number of parameters is not
    found = traits.criteria(codes)
    assert found == traits.training
    assert found.log_likelihood == pytest.approx(traits.model.log_prob(codes).sum())
    assert found.bic is found.degrees_of_freedom is None


def log_composite(model, logs, table):
    """Composite log-likelihood at logarithms of factors and prior, one pair of levels at a time."""
    offsets, rank = model.schema.offsets, model.rank
    n_levels = model.schema.n_levels
    factors = np.exp(logs[: n_levels * rank].reshape(n_levels, rank))
    factors /= np.repeat(np.add.reduceat(factors, offsets[:-1]), np.diff(offsets), axis=0)
    prior = np.exp(logs[n_levels * rank :])
    prior /= prior.sum()
    pairs = (factors * prior) @ factors.T
    return float((np.triu(table, 1) * np.log(pairs)).sum())


def test_score_composite__score_and_information_are_the_derivatives():
    model = make_model([3, 2, 2], 2)
    rng = np.random.default_rng(0)
    pairs = (model.factors * model.prior) @ model.factors.T
    owners = np.repeat(np.arange(3), [3, 2, 2])
    across = owners[:, None] != owners
    table = np.where(across, np.round(1e9 * pairs), 0).astype(np.int64)
    logs = np.log(np.concatenate([model.factors.ravel(), model.prior]))

    def slope(at, table, index, step=1e-5):
        bump = np.zeros(logs.size)
        bump[index] = step
        ends = (log_composite(model, at + sign * bump, table) for sign in (1, -1))
        return -np.subtract(*reversed(list(ends))) / (2 * step)

    other = np.where(across, rng.integers(0, 50, pairs.shape), 0)
    other = np.triu(other) + np.triu(other).T
    expected = [slope(logs, other, index) for index in range(logs.size)]
    np.testing.assert_allclose(_take_score(model, other), expected, rtol=1e-4, atol=1e-4)
    # at the truth the expected information is minus the second derivative
    information = _take_information(model, np.triu(table))
    direction = rng.standard_normal(logs.size)
    step = 1e-3
    values = [log_composite(model, logs + t * direction, table) for t in (-step, 0.0, step)]
    bend = (values[0] - 2 * values[1] + values[2]) / step**2
    assert direction @ information @ direction == pytest.approx(-bend, rel=1e-3)


def test_score_composite__two_variables_have_as_many_parameters_as_they_have():
    """Of one pair per sample the composite likelihood is the likelihood: J = H."""
    rng = np.random.default_rng(0)
    schema = pmf.Schema.from_cardinalities([6, 6])
    codes = rng.integers(0, 6, (20_000, 2))
    counts = pmf.count_pairs(codes, schema, n_folds=200)
    found = score_composite(pmf.fit(counts, 1, method="opt").model, counts)
    assert found.n_effective == pytest.approx(10, abs=5 * math.sqrt(2 * 10 / 200))
    assert found.n_rows == 20_000
    assert found.bic - found.aic == pytest.approx(found.n_effective * (math.log(20_000) - 2))


def test_score_composite__pairs_of_one_sample_hang_together():
    """Of N independent variables a single's score counts N - 1 times, and so do its parameters."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (20_000, 5))
    counts = pmf.count_pairs(codes, [3] * 5, n_folds=200)
    found = score_composite(pmf.fit(counts, 1, method="opt").model, counts)
    assert found.n_effective == pytest.approx(4 * 10, rel=5 * math.sqrt(2 / (10 * 200)))


def test_score_composite__refuses():
    model = make_model([2, 2], 1)
    counts = pmf.count_pairs(np.array([[0, 1], [1, 1]]), [2, 2], n_folds=1)
    with pytest.raises(pmf.PmfError, match="counts"):
        score_composite(model, counts)
    with pytest.raises(SchemaError, match="schema"):
        score_composite(make_model([2, 3], 1), counts)
    wide = make_model([2, 2], 900)
    with pytest.raises(MemoryPlanError, match="4,500"):
        score_composite(wide, counts)


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"rank": 3},
        {"rank": 3, "start": "random"},
        {"rank": 2, "members": 2},
        {"rank": 3, "max_passes": 3},
        {"rank": 3, "max_passes": 0},
        {"rank": 2, "dependence": "tree", "max_passes": 8},
        {"rank": 3, "target": 0},
        {"rank": "auto"},
    ],
    ids=str,
)
def test_fit__what_it_says_of_likelihoods_is_the_returned_models(options):
    truth = make_model([3, 2, 2, 4, 3], 2, seed=3)
    codes, held_out = truth.sample(300, 0), truth.sample(100, 1)
    rng = np.random.default_rng(0)
    for rows in (codes, held_out):
        rows[rng.random(rows.shape) < 0.1] = -1
    codes[:2] = -1
    result = pmf.fit_em(codes, schema=truth.schema, validation=held_out, **options)
    found, score = result.training, result.held_out_score
    assert found == result.criteria(codes)
    assert found.log_likelihood == pytest.approx(result.model.log_prob(codes).sum())
    assert found.per_row == pytest.approx(result.model.log_prob(codes).mean())
    assert (found.n_rows + found.n_empty, score.n_rows, score.n_trials) == (300, 100, 0)
    log_probs = result.model.log_prob(held_out)
    if "target" in options:
        hidden = held_out.copy()
        hidden[:, 0] = -1
        log_probs = log_probs - result.model.log_prob(hidden)
    else:
        assert result.log_likelihoods[-1] == found.per_row
    assert score.per_row == pytest.approx(log_probs.mean())
    assert score.log_likelihood == pytest.approx(log_probs.sum())
    assert result.held_out[-1] == pytest.approx(score.per_row)


def test_fit__converged_is_said_of_the_returned_parameters():
    """Fits of few samples from many starts: whichever is taken is an optimum."""
    truth = make_model([3] * 8, 4, seed=1)
    for seed, pseudo_count in ((0, "auto"), (1, 0.3), (2, 0.0)):
        codes = truth.sample(150, seed)
        options = {"schema": truth.schema, "pseudo_count": pseudo_count}
        result = pmf.fit_em(codes, rank=4, rng=seed, **options)
        assert result.converged == (result.last_change <= STILL)
        options["pseudo_count"] = result.model.origin["pseudo_count"]
        with pytest.warns(ConvergenceWarning):
            more = pmf.fit_em(codes, result.model, max_passes=1, **options)
        changes = np.abs(more.model.factors - result.model.factors).max()
        changes = max(changes, np.abs(more.model.prior - result.model.prior).max())
        assert result.last_change == pytest.approx(changes)
        assert result.converged
        if pseudo_count == "auto":
            # under the trial: one fold had no part in the fit
            assert result.held_out_score.n_trials == 1
        else:
            # nothing is left open, so that nothing is held out
            assert result.held_out_score is None


def test_criteria__by_their_formulas():
    found = Criteria(-100.0, 5.0, n_rows=50, n_empty=2, n_states=2, n_parameters=7, n_cells=16)
    assert found.per_row == -100 / 52
    assert found.sabic == pytest.approx(200 + 7 * math.log(52 / 24))
    assert found.caic == pytest.approx(200 + 7 * (math.log(50) + 1))
    assert found.relative_entropy == pytest.approx(1 - 5 / (50 * math.log(2)))
    assert found.degrees_of_freedom == 15 - 7
    assert Criteria(-1.0, 0.0, 3, 0, 1, 7, math.inf).degrees_of_freedom == 3 - 7
    assert Criteria(-1.0, 0.0, 3, 0, 1, 7, 8).relative_entropy is None
    assert set(found.to_json()) >= {"aic", "bic", "sabic", "caic", "icl", "relative_entropy"}


def test_gain__is_that_over_the_shares_of_each_level():
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=2000)
    alike = (rng.random((2000, 4)) < np.where(state, 0.8, 0.2)[:, None]).astype(int)
    alike[::5, 1] = -1
    apart = rng.integers(2, size=(2000, 4))
    for codes, is_better in ((alike, True), (apart, False)):
        result = pmf.fit_em(codes, rank=2, schema=pmf.Schema.from_cardinalities([2] * 4))
        found = result.training
        alone = 0.0
        for column in codes.T:
            counts = np.bincount(column[column >= 0])
            alone += float(counts @ np.log(counts / counts.sum()))
        assert found.singles[0] == pytest.approx(alone)
        assert found.singles[1] == 4
        assert found.gain == pytest.approx((found.log_likelihood - alone - (9 - 4)) / 2000)
        assert (found.gain > 0) == is_better
        name, said = result.summary().facts[0]
        assert name == "better than single variables"
        assert said.startswith("yes" if is_better else "no")
