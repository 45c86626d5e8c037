import json
from dataclasses import replace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import PairAgreement, PairDeparture, compare_pairs
from tests.families.forests.conftest import make_tree
from tests.reference import make_model

SIZES = [3, 2, 4, 2]


@pytest.fixture(scope="module")
def truth():
    schema = pmf.Schema.from_cardinalities(SIZES)
    return pmf.JointPMF(*make_model(np.random.default_rng(0), SIZES, 2), schema)


@pytest.fixture(scope="module")
def codes(truth):
    return truth.sample(20_000, 1)


def make_independent(codes, schema):
    """Model of one state with the counted PMFs of single variables."""
    factors = [np.bincount(codes[:, j], minlength=n) / len(codes) for j, n in enumerate(SIZES)]
    return pmf.JointPMF(np.ones(1), np.concatenate(factors)[:, None], schema)


def test_compare_pairs__the_truth_explains_all(truth, codes):
    found = compare_pairs(truth, pmf.count_pairs(codes, truth.schema, n_folds=3))
    assert (found.n_pairs, found.n_contradicting) == (6, 0)
    assert 0.97 < found.share_explained <= 1.0
    assert found.is_close
    assert found.warnings == ()


def test_compare_pairs__independence_explains_nothing_of_the_information(truth, codes):
    found = compare_pairs(
        make_independent(codes, truth.schema), pmf.count_pairs(codes, truth.schema)
    )
    assert found.share_explained == pytest.approx(0.0, abs=1e-9)
    assert found.missed == pytest.approx(found.information)
    # by hand, of one pair after another
    by_hand = 0.0
    for one in range(4):
        for other in range(one + 1, 4):
            table = np.histogram2d(codes[:, one], codes[:, other], (SIZES[one], SIZES[other]))[0]
            p = table / table.sum()
            product = np.outer(p.sum(axis=1), p.sum(axis=0))
            raw = (p[p > 0] * np.log(p[p > 0] / product[p > 0])).sum()
            by_hand += max(raw - (SIZES[one] - 1) * (SIZES[other] - 1) / 40_000, 0)
    assert found.information == pytest.approx(by_hand)
    assert len(found.warnings) == 1


def test_compare_pairs__names_the_pair_and_the_levels_that_are_furthest_off():
    schema = pmf.Schema(
        (
            pmf.Variable("relationship", ("Wife", "Other")),
            pmf.Variable("sex", ("Female", "Male")),
            pmf.Variable("coin", ("heads", "tails")),
        )
    )
    rng = np.random.default_rng(0)
    wife = rng.random(5000) < 0.2
    female = np.where(wife, rng.random(5000) < 0.999, rng.random(5000) < 0.3)
    codes = (
        np.stack([~wife, ~female, rng.random(5000) < 0.5], axis=1).astype(np.int64).view(pmf.Codes)
    )
    factors = np.concatenate([[n, 1 - n] for n in 1 - codes.mean(axis=0)])[:, None]
    found = compare_pairs(pmf.JointPMF(np.ones(1), factors, schema), pmf.count_pairs(codes, schema))
    assert found.most == ("relationship", "sex")
    (worst,) = found.worst
    assert (worst.given, worst.level) == (("relationship", "Wife"), ("sex", "Female"))
    assert worst.counted == pytest.approx(female[wife].mean())
    assert worst.modelled == pytest.approx(female.mean())
    assert (worst.n_given, worst.support) == (wife.sum(), 5000)
    assert found.furthest == worst
    assert not found.is_close


def test_compare_pairs__takes_forests_as_they_are():
    truth = make_tree([3, 3, 3, 3], np.array([[-1, -1, -1, 1]] * 2), seed=2)
    counts = pmf.count_pairs(truth.sample(20_000, 1), truth.schema)
    plain = pmf.JointPMF(truth.prior, truth.factors, truth.schema)
    with_forests, without = compare_pairs(truth, counts), compare_pairs(plain, counts)
    assert with_forests.n_contradicting == 0
    assert without.most == ("v1", "v3")
    assert with_forests.share_explained > without.share_explained


@pytest.mark.parametrize("n_rows", [0, 2])
def test_compare_pairs__few_samples_contradict_nothing(truth, codes, n_rows):
    found = compare_pairs(truth, pmf.count_pairs(codes[:n_rows], truth.schema, n_folds=1))
    assert found.n_pairs == (6 if n_rows else 0)
    assert found.n_contradicting == 0
    assert found.share_explained is None or 0 <= found.share_explained <= 1


def test_compare_pairs__pairs_that_no_sample_holds_do_not_count(truth, codes):
    apart = codes.copy()
    apart[::2, 0] = -1
    apart[1::2, 1] = -1
    found = compare_pairs(truth, pmf.count_pairs(apart, truth.schema))
    assert found.n_pairs == 5
    assert np.isfinite(found.information)


def test_compare_pairs__a_single_variable_and_a_single_level():
    for schema in (
        pmf.Schema.from_cardinalities([3]),
        pmf.Schema((pmf.Variable("a", ("x",)), pmf.Variable("b", ("y", "z")))),
    ):
        n_levels = schema.n_levels
        factors = np.repeat(1 / np.diff(schema.offsets), np.diff(schema.offsets))[:, None]
        codes = pmf.Codes(np.zeros((50, schema.n_variables), np.int64))
        found = compare_pairs(
            pmf.JointPMF(np.ones(1), factors, schema), pmf.count_pairs(codes, schema)
        )
        assert n_levels == 3
        assert (found.n_contradicting, found.share_explained) == (0, None)
        assert found.is_close


DEPARTURE = PairDeparture(("a", "x"), ("b", "y"), 0.5, 0.35, 400, 500)
AGREEMENT = PairAgreement(3, 1, 1.0, 0.05, ("a", "b"), (DEPARTURE,), DEPARTURE)


def test_pair_agreement__json_and_back():
    assert PairAgreement.from_json(json.loads(json.dumps(AGREEMENT.to_json()))) == AGREEMENT


@pytest.mark.parametrize(
    ("changes", "is_close", "warns"),
    [
        ({}, False, True),
        ({"furthest": replace(DEPARTURE, modelled=0.45)}, True, False),
        ({"furthest": replace(DEPARTURE, support=499)}, False, False),
        ({"furthest": None, "missed": 0.15}, False, False),
        ({"furthest": None, "missed": 0.25}, False, True),
        ({"furthest": None, "information": 0.0, "missed": 0.0}, True, False),
    ],
)
def test_pair_agreement__what_matters(changes, is_close, warns):
    found = replace(AGREEMENT, **changes)
    assert found.is_close == is_close
    assert bool(found.warnings) == warns
