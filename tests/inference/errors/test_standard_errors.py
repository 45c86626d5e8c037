import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, IdentificationWarning, MemoryPlanError, PmfError
from pmflib.information import ClassInformation, merge_information
from pmflib.model import planted_factors


def plant(sizes, rank, seed=0, concentration=2.0):
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors(sizes, rank, rng, concentration=concentration)
    return pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(sizes))


def draw_fit(truth, n_rows, seed=1, observed=0.9):
    """Samples with gaps, and the maximum of their likelihood next to the truth."""
    codes = truth.sample(n_rows, seed)
    codes[np.random.default_rng(seed).random(codes.shape) > observed] = -1
    fit = pmf.fit_em(codes, truth, pseudo_count=0, max_passes=20_000, tol=1e-13, accelerate=True)
    return codes, fit.model


def list_directions(starts, n_entries):
    """Steps from the first entry of each PMF to every other one."""
    steps = []
    for start, end in zip(starts, [*starts[1:], n_entries], strict=True):
        for entry in range(start + 1, end):
            step = np.zeros(n_entries)
            step[start], step[entry] = -1, 1
            steps.append(step)
    return np.array(steps).T


def test_sum_information__is_minus_the_second_derivative_of_the_likelihood():
    truth = plant([3, 2, 4, 2], 2, concentration=4.0)
    codes, _ = draw_fit(truth, 400)
    information = ClassInformation(truth)
    entries, starts = information.entries, information.starts
    found = information.sum_information([DenseBlock(codes)])
    steps = list_directions(starts, entries.size)

    def score(moved):
        model = pmf.JointPMF(moved[:2], moved[2:].reshape(2, -1).T, truth.schema)
        return model.log_prob(codes).sum()

    n_steps, width = steps.shape[1], 1e-4
    expected = np.empty((n_steps, n_steps))
    for i, j in np.ndindex(n_steps, n_steps):
        a, b = width * steps[:, i], width * steps[:, j]
        up, down = score(entries + a + b) - score(entries + a - b), 0.0
        down = score(entries - a + b) - score(entries - a - b)
        expected[i, j] = -(up - down) / (4 * width**2)
    curvature = steps.T @ (found.outer - found.crossed) @ steps
    np.testing.assert_allclose(curvature, expected, rtol=1e-4, atol=1e-2)
    slopes = [
        (score(entries + width * s) - score(entries - width * s)) / width / 2 for s in steps.T
    ]
    np.testing.assert_allclose(found.gradient @ steps, slopes, rtol=1e-5, atol=1e-4)


def test_sum_information__adds_up_over_blocks_and_weights():
    truth = plant([3, 2, 4], 2)
    codes, _ = draw_fit(truth, 60)
    information = ClassInformation(truth)
    whole = information.sum_information([DenseBlock(np.repeat(codes, 2, axis=0))])
    parts = [information.sum_information([DenseBlock(part, np.full(len(part), 2.0))])
             for part in np.split(codes, [10, 25])]  # fmt: skip
    merged = merge_information(parts)
    for name in ("outer", "crossed", "gradient", "mass"):
        np.testing.assert_allclose(
            getattr(merged, name), getattr(whole, name), rtol=1e-10, atol=1e-9
        )


def test_standard_errors__of_a_fit_with_weights_need_them():
    codes = np.random.default_rng(0).integers(0, 2, (200, 3))
    weights = np.linspace(1, 3, 200)
    model = pmf.fit_em(codes, rank=1, pseudo_count=0, weight=weights).model
    with pytest.raises(PmfError, match=r"without weights.*SurveyDesign\(weight\)"):
        pmf.inference.standard_errors(model, codes)
    found = pmf.inference.standard_errors(model, codes, pmf.surveys.SurveyDesign(weights))
    assert np.all(found["factors"].errors > 0)


def test_standard_errors__of_one_state_are_those_of_shares():
    codes = np.random.default_rng(0).integers(0, 3, (500, 2)) % [[3, 2]]
    model = pmf.fit_em(
        codes, rank=1, schema=pmf.Schema.from_cardinalities([3, 2]), pseudo_count=0
    ).model
    found = pmf.inference.standard_errors(model, codes)
    shares = model.factors
    np.testing.assert_allclose(
        found["factors"].errors, np.sqrt(shares * (1 - shares) / 500), rtol=1e-5
    )
    assert found["prior"].errors.tolist() == [0.0]
    assert found.notes == ()


def test_standard_errors__of_a_state_are_no_less_than_those_of_known_states():
    codes, model = draw_fit(plant([3] * 6, 2), 1000)
    found = pmf.inference.standard_errors(model, codes)
    prior = model.prior
    assert (found["prior"].errors > np.sqrt(prior * (1 - prior) / 1000)).all()
    for each in found.values():
        assert ((each.lower >= 0) & (each.lower <= each.values)).all()
        assert ((each.upper <= 1) & (each.upper >= each.values)).all()
    assert found.distance < 0.01


def test_standard_errors__are_the_spread_over_samples():
    truth = plant([3] * 6, 2, concentration=1.0)
    fits, errors = [], []
    for seed in range(60):
        codes, model = draw_fit(truth, 1500, seed)
        fits.append(np.vstack([model.prior, model.factors]))
        if seed < 5:
            found = pmf.inference.standard_errors(model, codes)
            errors.append(np.vstack([found["prior"].errors, found["factors"].errors]))
    actual = np.std(fits, axis=0, ddof=1)
    # 59 degrees of freedom of each spread, 38 parameters
    ratio = np.sqrt(np.mean(np.square(errors), axis=0) / actual**2)
    assert 0.9 < np.median(ratio) < 1.1
    assert np.all((ratio > 0.6) & (ratio < 1.6))


@pytest.mark.parametrize(("sizes", "rank"), [([3, 3], 2), ([3, 3, 3], 4)])
def test_standard_errors__what_samples_leave_open_has_none(sizes, rank):
    truth = plant(sizes, rank)
    codes = truth.sample(2000, 0)
    with pytest.warns(IdentificationWarning):
        found = pmf.inference.standard_errors(truth, codes)
    assert "v0, v1" in found.notes[0]
    assert np.isnan(found["prior"].errors).all()
    assert not found["factors"].is_determined.any()


def test_standard_errors__what_is_determined_all_the_same_has_one():
    # two states that differ in two variables alone: these are open, and the third is not
    factors = np.array([[0.2, 0.7], [0.8, 0.3], [0.4, 0.9], [0.6, 0.1], [0.5, 0.5], [0.5, 0.5]])
    model = pmf.JointPMF(np.array([0.5, 0.5]), factors, pmf.Schema.from_cardinalities([2, 2, 2]))
    joined = pmf.JointPMF(np.ones(1), np.full((6, 1), 0.5), model.schema)
    codes = model.sample(3000, 0)
    assert (
        pmf.inference.standard_errors(pmf.fit_em(codes, joined, pseudo_count=0).model, codes).notes
        == ()
    )
    # four levels make two states known
    wide = plant([4, 4, 4], 2, concentration=0.5)
    found = pmf.inference.standard_errors(*reversed(draw_fit(wide, 3000)))
    assert found["factors"].is_determined.all()


def test_standard_errors__a_level_never_seen_is_at_an_edge():
    truth = plant([3] * 5, 2, concentration=1.0)
    codes, _ = draw_fit(truth, 2000)
    codes[codes[:, 0] == 2, 0] = 1
    model = pmf.fit_em(codes, truth, pseudo_count=0, max_passes=5000, tol=1e-12).model
    found = pmf.inference.standard_errors(model, codes)
    assert found["factors"].is_edge[2].all()
    assert found["factors"].errors[2].tolist() == [0.0, 0.0]
    assert found["factors"].lower[2].tolist() == [0.0, 0.0]
    # 1.92 nats of about 900 samples with each state
    assert ((found["factors"].upper[2] > 0.0005) & (found["factors"].upper[2] < 0.01)).all()


def test_standard_errors__a_variable_never_observed_is_not_determined():
    truth = plant([3] * 5, 2, concentration=1.0)
    codes, _ = draw_fit(truth, 2000)
    codes[:, 3] = -1
    model = pmf.fit_em(codes, truth, pseudo_count=0, max_passes=5000, tol=1e-12).model
    with pytest.warns(IdentificationWarning, match="v3"):
        found = pmf.inference.standard_errors(model, codes)
    of_variable = found["factors"].is_determined.reshape(5, 3, 2)
    assert of_variable.all(axis=(1, 2)).tolist() == [True, True, True, False, True]


def test_standard_errors__away_from_the_maximum_is_said():
    truth = plant([3] * 5, 2)
    codes = truth.sample(2000, 3)
    model = pmf.fit_em(codes, plant([3] * 5, 2, seed=5), pseudo_count=0, max_passes=0).model
    with pytest.warns(IdentificationWarning):
        pmf.inference.standard_errors(model, codes)


def test_standard_errors__refuses():
    truth = plant([3] * 5, 2)
    codes = truth.sample(50, 0)
    with pytest.raises(pmf.PmfError, match="samples"):
        pmf.inference.standard_errors(truth, codes[:0])
    with pytest.raises(pmf.PmfError):
        pmf.inference.standard_errors(truth, np.full((4, 5), -1))
    average = pmf.fit_em(codes, rank=2, schema=truth.schema, members=2).model
    with pytest.raises(pmf.PmfError, match="average"):
        pmf.inference.standard_errors(average, codes)
    large = plant([10] * 25, 10)
    with pytest.raises(MemoryPlanError, match="2,510"):
        pmf.inference.standard_errors(large, large.sample(5, 0))


@pytest.mark.parametrize(("sizes", "rank"), [([3, 3], 2), ([3, 3, 3], 4)])
def test_fit_em__says_of_a_small_fit_what_the_samples_leave_open(sizes, rank):
    truth = plant(sizes, rank)
    result = pmf.fit_em(truth.sample(500, 0), rank=rank, schema=truth.schema)
    assert "v0" in result.notes[0]
