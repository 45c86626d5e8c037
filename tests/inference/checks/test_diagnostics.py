import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.inference.checks import count_moments
from pmflib.model import published_factors, sample_codes
from tests.reference import make_model, tables_of_codes


def draw(n_rows, *, observed=1.0, seed=0, n_variables=6, rank=4):
    rng = np.random.default_rng(seed)
    prior, factors = published_factors(n_variables, 5, rank, rng)
    schema = pmf.Schema.from_cardinalities([5] * n_variables)
    codes = sample_codes(prior, factors, schema.offsets, n_rows, rng, observed=observed)
    return pmf.count_pairs(codes, schema), pmf.JointPMF(prior, factors, schema)


@pytest.mark.parametrize("rank", [2, 4])
def test_diagnose__many_samples_tell_all_states_apart(rank):
    counts, model = draw(200_000, rank=rank)
    found = pmf.inference.diagnose(counts, model)
    assert found.effective_rank == rank
    assert found.singular_values[rank - 1] > 2 * found.noise
    assert found.warnings == ()
    assert (found.n_pairs, found.n_observed, found.coverage) == (15, 15, 1.0)
    assert found.least_support == found.median_support == 200_000


def test_diagnose__few_samples_cannot_carry_the_rank():
    counts, model = draw(300, observed=0.5)
    found = pmf.inference.diagnose(counts, model)
    assert found.effective_rank is not None
    assert found.effective_rank < 4
    assert found.warnings


def test_diagnose__independent_variables_are_of_rank_one():
    rng = np.random.default_rng(3)
    counts = pmf.count_pairs(rng.integers(0, 4, (20_000, 5)), [4] * 5)
    model = pmf.JointPMF(np.ones(1), np.full((20, 1), 0.25), counts.schema)
    assert pmf.inference.diagnose(counts, model).effective_rank == 1


def test_diagnose__more_parameters_than_moments():
    rng = np.random.default_rng(0)
    schema = pmf.Schema.from_cardinalities([2, 2, 2])
    model = pmf.JointPMF(*make_model(rng, [2, 2, 2], 2), schema)
    found = pmf.inference.diagnose(pmf.count_pairs(model.sample(50, rng), schema), model)
    assert (found.n_parameters, found.n_moments) == (7, 6)


def test_diagnose__pure_levels_and_conditions():
    prior = np.array([0.5, 0.5])
    sharp = np.vstack([np.eye(2), np.eye(2), [[0.5, 0.5], [0.5, 0.5]]])
    schema = pmf.Schema.from_cardinalities([2, 2, 2])
    model = pmf.JointPMF(prior, sharp, schema)
    found = pmf.inference.diagnose(pmf.count_pairs(model.sample(400, 0), schema), model)
    assert found.purity.tolist() == [1.0, 1.0]
    assert found.n_ruled_out.tolist() == [2, 2]
    assert all(1 <= each < 3 for each in found.condition_numbers)
    alike = pmf.JointPMF(prior, np.full((6, 2), 0.5), schema)
    blind = pmf.inference.diagnose(pmf.count_pairs(model.sample(400, 0), schema), alike)
    assert min(blind.condition_numbers) > 1e10
    assert blind.purity.tolist() == [0.5, 0.5]


def test_diagnose__says_what_pairs_alone_leave_open():
    counts, model = draw(2000, rank=3)
    found = pmf.inference.diagnose(
        counts, pmf.JointPMF(model.prior, model.factors * 0.9 + 0.02, model.schema)
    )
    assert "v0" in found.pair_warnings[0]
    assert found.warnings == ()


def test_diagnose__pairs_determine_states_that_levels_rule_out():
    factors = np.vstack([np.eye(3)] * 4)
    schema = pmf.Schema.from_cardinalities([3] * 4)
    model = pmf.JointPMF(np.array([0.5, 0.3, 0.2]), factors, schema)
    assert (
        pmf.inference.diagnose(pmf.count_pairs(model.sample(500, 0), schema), model).pair_warnings
        == ()
    )


def test_diagnose__says_what_was_never_observed():
    codes = np.array([[0, 0, -1, -1], [1, 1, -1, -1], [-1, 1, 0, -1]] * 20)
    counts = pmf.count_pairs(codes, [2, 2, 2, 2])
    found = pmf.inference.diagnose(counts, pmf.fit(counts, 1).model)
    assert (found.n_pairs, found.n_observed, found.least_support) == (6, 2, 20)
    assert found.median_support == 0
    assert "v3" in found.warnings[0]
    assert len(found.warnings) == 2


@pytest.mark.parametrize("n_folds", [1, 16])
@pytest.mark.parametrize("cardinalities", [[3], [2, 2], [1, 1, 1]])
def test_diagnose__of_no_samples_is_defined(cardinalities, n_folds):
    counts = pmf.PairCounts.zero(pmf.Schema.from_cardinalities(cardinalities), n_folds)
    model = pmf.JointPMF(*make_model(np.random.default_rng(0), cardinalities, 2), counts.schema)
    found = pmf.inference.diagnose(counts, model)
    assert found.n_observed == found.least_support == 0
    assert found.effective_rank == 1


def test_diagnose__a_single_fold_leaves_the_rank_unknown():
    counts, model = draw(100)
    single = pmf.inference.diagnose(counts.select_folds([0]), model)
    assert single.effective_rank is None


@given(tables_of_codes(max_rows=30), st.integers(1, 3))
def test_diagnose__any_counts(case, rank):
    cardinalities, codes = case
    counts = pmf.count_pairs(codes, cardinalities, n_folds=4)
    model = pmf.JointPMF(*make_model(np.random.default_rng(1), cardinalities, rank), counts.schema)
    found = pmf.inference.diagnose(counts, model)
    assert np.isfinite(found.singular_values).all()
    assert 0 <= found.n_observed <= found.n_pairs
    assert ((found.purity >= 0) & (found.purity <= 1)).all()
    marginals = pmf.counts.Marginals.from_counts(counts)
    observed = [j for j in range(len(cardinalities)) if (codes[:, j] >= 0).any()]
    expected = sum(cardinalities[j] - 1 for j in observed) + sum(
        (cardinalities[j] - 1) * (cardinalities[k] - 1)
        for j in observed
        for k in observed
        if j < k and ((codes[:, j] >= 0) & (codes[:, k] >= 0)).any()
    )
    assert count_moments(marginals) == expected


def test_to_json__is_plain():
    counts, model = draw(300, observed=0.5)
    found = pmf.inference.diagnose(counts, model)
    content = json.loads(json.dumps(found.to_json()))
    assert content["effective_rank"] == found.effective_rank
    assert content["coverage"] == 1.0
    assert content["warnings"] == list(found.warnings)


def test_diagnose__refuses_another_schema():
    counts, _ = draw(10)
    _, other = draw(10, n_variables=5)
    with pytest.raises(SchemaError, match="schema"):
        pmf.inference.diagnose(counts, other)
