"""Standard errors of latent transition models: scores by finite differences, and the spread of estimates."""

import warnings

import numpy as np
import pytest

import pmflib as pmf
from pmflib.em import BlocksInMemory
from pmflib.families.panels.information import list_chain, sum_chain
from pmflib.information import open_entries
from pmflib.papers import match_factors
from pmflib.store import sample_blocks
from tests.panels import draw_panel, make_model
from tests.stored_samples import write_partition

TRUTH = make_model(n_states=2, n_waves=4, sizes=(3, 3, 3), seed=8)


@pytest.mark.parametrize("flags", [{}, {"homogeneous": False, "invariant": False}], ids=str)
def test_gradient__is_the_slope_of_the_log_likelihood(flags):
    model = make_model(n_states=2, n_waves=3, sizes=(3, 2), seed=1, **flags)
    codes = draw_panel(model, 40)
    layout, schema = model.layout, model.schema
    offsets = layout.find_offsets(2)
    values, starts = list_chain(model)
    entries = open_entries(values, starts)
    found = sum_chain([BlocksInMemory.cut(codes, schema.offsets, 2).blocks[0]], layout, entries, 2)

    def score(moved):
        chain = layout.split((moved[:2], moved[2:].reshape(2, -1).T))
        block = BlocksInMemory.cut(codes, schema.offsets, 2).blocks[0]
        return float(layout.score(block, chain).sum())

    assert starts.size == 1 + 2 * (offsets.size - 1)
    for at in range(entries.size):
        step = np.zeros(entries.size)
        step[at] = 1e-6 * entries[at]
        slope = (score(entries + step) - score(entries - step)) / (2 * step[at])
        assert found.gradient[at] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_errors__are_the_spread_of_estimates():
    estimates, errors, covered = [], [], []
    for seed in range(40):
        codes = draw_panel(TRUTH, 600, seed, missed=0.1)
        model = pmf.families.fit_transitions(
            codes, 2, waves=4, n_starts=1, pseudo_count=0.0, schema=TRUTH.schema
        ).model
        order = match_factors(TRUTH.initial, TRUTH.emissions, model.initial, model.emissions)
        found = pmf.inference.standard_errors(model, codes)
        assert found.distance < 0.2
        moved = found["transitions"]
        at = order[:, None], order
        estimates.append(model.transitions[0][at])
        errors.append(moved.errors[0][at])
        lower, upper = moved.lower[0][at], moved.upper[0][at]
        covered.append((lower <= TRUTH.transitions[0]) & (TRUTH.transitions[0] <= upper))
    spread = np.std(estimates, axis=0, ddof=1)
    np.testing.assert_allclose(np.mean(errors, axis=0), spread, rtol=0.25)
    assert np.mean(covered) > 0.85


def test_one_wave__has_the_errors_of_latent_classes():
    truth = make_model(n_states=2, n_waves=1, sizes=(3, 3, 3, 3), seed=8)
    codes = truth.sample(900, 1)
    model = pmf.families.fit_transitions(
        codes, 2, waves=1, schema=truth.schema, pseudo_count=0.0, tol=1e-10
    ).model
    ours = pmf.inference.standard_errors(model, codes)
    classes = pmf.inference.standard_errors(model.wave(0), codes)
    assert ours["initial"].errors == pytest.approx(classes["prior"].errors, rel=0.15)
    known = classes["factors"].errors > 0
    assert ours["emissions"].errors[known] == pytest.approx(
        classes["factors"].errors[known], rel=0.35
    )


def test_stored_samples__have_the_same_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    codes = draw_panel(TRUTH, 500)
    stored = pmf.em.StoredSamples(
        write_partition(tmp_path, codes, TRUTH.schema, block_rows=60), TRUTH.schema
    )
    model = pmf.families.fit_transitions(stored, 2, waves=4, n_starts=1).model
    one, other = (
        pmf.inference.standard_errors(model, stored),
        pmf.inference.standard_errors(model, codes),
    )
    for name in ("initial", "transitions", "emissions"):
        assert one[name].errors.shape == getattr(model, name).shape
        np.testing.assert_allclose(one[name].errors, other[name].errors, rtol=1e-6)
    assert "Transitions" in repr(one.summary())


def test_undetermined_parameters__have_no_errors_and_are_named():
    codes = np.random.default_rng(0).integers(0, 2, (300, 3)).astype(np.int8)
    model = pmf.families.fit_transitions(codes, 3, waves=3, n_starts=1).model
    with pytest.warns(pmf.errors.IdentificationWarning, match="not determined by the samples"):
        found = pmf.inference.standard_errors(model, codes)
    assert np.isnan(found["emissions"].errors).any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "not determined" in repr(pmf.inference.standard_errors(model, codes).summary())


def test_designs__are_refused_for_transitions():
    codes = draw_panel(TRUTH, 100)
    model = pmf.families.fit_transitions(codes, 2, waves=4, n_starts=1).model
    design = pmf.surveys.SurveyDesign(weight=np.ones(100))
    with pytest.raises(pmf.PmfError, match="design"):
        pmf.inference.standard_errors(model, codes, design)
