import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import digamma, expit

import pmflib as pmf
from pmflib.apps.crowd import AnnotatorModel, CrowdModel
from pmflib.apps.crowd.m_step import SHRINKAGE, update_crowd_model
from pmflib.apps.crowd.pairs.annotator_model import SECOND_SUBCLASS_POWER, split_subclasses
from pmflib.base import SchemaError


def expect_labels(confusion, n_tasks):
    """Labels of workers who see so many tasks of each class."""
    return (confusion * n_tasks).reshape(-1, confusion.shape[-1])


def test_update_crowd_model__no_pseudo_count_is_maximum_likelihood():
    mass = np.array([[8.0, 1.0], [2.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    found = update_crowd_model(
        mass, np.array([3.0, 1.0]), AnnotatorModel(pseudo_count=0.0, variational=False)
    )
    np.testing.assert_allclose(found.confusion[0], [[0.8, 0.25], [0.2, 0.75]])
    np.testing.assert_allclose(found.confusion[1], 0.5)
    np.testing.assert_allclose(found.prior, [0.75, 0.25])
    log_prior, weights = found.take_logs()
    np.testing.assert_allclose(np.exp(log_prior), [0.75, 0.25])
    np.testing.assert_allclose(np.exp(weights[:2]), [[0.8, 0.25], [0.2, 0.75]])


def test_update_crowd_model__without_labels_has_the_pooled_matrix():
    mass = np.array([[90.0, 10.0], [10.0, 90.0], [0.0, 0.0], [0.0, 0.0]])
    found = update_crowd_model(mass, np.array([1.0, 1.0]), AnnotatorModel(pseudo_count=3.0))
    pooled = np.array([[90.6, 10.1], [10.1, 90.6]]) / 100.7
    np.testing.assert_allclose(found.confusion[1], pooled)
    np.testing.assert_allclose(found.mass[1], 3 * pooled)


def test_update_crowd_model__few_labels_say_much_of_all_classes():
    # a crowd who is right four times of five, and two who label a few tasks of the first class
    crowd = expect_labels(
        np.broadcast_to([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], (9, 3, 3)), 50
    )
    good, bad = np.zeros((3, 3)), np.zeros((3, 3))
    good[0, 0], bad[1, 0] = 4.0, 4.0
    found = update_crowd_model(
        np.concatenate([crowd, good, bad]), np.ones(3), AnnotatorModel(pseudo_count=4.0)
    )
    right = np.diagonal(found.confusion, axis1=1, axis2=2)
    assert right[9, 1] > right[0, 1] + 0.03
    assert right[10, 1] < right[0, 1] - 0.2
    # not of how mistakes are shared out
    np.testing.assert_allclose(found.confusion[10, 1, 2], found.confusion[10, 0, 2], rtol=0.01)
    np.testing.assert_allclose(found.confusion.sum(axis=1), 1)


def test_update_crowd_model__skill_is_the_most_probable():
    rng = np.random.default_rng(4)
    mass = rng.integers(1, 9, (5, 3, 3)).astype(float)
    mass[:, range(3), range(3)] += 12
    found = update_crowd_model(mass.reshape(-1, 3), np.ones(3), AnnotatorModel(pseudo_count=6.0))
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
            return skill**2 / 2 / SHRINKAGE.skill_variance - (worth[one] * gained).sum()

        best = minimize_scalar(lose, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).x
        odds = pooled / (1 - pooled) * np.exp(best)
        np.testing.assert_allclose(np.diagonal(mean), odds / (1 + odds), rtol=1e-6)


def test_take_logs__variational_weights_are_means_of_logarithms():
    mass = np.array([[9.0, 1.0], [1.0, 4.0]])
    found = update_crowd_model(mass, np.array([1.0, 1.0]), AnnotatorModel(pseudo_count=2.0))
    concentrations = found.mass[0]
    rng = np.random.default_rng(0)
    expected = np.log(rng.dirichlet(concentrations[:, 0], 200_000)).mean(axis=0)
    np.testing.assert_allclose(found.take_logs()[1][:, 0], expected, atol=0.02)
    expected = digamma(concentrations) - digamma(concentrations.sum(axis=0))
    np.testing.assert_allclose(found.take_logs()[1], expected)


@pytest.mark.parametrize("spread", [3.0, 30.0])
def test_update_crowd_model__pseudo_count_is_found_from_how_workers_differ(spread):
    rng = np.random.default_rng(1)
    # of many classes: of the numbers that make a worker, the skill takes one
    pooled = rng.dirichlet(np.ones(6), 6).T * 0.3 + 0.7 * np.eye(6)
    odds = np.diagonal(pooled) / (1 - np.diagonal(pooled))
    right = 1 / (1 + 1 / (odds * np.exp(rng.normal(0, SHRINKAGE.skill_variance**0.5, (400, 1)))))
    means = pooled * ((1 - right) * (1 + odds))[:, None, :]
    means[:, range(6), range(6)] = right
    samples = np.stack([rng.gamma(spread * means[:, :, k] + 1e-9) for k in range(6)], axis=-1)
    samples /= samples.sum(axis=1, keepdims=True)
    labels = rng.multinomial(50, samples.transpose(0, 2, 1)).transpose(0, 2, 1).astype(float)
    found = update_crowd_model(labels.reshape(-1, 6), np.ones(6), AnnotatorModel())
    for _ in range(150):
        found = update_crowd_model(
            labels.reshape(-1, 6), np.ones(6), AnnotatorModel(), found.pseudo_count
        )
    assert found.pseudo_count == pytest.approx(spread, rel=0.15)
    pseudo = found.mass.sum(axis=1) - labels.sum(axis=1)
    np.testing.assert_allclose(pseudo, found.pseudo_count)


def test_update_crowd_model__equal_workers_meet_the_limit():
    same = np.broadcast_to([[0.8, 0.3], [0.2, 0.7]], (50, 2, 2))
    pseudo_count = 4.0
    for _ in range(200):
        found = update_crowd_model(
            expect_labels(same, 100), np.ones(2), AnnotatorModel(), pseudo_count
        )
        pseudo_count = found.pseudo_count
    assert 60 < pseudo_count <= SHRINKAGE.most_pseudo_count


def test_update_crowd_model__one_coin_is_right_alike_and_wrong_alike():
    mass = np.array([[8.0, 1.0, 0.0], [2.0, 3.0, 1.0], [0.0, 0.0, 5.0]])
    found = update_crowd_model(mass, np.ones(3), AnnotatorModel(pseudo_count=0.0, one_coin=True))
    right, wrong = 16 / 20, 4 / 20 / 2
    expected = np.full((3, 3), wrong) + (right - wrong) * np.eye(3)
    np.testing.assert_allclose(found.confusion[0], expected)


def test_update_crowd_model__balanced_classes_have_equal_prior():
    found = update_crowd_model(np.ones((2, 2)), np.array([9.0, 1.0]), AnnotatorModel(evenness=1.0))
    assert found.prior.tolist() == [0.5, 0.5]


def test_update_crowd_model__one_class_is_certain():
    found = update_crowd_model(np.array([[3.0], [0.0]]), np.array([3.0]), AnnotatorModel())
    assert found.prior.tolist() == [1.0]
    np.testing.assert_allclose(found.confusion, 1.0)
    assert np.isfinite(np.concatenate([part.ravel() for part in found.take_logs()])).all()


def share_evenly(one):
    """Labels of one worker, or of all, as right and wrong alone."""
    n_classes = len(one)
    right = np.trace(one)
    even = np.full_like(one, (one.sum() - right) / max(n_classes * (n_classes - 1), 1))
    np.fill_diagonal(even, right / n_classes)
    return even


def update_plainly(labels, pseudo_count, one_coin):
    """Parameters of the Dirichlet distributions and the pseudo-count, a worker at a time, as the formulas have it."""
    n_classes, n_states = labels.shape[1:]
    named = np.tile(np.eye(n_classes, dtype=bool), n_states // n_classes)
    total = labels.sum(axis=0) + SHRINKAGE.pooled_everywhere + SHRINKAGE.pooled_right * named
    if one_coin:
        labels, total = np.stack([share_evenly(one) for one in labels]), share_evenly(total)
    pooled = total / total.sum(axis=0)
    right = pooled.T[named.T]
    listed = []
    for one in labels:
        if n_classes == 1:
            listed.append(pooled)
            continue
        worth = (1 + pseudo_count) / (one.sum(axis=0) + pseudo_count)
        odds, skill = np.log(right / (pooled.sum(axis=0) - right)), 0.0
        for _ in range(SHRINKAGE.skill_steps):
            expected = expit(odds + skill)
            slope = (worth * (one.T[named.T] - one.sum(axis=0) * expected)).sum()
            bend = (worth * one.sum(axis=0) * expected * (1 - expected)).sum()
            step = (slope - skill / SHRINKAGE.skill_variance) / (
                bend + 1 / SHRINKAGE.skill_variance
            )
            skill += np.clip(step, -1, 1)
        mean = pooled / (pooled.sum(axis=0) - right) * expit(-odds - skill)
        listed.append(np.where(named, expit(odds + skill), mean))
    means = np.stack(listed)
    n_classes = labels.shape[1]
    for state in range(n_classes, labels.shape[2]):
        first = state % n_classes
        column = labels[:, :, first] + pseudo_count * means[:, :, first]
        column = (column / column.sum(axis=1, keepdims=True)) ** SECOND_SUBCLASS_POWER
        means[:, :, state] = column / column.sum(axis=1, keepdims=True)
    for _ in range(SHRINKAGE.pseudo_count_steps):
        gained = (
            means * (digamma(labels + pseudo_count * means) - digamma(pseudo_count * means))
        ).sum()
        spent = (digamma(labels.sum(axis=1) + pseudo_count) - digamma(pseudo_count)).sum()
        pseudo_count = np.clip(
            (pseudo_count * gained + 1) / (spent + 1 / SHRINKAGE.first_pseudo_count),
            SHRINKAGE.least_pseudo_count,
            SHRINKAGE.most_pseudo_count,
        )
    return labels + pseudo_count * means, pseudo_count


@pytest.mark.parametrize(
    "annotator_model",
    [AnnotatorModel(), AnnotatorModel(one_coin=True), AnnotatorModel(n_subclasses=2)],
)
@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 2), (30, 2), (200, 3), (17, 12)])
def test_update_crowd_model__is_the_plain_update(shape, annotator_model):
    n_workers, n_classes = shape
    n_states = annotator_model.n_subclasses * n_classes
    rng = np.random.default_rng(n_workers)
    labels = rng.gamma(0.3, 20.0, (n_workers, n_classes, n_states))
    named = np.tile(np.eye(n_classes), annotator_model.n_subclasses)
    labels += rng.gamma(0.5, 40.0, (n_workers, 1, 1)) * named
    # without labels at all, or of one class
    labels[1:2] = 0.0
    labels[2:3, :, 1:] = 0.0
    mass, pseudo_count = update_plainly(labels, 2.5, annotator_model.one_coin)
    found = update_crowd_model(
        labels.reshape(-1, n_states), np.ones(n_states), annotator_model, 2.5
    )
    assert found.pseudo_count == pytest.approx(pseudo_count, rel=1e-12)
    np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
    expected = digamma(mass) - digamma(mass.sum(axis=1, keepdims=True))
    weights = found.take_logs()[1].reshape(mass.shape)
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-12)


def test_crowd_model__classes_are_the_mean_of_their_subclasses():
    # one worker who is right on the many easy tasks of the first class, and guesses on the others
    mass = np.array([[[90.0, 0.0, 5.0, 5.0], [0.0, 50.0, 5.0, 5.0]]])
    found = CrowdModel(np.array([9.0, 5.0, 1.0, 5.0]), mass, 1.0, AnnotatorModel(n_subclasses=2))
    np.testing.assert_allclose(found.prior, [0.5, 0.5])
    np.testing.assert_allclose(found.confusion, [[[0.95, 0.25], [0.05, 0.75]]])
    log_prior, weights = found.take_logs()
    np.testing.assert_allclose(np.exp(log_prior), [0.45, 0.25, 0.05, 0.25])
    assert weights.shape == (2, 4)


def test_update_crowd_model__no_class_has_more_of_a_second_subclass_than_all_have():
    rng = np.random.default_rng(0)
    found = update_crowd_model(
        rng.gamma(1.0, 9.0, (12, 6)),
        np.array([50.0, 20.0, 5.0, 1.0, 10.0, 15.0]),
        AnnotatorModel(n_subclasses=2),
    )
    by_subclass = np.exp(found.take_logs()[0]).reshape(2, 3)
    np.testing.assert_allclose(by_subclass.sum(axis=0), np.array([53.0, 32.0, 22.0]) / 107)
    shares = by_subclass[1] / by_subclass.sum(axis=0)
    # of all tasks 29 of 107 are in the second; the first class has fewer there, and keeps them
    np.testing.assert_allclose(shares, [2 / 53, 29 / 107, 29 / 107])
    assert found.states.sum() == pytest.approx(107)


def test_split_subclasses__second_subclass_is_nearer_to_guesses():
    mass = np.array([[[9.0, 2.0], [1.0, 6.0]], [[1.0, 1.0], [1.0, 3.0]]])
    alike = CrowdModel(np.array([3.0, 1.0]), mass, 4.0, AnnotatorModel(), 0.9)
    found = split_subclasses(alike)
    assert (found.pseudo_count, found.vote_weight, found.annotator_model) == (
        4.0,
        0.9,
        AnnotatorModel(n_subclasses=2),
    )
    np.testing.assert_allclose(found.prior, alike.prior)
    np.testing.assert_array_equal(found.mass[:, :, :2], mass)
    np.testing.assert_allclose(found.mass.sum(axis=1), np.tile(mass.sum(axis=1), 2))
    odds = found.mass[:, 0] / found.mass[:, 1]
    np.testing.assert_allclose(odds[:, 2:], odds[:, :2] ** SECOND_SUBCLASS_POWER)


def test_update_crowd_model__votes_weigh_more_where_there_are_few_labels_of_a_worker():
    few, many = (n * np.tile([[0.45, 0.05], [0.05, 0.45]], (3, 1)) for n in (2.0, 200.0))
    # who has given no label does not count
    few[4:], many[4:] = 0.0, 0.0
    for mass, n_labels in ((few, 2), (many, 200)):
        found = update_crowd_model(mass, np.ones(2), AnnotatorModel())
        expected = SHRINKAGE.vote_weight / (1 + (n_labels / SHRINKAGE.halving_labels) ** 2)
        expected += SHRINKAGE.scarce_weight / n_labels
        assert found.vote_weight == pytest.approx(expected)
    assert update_crowd_model(few, np.ones(2), AnnotatorModel(votes=False)).vote_weight == 0
    nothing = update_crowd_model(np.zeros((6, 2)), np.ones(2), AnnotatorModel())
    assert nothing.vote_weight == 0


def test_update_crowd_model__votes_of_workers_who_do_not_look_at_tasks_weigh_nothing():
    looking, constant = np.array([[90.0, 10], [10, 90]]), np.array([[100.0, 100], [0, 0]])

    def weigh(n_constant, **options):
        mass = np.concatenate([looking] * (10 - n_constant) + [constant] * n_constant)
        return update_crowd_model(mass, np.ones(2), AnnotatorModel(**options)).vote_weight

    assert weigh(0) > weigh(1) > weigh(2) > 0
    assert weigh(4) == 0
    # what cannot be the matrix of a worker of one label needs the votes
    assert weigh(4, one_coin=True) == weigh(0, one_coin=True) > 0


def test_update_crowd_model__refuses_what_does_not_fit():
    with pytest.raises(SchemaError, match=r"level_mass has shape \(3, 2\)"):
        update_crowd_model(np.ones((3, 2)), np.ones(2), AnnotatorModel())
    with pytest.raises(SchemaError, match="state_mass has 3 states; 2 subclasses of every class"):
        update_crowd_model(np.ones((3, 3)), np.ones(3), AnnotatorModel(n_subclasses=2))
    with pytest.raises(pmf.PmfError, match="pseudo_count is -1"):
        AnnotatorModel(pseudo_count=-1.0)
    with pytest.raises(pmf.PmfError, match="n_subclasses is 3"):
        AnnotatorModel(n_subclasses=3)
    for other in ({"one_coin": True}, {"pseudo_count": 0.0}):
        with pytest.raises(pmf.PmfError, match="n_subclasses is 2, with pseudo_count"):
            AnnotatorModel(n_subclasses=2, **other)
