import itertools

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import completions, find_most_likely, most_likely
from pmflib.base import MemoryPlanError, SchemaError
from tests.answering.question_models import make_pets, make_survey, tabulate

MODEL = make_survey()
JOINT = tabulate(MODEL)
STARS = np.arange(1.0, 5.0)


def give(joint, axis, codes):
    """Condition the slow way."""
    kept = np.zeros(joint.shape[axis])
    kept[list(codes)] = 1
    joint = joint * kept.reshape([-1 if n == axis else 1 for n in range(joint.ndim)])
    return joint / joint.sum()


def entropy(probabilities):
    return -sum(p * np.log(p) for p in probabilities.ravel() if p > 0)


def test_ask__joint_and_conditional_probabilities():
    found = MODEL.ask("P(stars, kind | income>=10)")
    expected = give(JOINT, 3, (1, 2)).sum(axis=(2, 3))
    assert len(found.value) == 12
    for (stars, kind), chance in found.value.items():
        position = MODEL.schema["kind"].levels.index(kind)
        assert chance == pytest.approx(expected[int(stars) - 1, position], rel=1e-12)
    assert list(found.numbers) == sorted(found.numbers, reverse=True)


def test_ask__probability_of_an_event():
    given = give(JOINT, 1, (1,))
    found = MODEL.ask("P(stars>=3, income=low | kind=comedy)").value
    assert found == pytest.approx(given[2:, :, :, 0].sum(), rel=1e-12)
    mixed = MODEL.ask("P(stars, income=low | kind=comedy)").value
    assert mixed["2"] == pytest.approx(given[1, :, :, 0].sum(), rel=1e-12)
    assert make_pets().ask("P(car=yes | age=young)").value == 0


def test_ask__every_level_of_what_is_given():
    found = MODEL.ask("P(stars=4 | kind)")
    joint = JOINT.sum(axis=(2, 3))
    for n, kind in enumerate(MODEL.schema["kind"].levels):
        assert found.value[kind] == pytest.approx(joint[3, n] / joint[:, n].sum(), rel=1e-12)
    means = MODEL.ask("E(stars | kind)").value
    assert means["drama"] == pytest.approx(STARS @ joint[:, 0] / joint[:, 0].sum(), rel=1e-12)


def test_ask__levels_that_nobody_has_are_left_out():
    model = pmf.JointPMF(
        np.array([0.5, 0.5]),
        np.array([[1.0, 1], [0, 0], [0.6, 0.1], [0.4, 0.9], [1, 0.3], [0, 0.7]]),
        make_pets().schema,
    )
    found = model.ask("P(pet=cat | age)")
    assert list(found.value) == ["young"]


def test_ask__expected_values_and_quantiles():
    probabilities = give(JOINT, 3, (2,)).sum(axis=(1, 2, 3))
    assert MODEL.ask("E(stars | income=high)").value == pytest.approx(
        STARS @ probabilities, rel=1e-12
    )
    assert pmf.answering.expected(MODEL, "stars", {"income": "high"}) == pytest.approx(
        STARS @ probabilities
    )
    for share in (0.05, 0.3, 0.5, 0.9, 0.999):
        expected = STARS[np.searchsorted(np.cumsum(probabilities), share)]
        assert MODEL.ask(f"quantile(stars, {share} | income=high)").value == expected
        found = pmf.answering.quantile(MODEL, "stars", share, {"income": "high"})
        assert float(found) == expected
    assert MODEL.ask("median(stars)").value == MODEL.ask("quantile(stars, 0.5)").value
    assert MODEL.ask("median(income)").value in ("low", "middle", "high")
    conditional = MODEL.ask("E(stars | stars>=3)").value
    both = JOINT.sum(axis=(1, 2, 3))[2:]
    assert conditional == pytest.approx(np.array([3, 4]) @ both / both.sum(), rel=1e-12)


def test_ask__expected_value_of_names_is_refused():
    with pytest.raises(SchemaError, match="kind"):
        MODEL.ask("E(kind)")
    with pytest.raises(SchemaError, match="kind"):
        MODEL.ask("median(kind)")


def test_ask__entropy_and_information():
    given = give(JOINT, 3, (0,))
    three = JOINT.sum(axis=2)
    pairs = three.sum(axis=2)
    assert MODEL.ask("H(stars, kind | income=low)").value == pytest.approx(
        entropy(given.sum(axis=(2, 3)))
    )
    by_kind = entropy(pairs) - entropy(pairs.sum(axis=0))
    assert MODEL.ask("H(stars | kind)").value == pytest.approx(by_kind)
    mutual = entropy(pairs.sum(axis=0)) + entropy(pairs.sum(axis=1)) - entropy(pairs)
    assert MODEL.ask("MI(stars; kind)").value == pytest.approx(mutual)
    expected = sum(
        weight
        * (
            entropy(probabilities.sum(axis=0))
            + entropy(probabilities.sum(axis=1))
            - entropy(probabilities)
        )
        for n in range(3)
        for weight in [three[:, :, n].sum()]
        for probabilities in [three[:, :, n] / weight]
    )
    assert MODEL.ask("MI(stars; kind | income)").value == pytest.approx(expected)


def test_ask__total_variation():
    pairs = JOINT.sum(axis=(2, 3))
    apart = np.outer(pairs.sum(axis=1), pairs.sum(axis=0))
    expected = np.abs(pairs - apart).sum() / 2
    assert MODEL.ask("TV(stars; kind)").value == pytest.approx(expected)
    one, other = (give(JOINT, 1, codes).sum(axis=(1, 2, 3)) for codes in ((0,), (1, 2)))
    found = MODEL.ask("TV(stars | kind=drama; kind!=drama)").value
    assert found == pytest.approx(np.abs(one - other).sum() / 2)
    plain = MODEL.ask("TV(stars | kind=drama)").value
    assert plain == pytest.approx(np.abs(one - JOINT.sum(axis=(1, 2, 3))).sum() / 2)


def test_ask__odds_and_their_ratios():
    table = JOINT.sum(axis=(2, 3))
    p, q = (table[3, n] / table[:, n].sum() for n in (0, 1))
    assert MODEL.ask("odds(stars=4 | kind=drama)").value == pytest.approx(p / (1 - p))
    ratio = p / (1 - p) / (q / (1 - q))
    assert MODEL.ask("OR(stars=4 | kind=drama; kind=comedy)").value == pytest.approx(ratio)
    found = pmf.answering.odds_ratio(MODEL, {"stars": "4"}, {"kind": "drama"}, {"kind": "comedy"})
    assert found == pytest.approx(ratio)
    a, b = table[3, 0], table[3, 1:].sum()
    c, d = table[:3, 0].sum(), table[:3, 1:].sum()
    assert MODEL.ask("OR(stars=4; kind=drama)").value == pytest.approx(a * d / (b * c))


def test_most_likely__is_not_the_product_of_argmaxes():
    # each alone is likeliest to be "a", and yet nobody has "a" in both
    model = pmf.JointPMF(
        np.full(3, 1 / 3),
        np.array([[1, 0.34, 0], [0, 0.66, 1], [0, 0.34, 1.0], [1, 0.66, 0]]),
        pmf.Schema.from_cardinalities([2, 2]),
    )
    joint = tabulate(model)
    top = most_likely(model, ["v0", "v1"], top=4).to_pydict()
    order = np.argsort(-joint, axis=None, kind="stable")
    assert [
        int(a) * 2 + int(b) for a, b in zip(top["v0"], top["v1"], strict=True)
    ] == order.tolist()
    np.testing.assert_allclose(top["probability"], np.sort(joint, axis=None)[::-1], rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_find_most_likely__search_finds_what_enumeration_finds(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes = [2, 3, 4, 3, 2, 3]
    factors = np.vstack([rng.dirichlet(np.full(n, 0.6), 4).T for n in sizes])
    model = pmf.JointPMF(rng.dirichlet(np.ones(4)), factors, pmf.Schema.from_cardinalities(sizes))
    positions = [4, 0, 2, 5, 3]
    known = find_most_likely(model, positions, 20)
    monkeypatch.setattr(completions, "FEW_CELLS", 0)
    found = find_most_likely(model, positions, 20)
    assert np.array_equal(found[0], known[0])
    np.testing.assert_allclose(found[1], known[1], rtol=1e-12)


def test_find_most_likely__many_variables_and_zeros(monkeypatch):
    # two states that share no level: 2 ** 60 combinations, of which only two have any probability
    n = 60
    factors = np.tile([[1.0, 0.0], [0.0, 1.0]], (n, 1))
    model = pmf.JointPMF(np.array([0.3, 0.7]), factors, pmf.Schema.from_cardinalities([2] * n))
    codes, chances = find_most_likely(model, range(n), 5)
    assert codes.tolist() == [[1] * n, [0] * n]
    np.testing.assert_allclose(chances, [0.7, 0.3], rtol=1e-12)
    monkeypatch.setattr(completions, "MAX_EXPANDED", 10)
    with pytest.raises(MemoryPlanError):
        find_most_likely(model, range(n), 1)
    with pytest.raises(pmf.PmfError, match="top"):
        find_most_likely(model, [0], 0)


def test_ask__most_likely_completions():
    found = MODEL.ask("argmax(stars, kind | income=low)", top=3)
    given = give(JOINT, 3, (0,)).sum(axis=(2, 3))
    cells = sorted(itertools.product(range(4), range(3)), key=lambda cell: -given[cell])[:3]
    expected = [(str(a + 1), MODEL.schema["kind"].levels[b]) for a, b in cells]
    assert list(found.labels) == expected
    np.testing.assert_allclose(found.numbers, [given[cell] for cell in cells], rtol=1e-12)
    assert found.value == dict(zip(("stars", "kind"), expected[0], strict=True))
