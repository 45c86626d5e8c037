"""Latent transition models, next to sums over all paths of states."""

from dataclasses import replace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.families.panels import TransitionModel, Waves
from tests.panels import draw_panel, find_posterior, make_hard_model, make_model, weigh_paths

SHAPES = [
    {},
    {"n_states": 3, "n_waves": 4, "sizes": (2,), "homogeneous": False},
    {"n_states": 2, "n_waves": 3, "sizes": (2, 3, 1), "invariant": False},
    {"n_states": 1, "n_waves": 2},
    {"n_states": 3, "n_waves": 1},
]


@pytest.fixture(params=SHAPES, ids=str)
def model(request):
    return make_model(**request.param)


@pytest.fixture
def codes(model):
    codes = draw_panel(model, 30)
    codes[0] = -1
    return codes


def test_log_prob__is_the_sum_over_all_paths(model, codes):
    expected = [find_posterior(model, row)[2] for row in codes]
    np.testing.assert_allclose(model.log_prob(codes), expected, rtol=1e-12, atol=1e-14)
    assert model.log_prob(codes)[0] == 0


def test_posterior__is_the_share_of_the_paths_through_a_state(model, codes):
    found = model.posterior(codes)
    for row, own in zip(codes, found, strict=True):
        paths, chances, _ = find_posterior(model, row)
        for wave in range(model.n_waves):
            expected = np.bincount(paths[:, wave], chances, model.n_states)
            np.testing.assert_allclose(own[wave], expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(found[0], model.shares)


def test_predict_states__is_the_most_probable_path(model, codes):
    for row, path in zip(codes, model.predict_states(codes), strict=True):
        paths, logs = weigh_paths(model, row)
        own = logs[(paths == path).all(axis=1)]
        assert own == pytest.approx(logs.max(), rel=1e-12)


def test_predict_proba__is_the_ratio_of_probabilities(model, codes):
    for position in range(model.schema.n_variables):
        found = model.predict_proba(codes, position)
        for code in range(found.shape[1]):
            with_code = codes.copy()
            with_code[:, position] = code
            hidden = codes.copy()
            hidden[:, position] = -1
            expected = np.exp(model.log_prob(with_code) - model.log_prob(hidden))
            np.testing.assert_allclose(found[:, code], expected, rtol=1e-9)


def test_complete__fills_each_gap_with_its_most_probable_code(model, codes):
    filled = model.complete(codes)
    for position in range(model.schema.n_variables):
        expected = model.predict_proba(codes, position).argmax(axis=1)
        assert (model.predict(codes, position) == expected).all()
        gaps = codes[:, position] < 0
        assert (filled[gaps, position] == expected[gaps]).all()
        assert (filled[~gaps, position] == codes[~gaps, position]).all()


def test_methods_of_a_joint_pmf_are_refused_in_words(model, codes):
    names = ("ask", "marginal", "rake", "plot_states", "list_parts", "factors")
    assert not any(hasattr(model, name) for name in (*names, "no_such_name"))
    for name in names:
        with pytest.raises(pmf.PmfError, match=f"only a joint PMF has '{name}'.* transition"):
            getattr(model, name)


def test_forecast__uses_nothing_of_its_wave_and_later(model, codes):
    for wave, positions in enumerate(model.waves.positions):
        past = codes.copy()
        past[:, np.concatenate(model.waves.positions[wave:])] = -1
        found = model.forecast(codes, wave)
        for position in positions:
            name = model.schema.names[position]
            np.testing.assert_allclose(found[name], model.predict_proba(past, name), rtol=1e-12)


def test_forecast__of_the_wave_after_the_last_is_that_of_a_longer_chain():
    short, longer = make_model(n_waves=3), make_model(n_waves=4)
    codes = draw_panel(short, 20)
    padded = np.concatenate([codes, np.full((20, 2), -1, codes.dtype)], axis=1)
    found, expected = short.forecast(codes), longer.forecast(padded, 3)
    assert list(found) == ["v0", "v1"]
    for own, other in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[2], SHAPES[4]], ids=str)
def test_forecast__after_the_last_wave_needs_equal_waves(shape):
    model = make_model(**shape)
    with pytest.raises(pmf.PmfError, match="after the last"):
        model.forecast(draw_panel(model, 3))


def test_long_chains__do_not_underflow():
    model = make_model(n_states=3, n_waves=400, sizes=(8,) * 12)
    codes = model.sample(5, 1)
    log_probs = model.log_prob(codes)
    assert np.isfinite(log_probs).all()
    assert (log_probs < -3000).all()
    assert np.isfinite(model.posterior(codes)).all()


@pytest.mark.parametrize("seed", range(40))
def test_zeros_and_tiny_probabilities__are_summed_over_all_paths(seed):
    model = make_hard_model(seed)
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, model.schema.cardinalities, (40, 12)).astype(np.int8)
    found, posteriors = model.log_prob(codes), model.posterior(codes)
    for row, log_prob, own, path in zip(
        codes, found, posteriors, model.predict_states(codes), strict=True
    ):
        paths, chances, expected = find_posterior(model, row)
        assert log_prob == pytest.approx(expected, rel=1e-12, abs=1e-12)
        for wave in range(model.n_waves):
            shares = np.bincount(paths[:, wave], chances, model.n_states)
            np.testing.assert_allclose(own[wave], shares, rtol=1e-9, atol=1e-12)
        assert chances[(paths == path).all(axis=1)] == pytest.approx(chances.max(), rel=1e-9)


def test_possible_rows__have_a_probability_where_the_likeliest_state_cannot_go_on():
    tables = [np.array([[1e-200, 1.0], [1.0, 1e-15]])] * 6
    tables += [each[:, ::-1] for each in tables]
    schema = pmf.Schema.from_cardinalities([2] * 12)
    still = TransitionModel(
        np.array([0.5, 0.5]),
        np.eye(2)[None],
        np.concatenate(tables),
        schema,
        Waves.find(schema, 2),
        invariant=False,
    )
    # the first wave is state 1's by 2,763 nats, the second state 0's by 1,773, and nobody moves: that counts as 1e-300
    codes = np.array([[0] * 10 + [1] * 2], np.int8)
    expected = np.log(0.5) + np.log(1e-300) + 2 * np.log(1e-15)
    assert find_posterior(still, codes[0])[2] == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(still.log_prob(codes), expected, rtol=1e-12)
    np.testing.assert_allclose(still.posterior(codes)[0], [[0, 1], [1, 0]], atol=1e-12)


def test_impossible_rows__have_the_floored_probability_of_latent_classes():
    schema = pmf.Schema.from_cardinalities([2, 2])
    table = np.array([[1.0, 0.0], [0.0, 1.0]] * 2)
    codes = np.array([[0, 1], [1, 1], [0, 0], [-1, -1]], np.int8)
    classes = pmf.JointPMF(np.array([1.0, 0.0]), table, schema)
    one = TransitionModel(
        classes.prior, np.empty((0, 2, 2)), table, schema, Waves.find(schema, 1), invariant=False
    )
    np.testing.assert_allclose(one.log_prob(codes), classes.log_prob(codes), rtol=1e-12)
    np.testing.assert_allclose(one.posterior(codes)[:, 0], classes.posterior(codes), atol=1e-12)
    still = replace(one, transitions=np.eye(2)[None], waves=Waves.find(schema, 2))
    for row, found, own in zip(codes, still.log_prob(codes), still.posterior(codes), strict=True):
        paths, chances, expected = find_posterior(still, row)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
        for wave in range(2):
            np.testing.assert_allclose(
                own[wave], np.bincount(paths[:, wave], chances, 2), atol=1e-12
            )


def test_sample__has_the_shares_and_answers_of_the_model():
    model = make_model(homogeneous=False, invariant=False)
    codes = model.sample(40_000, 3)
    for wave, positions in enumerate(model.waves.positions):
        for position in positions:
            pmf_there = model.emissions[model.schema.rows_of(int(position))] @ model.shares[wave]
            counts = np.bincount(codes[:, position], minlength=pmf_there.size) / len(codes)
            np.testing.assert_allclose(counts, pmf_there, atol=0.015)


def test_wave__is_a_latent_class_model_of_the_answers_in_it(model):
    for wave, positions in enumerate(model.waves.positions):
        codes = model.sample(20, 0)
        alone = np.full_like(codes, -1)
        alone[:, positions] = codes[:, positions]
        found = model.wave(wave)
        np.testing.assert_allclose(found.log_prob(codes[:, positions]), model.log_prob(alone))
    with pytest.raises(pmf.PmfError, match=f"wave is {model.n_waves}; pass"):
        model.wave(model.n_waves)


def test_questions_not_asked_in_a_wave__have_no_column():
    schema = pmf.Schema.from_cardinalities([2, 3, 2, 3, 3])
    names = [["v0", "v1"], ["v2", None], [None, "v3"], [None, "v4"]]
    waves = Waves.find(schema, names)
    full = make_model(n_waves=4, sizes=(2, 3))
    rows = [full.emissions[full.schema.rows_of(at)] for at in (0, 1, 2, 5, 7)]
    model = TransitionModel(full.initial, full.transitions, np.concatenate(rows), schema, waves)
    codes = full.sample(50, 0)
    spared = np.full_like(codes, -1)
    spared[:, [0, 1, 2, 5, 7]] = codes[:, [0, 1, 2, 5, 7]]
    np.testing.assert_allclose(model.log_prob(codes[:, [0, 1, 2, 5, 7]]), full.log_prob(spared))
    assert model.n_parameters == full.n_parameters
    assert list(model.forecast(codes[:, [0, 1, 2, 5, 7]], 1)) == ["v2"]
    assert "(v3)" in repr(model.summary())


def test_n_parameters__counts_every_distinct_table():
    sizes = {"n_states": 3, "n_waves": 4, "sizes": (3, 2)}
    assert make_model(**sizes).n_parameters == 2 + 6 + 3 * 3
    assert make_model(**sizes, homogeneous=False).n_parameters == 2 + 3 * 6 + 3 * 3
    assert make_model(**sizes, invariant=False).n_parameters == 2 + 6 + 4 * 3 * 3


def test_save__gives_the_model_back_bit_for_bit(model, tmp_path):
    model.save(tmp_path / "model")
    found = TransitionModel.load(tmp_path / "model")
    for name in ("initial", "transitions", "emissions"):
        assert getattr(found, name).tobytes() == getattr(model, name).tobytes()
    assert found.waves.names == model.waves.names
    assert (found.homogeneous, found.invariant) == (model.homogeneous, model.invariant)
    with pytest.raises(StoreError, match="transition model"):
        pmf.JointPMF.load(tmp_path / "model")


def test_sort_states__keeps_all_probabilities(model, codes):
    found = model.sort_states()
    np.testing.assert_allclose(found.log_prob(codes), model.log_prob(codes))
    assert (np.diff(found.shares.mean(axis=0)) <= 1e-9).all()


def test_model__refuses_what_is_no_chain():
    model = make_model()
    with pytest.raises(pmf.PmfError, match="transitions has shape"):
        TransitionModel(
            model.initial, model.transitions[1:], model.emissions, model.schema, model.waves
        )
    with pytest.raises(pmf.PmfError, match="do not sum to 1"):
        TransitionModel(
            model.initial, model.transitions / 2, model.emissions, model.schema, model.waves
        )


def test_summary__shows_transitions_and_shares(model):
    text = repr(model.summary())
    assert f"Latent transitions of {model.n_states} states over {model.n_waves} waves" in text
    assert ("Transitions: probability" in text) == (model.n_waves > 1)
