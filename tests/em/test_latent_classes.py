from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import FLOOR, DenseBlock, PseudoCounts
from pmflib.model import EMStatistics, em_statistics, m_step, sum_fields, take_logs
from tests.em.class_runs import run_classes
from tests.reference import e_step, make_codes, make_model, offsets_of, same_bits, tables_of_codes

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SINGLES = np.repeat(1.0 / np.array(CARDINALITIES), CARDINALITIES)
NONE = PseudoCounts(np.zeros(9))


def evaluate_on(codes, offsets=OFFSETS):
    return lambda model: em_statistics(DenseBlock(codes), offsets, *take_logs(*model))


@given(tables_of_codes(), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_em_statistics__equal_bayes_rule_by_loops(case, rank, seed):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    prior, factors = make_model(np.random.default_rng(seed), cardinalities, rank)
    logs = take_logs(prior, factors)
    dense = em_statistics(DenseBlock(codes), offsets, *logs)
    level_mass, state_mass, log_likelihood = e_step(codes, offsets, prior, factors)
    np.testing.assert_allclose(dense.level_mass, level_mass, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dense.state_mass, state_mass, rtol=1e-12, atol=1e-12)
    assert dense.log_likelihood == pytest.approx(log_likelihood, rel=1e-12, abs=1e-12)
    assert dense.n_rows == len(codes)
    sparse = em_statistics(DenseBlock(codes).to_sparse(offsets), offsets, *logs)
    assert same_bits(dense, sparse)


def test_em_statistics__hundreds_of_variables_do_not_underflow():
    codes = np.zeros((1, 2000), np.int8)
    prior, factors = np.array([0.5, 0.5]), np.tile([[0.01, 0.02], [0.99, 0.98]], (2000, 1))
    found = em_statistics(DenseBlock(codes), offsets_of([2] * 2000), *take_logs(prior, factors))
    assert found.state_mass == pytest.approx([0.0, 1.0], abs=1e-300)
    assert found.log_likelihood == pytest.approx(np.log(0.5) + 2000 * np.log(0.02), rel=1e-13)


def test_em_statistics__what_the_model_rules_out_costs_the_floor():
    codes = np.array([[0, 0]], np.int8)
    factors = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.5], [0.0, 0.5]])
    found = em_statistics(
        DenseBlock(codes), np.array([0, 2, 4]), *take_logs(np.array([0.5, 0.5]), factors)
    )
    assert found.log_likelihood == pytest.approx(np.log(FLOOR) + np.log(0.75), rel=1e-13)
    assert found.state_mass == pytest.approx([2 / 3, 1 / 3], rel=1e-12)


def test_em_statistics__state_of_no_prior_gets_no_mass():
    codes = make_codes(np.random.default_rng(0), 50, CARDINALITIES)
    _, factors = make_model(np.random.default_rng(1), CARDINALITIES, 2)
    found = em_statistics(DenseBlock(codes), OFFSETS, *take_logs(np.array([1.0, 0.0]), factors))
    assert found.state_mass[1] < 1e-200
    alone = em_statistics(DenseBlock(codes), OFFSETS, *take_logs(np.ones(1), factors[:, :1]))
    assert found.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-14)


@given(tables_of_codes(), st.lists(st.integers(0, 12), max_size=3))
def test_sum_fields__ragged_splits_equal_the_whole(case, ends):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    model = make_model(np.random.default_rng(0), cardinalities, 3)
    whole = evaluate_on(codes, offsets)(model)
    parts = [evaluate_on(part, offsets)(model) for part in np.split(codes, sorted(ends))]
    before = parts[0].level_mass.copy()
    total = sum_fields([EMStatistics.zero(offsets[-1], 3), *parts])
    np.testing.assert_allclose(total.level_mass, whole.level_mass, rtol=1e-13, atol=1e-15)
    assert total.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-13)
    assert total.n_rows == whole.n_rows
    sum_fields(parts)
    assert np.array_equal(parts[0].level_mass, before)


def test_m_step__by_hand():
    statistics = EMStatistics(np.array([[3.0, 0.0], [1.0, 0.0]]), np.array([4.0, 0.0]), 0.0, 4)
    prior, factors = np.array([0.5, 0.5]), np.array([[0.5, 0.9], [0.5, 0.1]])
    offsets = np.array([0, 2])
    found = m_step(statistics, offsets, PseudoCounts(np.zeros(2)), prior, factors)
    assert found[0].tolist() == [1.0, 0.0]
    # nothing was learnt about the second state: it keeps its PMF
    assert found[1].tolist() == [[0.75, 0.9], [0.25, 0.1]]
    found = m_step(statistics, offsets, PseudoCounts(np.array([1.0, 1.0]), 2.0), prior, factors)
    assert found[0].tolist() == [0.75, 0.25]
    np.testing.assert_allclose(found[1], [[4 / 6, 0.5], [2 / 6, 0.5]], rtol=1e-15)


def test_m_step__nothing_observed_changes_nothing():
    prior, factors = make_model(np.random.default_rng(0), CARDINALITIES, 2)
    codes = np.full((5, 3), -1, np.int8)
    found = m_step(evaluate_on(codes)((prior, factors)), OFFSETS, NONE, prior, factors)
    assert np.array_equal(found[0], prior)
    assert np.array_equal(found[1], factors)


def test_shaped_by__mean_pseudo_count_is_as_asked_for():
    singles = np.array([0.5, 0.25, 0.25, 0.9, 0.1])
    levels = PseudoCounts.shaped_by(singles, np.array([0, 3, 5]), 2.0).levels
    np.testing.assert_allclose(levels, [3.0, 1.5, 1.5, 3.6, 0.4], rtol=1e-15)
    assert PseudoCounts.shaped_by(singles, np.array([0, 3, 5]), 2.0).state == 5.0
    assert not PseudoCounts.shaped_by(singles, np.array([0, 3, 5]), 0.0).levels.any()


@pytest.mark.parametrize("pseudo_count", [-1.0, float("nan"), float("inf")])
def test_shaped_by__refuses_what_is_no_pseudo_count(pseudo_count):
    with pytest.raises(pmf.PmfError, match="pseudo_count"):
        PseudoCounts.shaped_by(SINGLES, OFFSETS, pseudo_count)


@given(
    tables_of_codes(max_rows=30),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 3.0]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_latent_classes__objective_never_rises(case, rank, pseudo_count, with_zeros, seed):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    prior, factors = make_model(np.random.default_rng(seed), cardinalities, rank)
    if with_zeros:
        # a state of no prior, and a level that no state gives
        prior = np.append(prior[:-1] / prior[:-1].sum(), 0.0) if rank > 1 else prior
        if cardinalities[0] > 1:
            factors[0] = 0.0
            factors[: offsets[1]] /= factors[: offsets[1]].sum(axis=0)
    sizes = np.repeat(cardinalities, cardinalities)
    pseudo_counts = PseudoCounts.shaped_by(1.0 / sizes, offsets, pseudo_count)
    state = run_classes(
        codes,
        (prior, factors),
        offsets,
        pseudo_counts=pseudo_counts,
        max_passes=15,
        tol=0.0,
    )
    loss = np.array(state.loss_history)
    assert np.all(np.diff(loss) <= 1e-12 * np.maximum(1.0, np.abs(loss[1:])))
    assert state.parameters[0].sum() == pytest.approx(1.0, rel=1e-12)
    sums = np.add.reduceat(state.parameters[1], offsets[:-1], axis=0)
    np.testing.assert_allclose(sums, 1.0, rtol=1e-12)


def test_latent_classes__rank_one_is_the_single_marginals():
    codes = make_codes(np.random.default_rng(2), 300, CARDINALITIES)
    state = run_classes(
        codes,
        (np.ones(1), SINGLES[:, None]),
        OFFSETS,
        pseudo_counts=NONE,
        max_passes=5,
        tol=0.0,
    )
    for j, size in enumerate(CARDINALITIES):
        seen = codes[codes[:, j] >= 0, j]
        expected = np.bincount(seen, minlength=size) / len(seen)
        np.testing.assert_allclose(
            state.parameters[1][OFFSETS[j] : OFFSETS[j + 1], 0], expected, rtol=1e-13
        )
    # one pass finds it, one sees that nothing changes, and the next stops the loop
    assert state.converged
    assert state.n_passes == 3


def test_latent_classes__notes_losses_and_likelihoods():
    codes = make_codes(np.random.default_rng(3), 40, CARDINALITIES)
    prior, factors = make_model(np.random.default_rng(4), CARDINALITIES, 2)
    pseudo_counts = PseudoCounts.shaped_by(SINGLES, OFFSETS, 1.5)
    passes = []
    state = run_classes(
        codes,
        (prior, factors),
        OFFSETS,
        pseudo_counts=pseudo_counts,
        max_passes=3,
        tol=0.0,
        on_pass=passes.append,
    )
    assert [each.n_passes for each in passes] == [1, 2, 3]
    assert passes[-1].parameters[1] is state.parameters[1]
    assert state.best_pass == 3
    log_likelihood = e_step(codes, OFFSETS, prior, factors)[2]
    assert state.log_likelihoods[0] == pytest.approx(log_likelihood / 40, rel=1e-12)
    penalty = float((pseudo_counts.levels[:, None] * np.log(factors)).sum())
    penalty += pseudo_counts.state * float(np.log(prior).sum())
    assert state.loss_history[0] == pytest.approx(-(log_likelihood + penalty) / 40, rel=1e-12)


def scripted(values):
    """Held-out log-likelihoods, one after the other, whatever the model."""
    remaining = iter(values)
    return lambda model: next(remaining)


def run_with_validation(values, tol=0.0, **options):
    codes = make_codes(np.random.default_rng(5), 60, CARDINALITIES)
    seen = []
    state = run_classes(
        codes,
        make_model(np.random.default_rng(6), CARDINALITIES, 2),
        OFFSETS,
        pseudo_counts=NONE,
        tol=tol,
        scores=scripted(values),
        on_pass=seen.append,
        **options,
    )
    return state, seen


def test_latent_classes__patience_counts_rises_above_the_tolerance_and_keeps_the_best():
    values = [-9, -5, -4.9, -4.8, -4.7, -1, -1, -1, -1]
    state, seen = run_with_validation(values, tol=0.1, max_passes=50, patience=3)
    assert state.held_out == (-9, -5, -4.9, -4.8, -4.7)
    assert (state.best_pass, state.converged) == (4, True)
    assert np.array_equal(state.best[1], seen[3].parameters[1])


def test_latent_classes__validation_keeps_the_best_model_and_patience_stops():
    state, seen = run_with_validation([-9, -5, -3, -4, -3, -6, 0], max_passes=50, patience=3)
    assert state.held_out == (-9, -5, -3, -4, -3, -6)
    assert (state.best_pass, state.n_passes, state.converged) == (2, 5, True)
    # an equal value is not better: the earlier model is kept
    assert np.array_equal(state.best[1], seen[1].parameters[1])
    assert np.array_equal(state.best[0], seen[1].parameters[0])
    assert not np.array_equal(state.best[1], state.parameters[1])


def test_latent_classes__start_is_kept_where_no_pass_helps():
    state, _ = run_with_validation([-1, -2, -3], max_passes=2, patience=9)
    assert (state.best_pass, state.converged) == (0, False)
    assert np.array_equal(state.best[0], make_model(np.random.default_rng(6), CARDINALITIES, 2)[0])


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("killed_after", [1, 3, 7])
def test_latent_classes__continues_from_a_checkpoint_to_the_same_bits(
    tmp_path, killed_after, validated
):
    codes = make_codes(np.random.default_rng(7), 120, CARDINALITIES)
    options: dict[str, Any] = {
        "pseudo_counts": PseudoCounts.shaped_by(SINGLES, OFFSETS, 0.5),
        "tol": 0.0,
        "held_out": codes[:20] if validated else None,
        "patience": 3,
    }
    start = make_model(np.random.default_rng(8), CARDINALITIES, 3)
    whole = run_classes(codes[20:], start, OFFSETS, max_passes=9, **options)
    path = tmp_path / "state.npz"
    options["path"] = path
    for max_passes in (killed_after, 9):
        resumed = run_classes(codes[20:], start, OFFSETS, max_passes=max_passes, **options)
        assert resumed.n_passes == max_passes
    assert resumed.parameters[0].tobytes() == whole.parameters[0].tobytes()
    assert resumed.parameters[1].tobytes() == whole.parameters[1].tobytes()
    assert resumed.loss_history == whole.loss_history
    assert resumed.held_out == whole.held_out
    assert (resumed.best_pass, resumed.converged) == (whole.best_pass, whole.converged)


@pytest.mark.parametrize(
    "option", [{"max_passes": -1}, {"tol": -1e-9}, {"tol": float("nan")}, {"patience": 0}]
)
def test_latent_classes__refuses_options_out_of_range(option):
    (name,) = option
    with pytest.raises(pmf.PmfError, match=name):
        run_classes(
            np.zeros((1, 3), np.int8),
            (np.ones(1), SINGLES[:, None]),
            OFFSETS,
            pseudo_counts=NONE,
            **({"max_passes": 1, "tol": 0.0} | option),
        )
