"""Fits of latent transition models: planted truths, likelihoods that never fall, gaps, and the number of states."""

from dataclasses import replace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import LIMITS, PseudoCounts
from pmflib.em import BlocksInMemory, LatentClasses, run_em
from pmflib.families.panels import ChainLayout, Transitions, measure_singles
from pmflib.papers import match_factors
from tests.panels import draw_panel, find_posterior, make_hard_model, make_model

PLANTED = make_model(n_states=3, n_waves=4, sizes=(4, 3, 3, 2), seed=5)


def compare(found, truth):
    """Largest differences of a fitted chain from a true one, states matched."""
    order = match_factors(truth.initial, truth.emissions, found.initial, found.emissions)
    chain = found.chain.take_states(order)
    pairs = zip(chain, truth.chain, strict=True)
    return [float(np.abs(one - other).max(initial=0.0)) for one, other in pairs]


def test_fit__recovers_a_planted_chain_through_gaps():
    codes = draw_panel(PLANTED, 6000)
    result = pmf.families.fit_transitions(codes, 3, waves=4, n_starts=3)
    assert result.converged
    assert max(compare(result.model, PLANTED)) < 0.05
    assert result.training.per_row >= PLANTED.log_prob(codes).mean() - 1e-6
    assert result.model.n_parameters == result.training.n_parameters


@pytest.mark.parametrize("flags", [{"homogeneous": False}, {"invariant": False}], ids=str)
def test_fit__recovers_tables_that_differ_between_waves(flags):
    truth = make_model(n_states=2, n_waves=3, sizes=(4, 3, 3), seed=3, **flags)
    codes = draw_panel(truth, 8000, missed=0.1)
    result = pmf.families.fit_transitions(codes, 2, waves=3, n_starts=3, **flags)
    assert max(compare(result.model, truth)) < 0.07
    equal = pmf.families.fit_transitions(codes, 2, waves=3, n_starts=3)
    assert result.training.bic < equal.training.bic


@pytest.mark.parametrize("pseudo_count", [0.0, 1.0])
@pytest.mark.parametrize("flags", [{}, {"homogeneous": False, "invariant": False}], ids=str)
def test_loss__never_rises(pseudo_count, flags):
    codes = draw_panel(PLANTED, 300, missed=0.4)
    result = pmf.families.fit_transitions(
        codes, 4, waves=4, n_starts=2, pseudo_count=pseudo_count, max_passes=60, **flags
    )
    losses = np.array(result.loss_history)
    assert len(losses) > 5
    assert (np.diff(losses) <= 1e-12 * np.abs(losses[1:])).all()


def test_expected_counts__are_sums_over_all_paths():
    model = make_model(n_states=2, n_waves=3, sizes=(3, 2))
    codes = draw_panel(model, 12, missed=0.3)
    codes[3] = -1
    layout = model.layout
    parameters = layout.join(model.chain)
    family = Transitions.make(layout, np.ones(5) / 5, 2)
    source = BlocksInMemory.cut(codes, model.schema.offsets, 2)
    found = family.start(source, family.begin([parameters]))()
    states, tables, log_likelihood = np.zeros(2), np.zeros((7, 2)), 0.0
    for row in codes:
        seen = [wave for wave in range(3) if (row[model.waves.positions[wave]] >= 0).any()]
        if not seen:
            continue
        paths, chances, log_prob = find_posterior(model, row)
        log_likelihood += log_prob
        for path, chance in zip(paths, chances, strict=True):
            states[path[0]] += chance
            for wave in range(3):
                for question, position in enumerate(model.waves.positions[wave]):
                    if row[position] >= 0:
                        tables[[0, 3][question] + row[position], path[wave]] += chance
                # moves after the last answer tell nothing
                if 0 < wave <= max(seen):
                    tables[5 + path[wave], path[wave - 1]] += chance
    np.testing.assert_allclose(found.state_mass, states, rtol=1e-10)
    np.testing.assert_allclose(found.level_mass, tables, rtol=1e-10, atol=1e-14)
    assert found.log_likelihood == pytest.approx(log_likelihood, rel=1e-12)
    assert found.n_rows == 12


@pytest.mark.parametrize("flags", [{}, {"homogeneous": False, "invariant": False}], ids=str)
def test_entropy__is_that_of_all_paths_with_waves_after_the_last_answer(flags):
    codes = draw_panel(PLANTED, 60, missed=0.3)
    # drop-outs, one of whom never answered
    for row in range(30):
        codes[row, 4 * (row % 4) :] = -1
    result = pmf.families.fit_transitions(
        codes, 2, waves=4, n_starts=1, schema=PLANTED.schema, **flags
    )
    entropy = n_rows = 0.0
    for row in codes:
        if (row >= 0).any():
            chances = find_posterior(result.model, row)[1]
            entropy -= chances @ np.log(chances)
            n_rows += 1
    assert result.training.entropy == pytest.approx(entropy, rel=1e-10)
    relative = 1 - entropy / (n_rows * 4 * np.log(2))
    assert result.training.relative_entropy == pytest.approx(relative, rel=1e-10)


def test_expected_counts__of_zeros_and_tiny_probabilities_are_finite():
    model = make_hard_model(3)
    rng = np.random.default_rng(3)
    codes = rng.integers(-1, model.schema.cardinalities, (200, 12)).astype(np.int8)
    family = Transitions.make(model.layout, np.ones(32) / 32, 3)
    source = BlocksInMemory.cut(codes, model.schema.offsets, 3)
    found = family.start(source, family.begin([model.layout.join(model.chain)]))()
    assert found.log_likelihood == pytest.approx(model.log_prob(codes).sum(), rel=1e-12)
    n_seen = (codes >= 0).any(axis=1).sum()
    assert found.state_mass.sum() == pytest.approx(n_seen, rel=1e-12)
    assert found.level_mass[:32].sum() == pytest.approx((codes >= 0).sum(), rel=1e-12)


def test_one_wave__is_latent_classes():
    truth = make_model(n_states=3, n_waves=1, sizes=(3, 3, 2, 4), seed=2)
    codes = draw_panel(truth, 800, missed=0.0)
    codes[0] = -1
    schema = truth.schema
    source = BlocksInMemory.cut(codes, schema.offsets, 3)
    layout = ChainLayout.make(schema, truth.waves)
    singles = measure_singles(source, layout)
    chains = Transitions.make(layout, singles, 3, 0.5)
    classes = LatentClasses(
        schema.offsets, PseudoCounts.shaped_by(singles, schema.offsets, 0.5), 1, True
    )
    start = chains.draw(singles, 3, np.random.default_rng(0))
    limits = LIMITS._replace(max_passes=40, tol=0.0)
    one, other = (run_em(family, source, start, limits=limits) for family in (chains, classes))
    np.testing.assert_allclose(one.loss_history, other.loss_history, rtol=1e-12)
    for found, expected in zip(one.parameters, other.parameters, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("codes", "waves", "n_states"),
    [
        (np.array([[0], [1], [1]], np.int8), 1, 2),
        (np.array([[0, 1, -1]], np.int8), 3, 2),
        (np.full((4, 2), -1, np.int8), 2, 2),
        (np.array([[-1, -1, -1], [0, -1, 1], [-1, 1, -1]], np.int8), 3, 1),
        (np.zeros((5, 4), np.int8), 2, 3),
    ],
    ids=["one variable", "one row", "nothing observed", "gaps", "one level"],
)
def test_small_panels__have_a_model(codes, waves, n_states):
    result = pmf.families.fit_transitions(codes, n_states, waves=waves, n_starts=2)
    assert np.isfinite(result.training.log_likelihood)
    assert np.isfinite(result.model.posterior(codes)).all()
    assert result.training.n_rows == (codes >= 0).any(axis=1).sum()
    assert result.training.n_rows + result.training.n_empty == len(codes)


def test_people_without_answers__change_nothing_but_their_number():
    codes = draw_panel(PLANTED, 400)
    codes = codes[(codes >= 0).any(axis=1)]
    more = np.concatenate([codes, np.full((50, codes.shape[1]), -1, codes.dtype)])
    one, other = (
        pmf.families.fit_transitions(each, 2, waves=4, n_starts=1, schema=PLANTED.schema, tol=1e-10)
        for each in (codes, more)
    )
    assert other.training.n_empty == 50 + one.training.n_empty
    assert one.training.log_likelihood == pytest.approx(other.training.log_likelihood, rel=1e-6)
    np.testing.assert_allclose(one.model.transitions, other.model.transitions, atol=1e-3)


def test_weights__count_as_rows():
    codes = draw_panel(PLANTED, 200)
    twice = np.concatenate([codes, codes[:100]])
    weights = np.concatenate([np.full(100, 2.0), np.ones(100)])
    options = {"waves": 4, "n_starts": 1, "schema": PLANTED.schema, "pseudo_count": 0.0}
    repeated = pmf.families.fit_transitions(twice, 2, **options)
    weighted = pmf.families.fit_transitions(codes, 2, **options, weight=weights)
    np.testing.assert_allclose(weighted.model.transitions, repeated.model.transitions, atol=1e-4)


def test_auto__finds_the_planted_number_of_states_on_held_out_people():
    codes = draw_panel(PLANTED, 2500)
    result = pmf.families.fit_transitions(codes, "auto", waves=4, n_starts=2)
    assert result.model.n_states == 3
    assert [point.settings["n_states"] for point in result.comparison.points] == [1, 2, 3, 4, 5]
    assert result.held_out_score.n_trials == 1
    assert result.summary().notes == (result.comparison.reason,)
    # BIC agrees
    bics = {
        k: pmf.families.fit_transitions(codes, k, waves=4, n_starts=2).training.bic
        for k in (2, 3, 4)
    }
    assert min(bics, key=bics.get) == 3


def test_validation__is_scored_by_the_model():
    codes = draw_panel(PLANTED, 900)
    result = pmf.families.fit_transitions(
        codes[:600], 3, waves=4, n_starts=2, schema=PLANTED.schema, validation=codes[600:]
    )
    expected = result.model.log_prob(codes[600:]).mean()
    assert result.held_out_score.per_row == pytest.approx(expected, rel=1e-12)


def test_same_seed__gives_the_same_bits():
    codes = draw_panel(PLANTED, 300)
    one, other = (
        pmf.families.fit_transitions(codes, 3, waves=4, n_starts=2, seed=3) for _ in range(2)
    )
    assert one.model.emissions.tobytes() == other.model.emissions.tobytes()
    assert one.loss_history == other.loss_history


def test_long_table__is_spread_and_fitted():
    codes = draw_panel(PLANTED, 500, gaps=0.0)
    seen = (codes.reshape(500, 4, 4) >= 0).any(axis=2)
    people, years = np.nonzero(seen)
    answers = codes.reshape(500, 4, 4)[people, years]
    rows = {"id": people, "year": 2000 + years}
    rows |= {f"q{j}": np.array(list("abcd"))[answers[:, j]] for j in range(4)}
    wide, waves = pmf.families.spread_waves(rows, "id", "year")
    result = pmf.families.fit_transitions(wide, 3, waves=waves, n_starts=2)
    assert result.training.n_rows == seen.any(axis=1).sum()
    direct = pmf.families.fit_transitions(codes, 3, waves=4, n_starts=2, schema=PLANTED.schema)
    assert result.training.log_likelihood == pytest.approx(direct.training.log_likelihood, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_states": 0}, "n_states is 0"),
        ({"n_starts": 0}, "n_starts is 0"),
        ({"max_passes": 0}, "max_passes is 0"),
        ({"tol": -1.0}, "tol is -1"),
        ({"pseudo_count": -1.0}, "pseudo_count is -1"),
        ({"waves": 5}, "waves is 5"),
        ({"schema": [2, 2]}, "schema is a list"),
    ],
    ids=str,
)
def test_options__are_refused_out_of_range(options, message):
    arguments = {"n_states": 2, "waves": 4} | options
    with pytest.raises(pmf.PmfError, match=message):
        pmf.families.fit_transitions(draw_panel(PLANTED, 10), **arguments)


def test_no_samples__are_refused():
    with pytest.raises(pmf.PmfError, match="no rows"):
        pmf.families.fit_transitions(
            np.empty((0, 4), np.int8), 2, waves=2, schema=pmf.Schema.from_cardinalities([2] * 4)
        )
    with pytest.raises(pmf.PmfError, match="pass a number"):
        pmf.families.fit_transitions(np.zeros((1, 2), np.int8), "auto", waves=2)


def test_three_steps__find_a_covariate_of_the_states_of_a_wave():
    rng = np.random.default_rng(4)
    truth = make_model(n_states=2, n_waves=3, sizes=(3, 3, 3, 3), seed=8)
    age = rng.normal(size=3000)
    codes = np.empty((3000, 12), np.int8)
    of_second = rng.random(3000) < 1 / (1 + np.exp(-0.3 - 1.2 * age))
    for state in range(2):
        initial = np.eye(2)[state]
        rows = of_second == state
        codes[rows] = replace(truth, initial=initial).sample(int(rows.sum()), rng)
    codes[rng.random(3000) < 0.2, :4] = -1
    model = pmf.families.fit_transitions(codes, 2, waves=3, n_starts=2, schema=truth.schema).model
    order = match_factors(truth.initial, truth.emissions, model.initial, model.emissions)
    found = pmf.inference.class_regression(
        model.wave(0), codes[:, :4], {"age": age}, reference=int(order[0])
    )
    assert found.values[order[1], 1] == pytest.approx(1.2, abs=4 * found.errors[order[1], 1])
    assert found.errors[order[1], 1] < 0.15
