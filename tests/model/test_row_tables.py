import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib.model.row_tables as row_tables
from pmflib.base import FLOOR, DenseBlock
from pmflib.counts.kernels import readiness
from pmflib.model import Layout, em_statistics, score_block, sum_fields, take_logs
from pmflib.model import row_tables as row_lists
from pmflib.model.kernels import em_rows as em_rows
from tests.reference import e_step, make_codes, make_model, offsets_of, same_bits, tables_of_codes


def log_domain(codes, offsets, prior, factors):
    """Level masses and log-probabilities of rows, in the log domain."""
    log_prior, log_factors = take_logs(prior, factors)
    level_mass, log_probs = np.zeros_like(factors), []
    for row in codes.tolist():
        levels = [offsets[j] + code for j, code in enumerate(row) if code >= 0]
        logs = log_prior + log_factors[levels].sum(axis=0)
        top = logs.max()
        log_probs.append(top + math.log(np.exp(logs - top).sum()))
        level_mass[levels] += np.exp(logs - log_probs[-1])
    return level_mass, np.array(log_probs)


@pytest.fixture
def force(monkeypatch):
    """Have every block laid out in one way."""

    def force(group):
        def choose(n_rows, n_observed, sizes, padded):
            return Layout(group, group > 0 and n_observed == n_rows * len(sizes))

        monkeypatch.setattr(row_tables, "choose_layout", choose)

    return force


@pytest.mark.parametrize("group", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("rank", [3, 20, 70])
def test_add_block_masses__every_layout_is_bayes_rule(force, group, missing, rank):
    rng = np.random.default_rng(group)
    cardinalities = [3, 2, 4, 2, 130, 1, 2]
    offsets = offsets_of(cardinalities)
    codes = make_codes(rng, 150, cardinalities, missing)
    if missing:
        codes[7] = -1
    model = make_model(rng, cardinalities, rank)
    force(group)
    dense = em_statistics(DenseBlock(codes), offsets, *take_logs(*model))
    sparse = em_statistics(DenseBlock(codes).to_sparse(offsets), offsets, *take_logs(*model))
    level_mass, state_mass, log_likelihood = e_step(codes, offsets, *model)
    np.testing.assert_allclose(dense.level_mass, level_mass, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(dense.state_mass, state_mass, rtol=1e-12)
    assert dense.log_likelihood == pytest.approx(log_likelihood, rel=1e-13)
    assert same_bits(dense, sparse)


@pytest.mark.parametrize("group", [0, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_add_block_masses__strata_have_priors_of_their_own(force, monkeypatch, group, weighted):
    rng = np.random.default_rng(group)
    cardinalities = [3, 2, 4, 2, 5]
    offsets = offsets_of(cardinalities)
    codes = make_codes(rng, 150, cardinalities)
    codes[5] = -1
    _, factors = make_model(rng, cardinalities, 4)
    priors = rng.dirichlet(np.ones(4), 3)
    # a prior that products vanish under: such rows are left to the log domain
    priors[2] = np.array([1.0, 1e-200, 1e-200, 1e-200])
    factors[offsets[0] : offsets[1], 0] = [1e-280, 1.0, 1e-280]
    strata = rng.integers(3, size=150).astype(np.int32)
    weights = rng.random(150) + 0.5 if weighted else None
    force(group)
    # several chunks of lists, each with its part of the strata
    monkeypatch.setattr(row_lists, "CHUNK_ENTRIES", 200)
    block = DenseBlock(codes, weights)
    logs = take_logs(priors, factors)
    found = em_statistics(block, offsets, *logs, strata)
    sparse = em_statistics(block.to_sparse(offsets), offsets, *logs, strata)
    assert same_bits(found, sparse)
    apart = [
        em_statistics(block.take(np.flatnonzero(strata == k)), offsets, logs[0][k], logs[1])
        for k in range(3)
    ]
    expected = sum_fields(apart)
    np.testing.assert_allclose(found.level_mass, expected.level_mass, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found.state_mass, expected.state_mass, rtol=1e-12)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("group", [0, 1, 3])
def test_add_block_masses__plain_loops_give_the_same_bits(force, monkeypatch, group):
    rng = np.random.default_rng(1)
    cardinalities = [3, 2, 4, 2, 5] * 15
    offsets = offsets_of(cardinalities)
    codes = make_codes(rng, 200, cardinalities)
    force(group)
    for rank in (20, 70):
        logs = take_logs(*make_model(rng, cardinalities, rank))
        found = []
        for plain in (False, True):
            monkeypatch.setenv(readiness.PLAIN_VARIABLE, "1" if plain else "")
            forget_choices()
            found.append(em_statistics(DenseBlock(codes), offsets, *logs))
        assert same_bits(*found)
    forget_choices()


def forget_choices():
    em_rows.choose_row_kernels.cache_clear()
    em_rows.choose_dense_combined.cache_clear()


@pytest.mark.slow
def test_add_block_masses__vector_code_that_does_not_compile(force, monkeypatch):
    def fail(*_):
        raise NotImplementedError("no such vectors")

    rng = np.random.default_rng(3)
    cardinalities = [3, 2, 4, 2, 5]
    offsets = offsets_of(cardinalities)
    block = DenseBlock(make_codes(rng, 50, cardinalities))
    logs = take_logs(*make_model(rng, cardinalities, 11))
    force(2)
    expected = em_statistics(block, offsets, *logs)
    forget_choices()
    # the warning comes once in a process: other tests may have had it
    monkeypatch.setattr(readiness, "_warned", set())
    for name in ("make_row_kernels", "make_dense_combined"):
        monkeypatch.setattr(em_rows, name, plain_only(getattr(em_rows, name), fail))
    with pytest.warns(RuntimeWarning, match="NotImplementedError") as caught:
        found = em_statistics(block, offsets, *logs)
    assert len(caught) == 1
    assert same_bits(found, expected)
    forget_choices()


def plain_only(make, fail):
    """As a numba that has lost its vectors: the code fails when it is first called."""

    def pretend(*shape, plain=False):
        return make(*shape, plain=True) if plain else broken

    class Broken:
        add_statistics = staticmethod(fail)
        __call__ = staticmethod(fail)

    broken = Broken()
    return pretend


@pytest.mark.parametrize("n_variables", [40, 130, 3000])
@pytest.mark.parametrize("scale", [0.3, 8.0, 60.0])
@pytest.mark.parametrize("group", [0, 2])
def test_add_block_masses__rows_whose_products_underflow(force, n_variables, scale, group):
    # logarithms of that spread leave nothing of a plain product, and often nothing of a segment
    rng = np.random.default_rng(n_variables)
    offsets = offsets_of([3] * n_variables)
    factors = np.exp(-scale * rng.exponential(size=(3 * n_variables, 5)))
    factors /= np.repeat(np.add.reduceat(factors, offsets[:-1], axis=0), 3, axis=0)
    prior = np.array([0.5, 0.3, 0.2 - 1e-12, 1e-12, 0.0])
    codes = rng.integers(0, 3, (40, n_variables)).astype(np.int8)
    force(group)
    found = em_statistics(DenseBlock(codes), offsets, *take_logs(prior, factors))
    level_mass, log_probs = log_domain(codes, offsets, prior, factors)
    # an exponential loses as many digits as its argument has before the point
    np.testing.assert_allclose(found.level_mass, level_mass, rtol=1e-8, atol=1e-25)
    assert found.log_likelihood == pytest.approx(log_probs.sum(), rel=1e-12)


@pytest.mark.parametrize("group", [0, 2])
def test_add_block_masses__zeros_where_states_contradict_each_other(force, group):
    # each state rules the row out somewhere: the one that does so least often is left
    factors = np.zeros((12, 3))
    factors[0::2] = [
        [0.0, 0.5, 0.5],
        [0.0, 0.5, 0.0],
        [0.5, 0.0, 0.5],
        [0.0, 0.25, 0.5],
        [0.0, 0.0, 0.5],
        [0.0, 0.0, 0.0],
    ]
    factors[1::2] = 1 - factors[0::2]
    codes = np.zeros((3, 6), np.int8)
    force(group)
    logs = take_logs(np.full(3, 1 / 3), factors)
    found = em_statistics(DenseBlock(codes), offsets_of([2] * 6), *logs)
    np.testing.assert_allclose(found.state_mass, [0, 0, 3], atol=1e-200)
    expected = 3 * (2 * math.log(FLOOR) + 4 * math.log(0.5) + math.log(1 / 3))
    assert found.log_likelihood == pytest.approx(expected, rel=1e-13)


def test_add_block_masses__no_subnormal_numbers_in_its_way(force):
    # a state that loses at every variable passes through all orders of magnitude
    n_variables = 300
    factors = np.tile([[0.9, 1e-3, 0.5], [0.1, 1 - 1e-3, 0.5]], (n_variables, 1))
    codes = np.zeros((5, n_variables), np.int8)
    logs = take_logs(np.full(3, 1 / 3), factors)
    for group in (0, 4):
        force(group)
        found = em_statistics(DenseBlock(codes), offsets_of([2] * n_variables), *logs)
        values = np.concatenate([found.level_mass.ravel(), found.state_mass])
        assert not np.any((values > 0) & (values < np.finfo(float).tiny))
        np.testing.assert_allclose(found.state_mass, [5, 0, 0], rtol=1e-14, atol=1e-70)


@given(tables_of_codes(max_rows=30), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_add_block_masses__weights_are_repeated_rows(case, rank, seed):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    rng = np.random.default_rng(seed)
    logs = take_logs(*make_model(rng, cardinalities, rank))
    times = rng.integers(1, 4, len(codes))
    weighted = DenseBlock(codes, times.astype(float))
    found = em_statistics(weighted, offsets, *logs)
    expected = em_statistics(DenseBlock(np.repeat(codes, times, axis=0)), offsets, *logs)
    np.testing.assert_allclose(found.level_mass, expected.level_mass, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.state_mass, expected.state_mass, rtol=1e-12, atol=1e-14)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12, abs=1e-13)
    assert found.n_rows == expected.n_rows
    assert same_bits(found, em_statistics(weighted.to_sparse(offsets), offsets, *logs))


@pytest.mark.parametrize("group", [0, 1, 3])
def test_score_block__posteriors_and_log_probabilities(force, group):
    rng = np.random.default_rng(2)
    cardinalities = [3, 2, 4] * 40
    offsets = offsets_of(cardinalities)
    codes = make_codes(rng, 60, cardinalities)
    codes[3] = -1
    codes[4] = make_codes(rng, 1, cardinalities, 0.0)
    prior, factors = make_model(rng, cardinalities, 9)
    log_probs, posteriors = np.empty(60), np.empty((60, 9))
    force(group)
    score_block(DenseBlock(codes), offsets, *take_logs(prior, factors), log_probs, posteriors)
    expected = log_domain(codes, offsets, prior, factors)[1]
    np.testing.assert_allclose(log_probs, expected, rtol=1e-12, atol=1e-14)
    assert log_probs[3] == 0.0
    np.testing.assert_allclose(posteriors[3], prior, rtol=1e-14)
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0, rtol=1e-13)
    alone = np.empty((60, 0))
    score_block(DenseBlock(codes), offsets, *take_logs(prior, factors), log_probs, alone)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-12, atol=1e-14)
