import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import digamma, expit

from pmflib.errors import PmfError, SchemaError
from pmflib.solvers.crowd.annotator_model import (
    BLUR,
    ENOUGH,
    FIRST_STRENGTH,
    HALF,
    SCARCITY,
    SKILL_SPREAD,
    SKILL_STEPS,
    SPREAD,
    STEPS,
    STRENGTHS,
    VOTES,
    Annotators,
    Rule,
    split_kinds,
    update_annotators,
)


def expect_answers(confusion, n_items):
    """Answers of annotators who see so many items of each class."""
    return (confusion * n_items).reshape(-1, confusion.shape[-1])


def test_update_annotators__no_strength_is_maximum_likelihood():
    mass = np.array([[8.0, 1.0], [2.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    found = update_annotators(mass, np.array([3.0, 1.0]), Rule(strength=0.0, variational=False))
    np.testing.assert_allclose(found.confusion[0], [[0.8, 0.25], [0.2, 0.75]])
    np.testing.assert_allclose(found.confusion[1], 0.5)
    np.testing.assert_allclose(found.prior, [0.75, 0.25])
    log_prior, weights = found.take_logs()
    np.testing.assert_allclose(np.exp(log_prior), [0.75, 0.25])
    np.testing.assert_allclose(np.exp(weights[:2]), [[0.8, 0.25], [0.2, 0.75]])


def test_update_annotators__without_answers_has_the_pooled_matrix():
    mass = np.array([[90.0, 10.0], [10.0, 90.0], [0.0, 0.0], [0.0, 0.0]])
    found = update_annotators(mass, np.array([1.0, 1.0]), Rule(strength=3.0))
    pooled = np.array([[90.6, 10.1], [10.1, 90.6]]) / 100.7
    np.testing.assert_allclose(found.confusion[1], pooled)
    np.testing.assert_allclose(found.mass[1], 3 * pooled)


def test_update_annotators__few_answers_tell_of_all_classes():
    # a crowd who is right four times of five, and two who answer a few items of the first class
    crowd = expect_answers(
        np.broadcast_to([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], (9, 3, 3)), 50
    )
    good, bad = np.zeros((3, 3)), np.zeros((3, 3))
    good[0, 0], bad[1, 0] = 4.0, 4.0
    found = update_annotators(np.concatenate([crowd, good, bad]), np.ones(3), Rule(strength=4.0))
    right = np.diagonal(found.confusion, axis1=1, axis2=2)
    assert right[9, 1] > right[0, 1] + 0.03
    assert right[10, 1] < right[0, 1] - 0.2
    # not of how mistakes are shared out
    np.testing.assert_allclose(found.confusion[10, 1, 2], found.confusion[10, 0, 2], rtol=0.01)
    np.testing.assert_allclose(found.confusion.sum(axis=1), 1)


def test_update_annotators__skill_is_the_most_probable():
    rng = np.random.default_rng(4)
    mass = rng.integers(1, 9, (5, 3, 3)).astype(float)
    mass[:, range(3), range(3)] += 12
    found = update_annotators(mass.reshape(-1, 3), np.ones(3), Rule(strength=6.0))
    total = mass.sum(axis=0) + 0.1 + 0.5 * np.eye(3)
    pooled = np.diagonal(total / total.sum(axis=0))
    means = (found.mass - mass) / 6.0
    np.testing.assert_allclose(means.sum(axis=1), 1)
    worth = 7.0 / (mass.sum(axis=1) + 6.0)
    for one, mean in enumerate(means):

        def lose(skill, one=one):
            odds = pooled / (1 - pooled) * np.exp(skill)
            right = np.diagonal(mass[one])
            wrong = mass[one].sum(axis=0) - right
            gained = right * np.log(odds / (1 + odds)) - wrong * np.log(1 + odds)
            return skill**2 / 2 / SKILL_SPREAD - (worth[one] * gained).sum()

        best = minimize_scalar(lose, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).x
        odds = pooled / (1 - pooled) * np.exp(best)
        np.testing.assert_allclose(np.diagonal(mean), odds / (1 + odds), rtol=1e-6)


def test_take_logs__variational_weights_are_means_of_logarithms():
    mass = np.array([[9.0, 1.0], [1.0, 4.0]])
    found = update_annotators(mass, np.array([1.0, 1.0]), Rule(strength=2.0))
    concentrations = found.mass[0]
    rng = np.random.default_rng(0)
    drawn = np.log(rng.dirichlet(concentrations[:, 0], 200_000)).mean(axis=0)
    np.testing.assert_allclose(found.take_logs()[1][:, 0], drawn, atol=0.02)
    expected = digamma(concentrations) - digamma(concentrations.sum(axis=0))
    np.testing.assert_allclose(found.take_logs()[1], expected)


@pytest.mark.parametrize("spread", [3.0, 30.0])
def test_update_annotators__strength_is_found_from_how_annotators_differ(spread):
    rng = np.random.default_rng(1)
    # of many classes: of the numbers that make an annotator, the skill takes one
    pooled = rng.dirichlet(np.ones(6), 6).T * 0.3 + 0.7 * np.eye(6)
    odds = np.diagonal(pooled) / (1 - np.diagonal(pooled))
    right = 1 / (1 + 1 / (odds * np.exp(rng.normal(0, SKILL_SPREAD**0.5, (400, 1)))))
    means = pooled * ((1 - right) * (1 + odds))[:, None, :]
    means[:, range(6), range(6)] = right
    drawn = np.stack([rng.gamma(spread * means[:, :, k] + 1e-9) for k in range(6)], axis=-1)
    drawn /= drawn.sum(axis=1, keepdims=True)
    answers = rng.multinomial(50, drawn.transpose(0, 2, 1)).transpose(0, 2, 1).astype(float)
    found = update_annotators(answers.reshape(-1, 6), np.ones(6), Rule())
    for _ in range(150):
        found = update_annotators(answers.reshape(-1, 6), np.ones(6), Rule(), found.strength)
    assert found.strength == pytest.approx(spread, rel=0.15)
    pseudo = found.mass.sum(axis=1) - answers.sum(axis=1)
    np.testing.assert_allclose(pseudo, found.strength)


def test_update_annotators__equal_annotators_meet_the_limit():
    same = np.broadcast_to([[0.8, 0.3], [0.2, 0.7]], (50, 2, 2))
    strength = 4.0
    for _ in range(200):
        found = update_annotators(expect_answers(same, 100), np.ones(2), Rule(), strength)
        strength = found.strength
    assert 60 < strength <= STRENGTHS[1]


def test_update_annotators__one_coin_is_right_alike_and_wrong_alike():
    mass = np.array([[8.0, 1.0, 0.0], [2.0, 3.0, 1.0], [0.0, 0.0, 5.0]])
    found = update_annotators(mass, np.ones(3), Rule(strength=0.0, one_coin=True))
    right, wrong = 16 / 20, 4 / 20 / 2
    expected = np.full((3, 3), wrong) + (right - wrong) * np.eye(3)
    np.testing.assert_allclose(found.confusion[0], expected)


def test_update_annotators__balanced_classes_have_equal_prior():
    found = update_annotators(np.ones((2, 2)), np.array([9.0, 1.0]), Rule(balanced=True))
    assert found.prior.tolist() == [0.5, 0.5]


def test_update_annotators__one_class_is_certain():
    found = update_annotators(np.array([[3.0], [0.0]]), np.array([3.0]), Rule())
    assert found.prior.tolist() == [1.0]
    np.testing.assert_allclose(found.confusion, 1.0)
    assert np.isfinite(np.concatenate([part.ravel() for part in found.take_logs()])).all()


def share_evenly(one):
    """Answers of one annotator, or of all, as right and wrong alone."""
    n_classes = len(one)
    right = np.trace(one)
    even = np.full_like(one, (one.sum() - right) / max(n_classes * (n_classes - 1), 1))
    np.fill_diagonal(even, right / n_classes)
    return even


def update_plainly(answers, strength, one_coin):
    """Parameters of the Dirichlet distributions and the strength, an annotator at a time, as the formulas have it."""
    n_classes, n_states = answers.shape[1:]
    named = np.tile(np.eye(n_classes, dtype=bool), n_states // n_classes)
    total = answers.sum(axis=0) + SPREAD + HALF * named
    if one_coin:
        answers, total = np.stack([share_evenly(one) for one in answers]), share_evenly(total)
    pooled = total / total.sum(axis=0)
    right = pooled.T[named.T]
    listed = []
    for one in answers:
        if n_classes == 1:
            listed.append(pooled)
            continue
        worth = (1 + strength) / (one.sum(axis=0) + strength)
        odds, skill = np.log(right / (pooled.sum(axis=0) - right)), 0.0
        for _ in range(SKILL_STEPS):
            expected = expit(odds + skill)
            slope = (worth * (one.T[named.T] - one.sum(axis=0) * expected)).sum()
            bend = (worth * one.sum(axis=0) * expected * (1 - expected)).sum()
            step = (slope - skill / SKILL_SPREAD) / (bend + 1 / SKILL_SPREAD)
            skill += np.clip(step, -1, 1)
        mean = pooled / (pooled.sum(axis=0) - right) * expit(-odds - skill)
        listed.append(np.where(named, expit(odds + skill), mean))
    means = np.stack(listed)
    for _ in range(STEPS):
        gained = (means * (digamma(answers + strength * means) - digamma(strength * means))).sum()
        spent = (digamma(answers.sum(axis=1) + strength) - digamma(strength)).sum()
        strength = np.clip((strength * gained + 1) / (spent + 1 / FIRST_STRENGTH), *STRENGTHS)
    return answers + strength * means, strength


@pytest.mark.parametrize("rule", [Rule(), Rule(one_coin=True), Rule(kinds=2)])
@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 2), (30, 2), (200, 3), (17, 12)])
def test_update_annotators__is_the_plain_update(shape, rule):
    n_annotators, n_classes = shape
    n_states = rule.kinds * n_classes
    rng = np.random.default_rng(n_annotators)
    answers = rng.gamma(0.3, 20.0, (n_annotators, n_classes, n_states))
    named = np.tile(np.eye(n_classes), rule.kinds)
    answers += rng.gamma(0.5, 40.0, (n_annotators, 1, 1)) * named
    # without answers at all, or of one class
    answers[1:2] = 0.0
    answers[2:3, :, 1:] = 0.0
    mass, strength = update_plainly(answers, 2.5, rule.one_coin)
    found = update_annotators(answers.reshape(-1, n_states), np.ones(n_states), rule, 2.5)
    assert found.strength == pytest.approx(strength, rel=1e-12)
    np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
    expected = digamma(mass) - digamma(mass.sum(axis=1, keepdims=True))
    weights = found.take_logs()[1].reshape(mass.shape)
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-12)


def test_annotators__classes_are_the_mean_of_their_kinds():
    # one annotator who is right on the many easy items of the first class, and guesses on the others
    mass = np.array([[[90.0, 0.0, 5.0, 5.0], [0.0, 50.0, 5.0, 5.0]]])
    found = Annotators(np.array([9.0, 5.0, 1.0, 5.0]), mass, 1.0, Rule(kinds=2))
    np.testing.assert_allclose(found.prior, [0.5, 0.5])
    np.testing.assert_allclose(found.confusion, [[[0.95, 0.25], [0.05, 0.75]]])
    log_prior, weights = found.take_logs()
    np.testing.assert_allclose(np.exp(log_prior), [0.45, 0.25, 0.05, 0.25])
    assert weights.shape == (2, 4)


def test_split_kinds__second_kind_is_nearer_to_guesses():
    mass = np.array([[[9.0, 2.0], [1.0, 6.0]], [[1.0, 1.0], [1.0, 3.0]]])
    alike = Annotators(np.array([3.0, 1.0]), mass, 4.0, Rule(), 0.9)
    found = split_kinds(alike)
    assert (found.strength, found.votes, found.rule) == (4.0, 0.9, Rule(kinds=2))
    np.testing.assert_allclose(found.prior, alike.prior)
    np.testing.assert_array_equal(found.mass[:, :, :2], mass)
    np.testing.assert_allclose(found.mass.sum(axis=1), np.tile(mass.sum(axis=1), 2))
    odds = found.mass[:, 0] / found.mass[:, 1]
    np.testing.assert_allclose(odds[:, 2:], odds[:, :2] ** BLUR)


def test_update_annotators__votes_weigh_more_where_there_are_few_answers_of_an_annotator():
    few, many = (np.full((6, 2), n / 4) for n in (2.0, 200.0))
    # who has not answered does not count
    few[4:], many[4:] = 0.0, 0.0
    for mass, n_answers in ((few, 2), (many, 200)):
        found = update_annotators(mass, np.ones(2), Rule())
        expected = VOTES / (1 + (n_answers / ENOUGH) ** 2) + SCARCITY / n_answers
        assert found.votes == pytest.approx(expected)
    assert update_annotators(few, np.ones(2), Rule(votes=False)).votes == 0
    nothing = update_annotators(np.zeros((6, 2)), np.ones(2), Rule())
    assert nothing.votes == 0


def test_update_annotators__refuses_what_does_not_fit():
    with pytest.raises(SchemaError, match=r"level_mass has shape \(3, 2\)"):
        update_annotators(np.ones((3, 2)), np.ones(2), Rule())
    with pytest.raises(SchemaError, match="state_mass has 3 states; 2 kinds of every class"):
        update_annotators(np.ones((3, 3)), np.ones(3), Rule(kinds=2))
    with pytest.raises(PmfError, match="strength is -1"):
        Rule(strength=-1.0)
    with pytest.raises(PmfError, match="kinds is 3"):
        Rule(kinds=3)
    for other in ({"balanced": True}, {"one_coin": True}, {"strength": 0.0}):
        with pytest.raises(PmfError, match="kinds is 2, with strength"):
            Rule(kinds=2, **other)
