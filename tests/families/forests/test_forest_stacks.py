import numpy as np
import pytest

import pmflib as pmf
from pmflib.base.defaults import LIMITS
from pmflib.em import BlocksInMemory, run_em
from pmflib.families.forests.stack import OPTIONS, ForestRung, mix_forests, offer_forests
from pmflib.fits.stack.ladder import EFFORTS, LadderSizes, RungStart
from pmflib.model.origin import ModelOrigin
from tests.reference import make_codes, make_model, offsets_of

CARDINALITIES = [3, 2, 4, 2]
OFFSETS = offsets_of(CARDINALITIES)
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)
CODES = make_codes(np.random.default_rng(0), 400, CARDINALITIES)
SINGLES = np.concatenate([np.full(n, 1 / n) for n in CARDINALITIES])


def refuse(*_):
    raise AssertionError("a forest needs no fit to a target")


START = RungStart(SINGLES, OFFSETS, 0, refuse, refuse)


def fit(rung):
    """A rung after a few passes."""
    ((family, state),) = rung.begin(START)
    source = BlocksInMemory.cut(CODES, OFFSETS, rung.rank)
    ended = run_em(family, source, state, limits=LIMITS._replace(max_passes=6))
    return rung.make(rung.join([ended.parameters]), SCHEMA, ModelOrigin())


def test_mix_forests__density_of_the_mixture_of_classes_and_forests():
    classes = pmf.JointPMF(*make_model(np.random.default_rng(1), CARDINALITIES, 3), SCHEMA)
    forests = fit(ForestRung(2, 4, 1, 0.3))
    weights = np.array([0.3, 0.7])
    mixed = mix_forests([classes, forests], weights, SCHEMA, ModelOrigin())
    assert mixed.rank == 7
    expected = np.log(0.3 * np.exp(classes.log_prob(CODES)) + 0.7 * np.exp(forests.log_prob(CODES)))
    np.testing.assert_allclose(mixed.log_prob(CODES), expected, rtol=1e-10)
    hidden = CODES.copy()
    hidden[:, 2] = -1
    parts = [
        weight * np.exp(each.log_prob(hidden))[:, None] * each.predict_proba(hidden, 2)
        for weight, each in zip(weights, (classes, forests), strict=True)
    ]
    whole = sum(parts) / sum(parts).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mixed.predict_proba(hidden, 2), whole, rtol=1e-9)


def test_forest_rung__starts_and_options_differ_by_number():
    begun = [ForestRung(2, 4, 1, 0.3, k).begin(START)[0] for k in range(len(OPTIONS))]
    assert len({str(family) for family, _ in begun}) == len(OPTIONS)
    first, second = (state.parameters.tables for _, state in begun[:2])
    assert np.abs(first - second).max() > 0.01


@pytest.mark.parametrize(("n_rows", "most"), [(30, 1), (300, 16), (100_000, 64)])
def test_offer_forests__ranks_grow_with_the_samples(n_rows, most):
    sizes = LadderSizes(OFFSETS, n_rows, 4 * n_rows, EFFORTS["normal"])
    allowed = 4 * n_rows / (3 * 11)
    assert all(each.rank <= max(allowed, 1) for each in offer_forests(sizes, 0.3))
    assert max(each.rank for each in offer_forests(sizes, 0.3)) == most


def test_offer_forests__none_where_pairs_are_too_many():
    wide = offsets_of([40] * 500)
    assert offer_forests(LadderSizes(wide, 1000, 500_000, EFFORTS["normal"]), 0.3) == []
