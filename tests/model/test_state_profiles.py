import numpy as np

from pmflib.model import profile_states

OFFSETS = np.array([0, 2, 5])
PRIOR = np.array([0.2, 0.5, 0.3])
FACTORS = np.array(
    [
        [0.9, 0.5, 0.5],
        [0.1, 0.5, 0.5],
        [0.2, 0.2, 0.2],
        [0.7, 0.7, 0.1],
        [0.1, 0.1, 0.7],
    ]
)


def test_profile_states__largest_first_with_its_levels():
    found = profile_states(PRIOR, FACTORS, OFFSETS)
    assert found.states.tolist() == [1, 2, 0]
    assert found.sizes.tolist() == [0.5, 0.3, 0.2]
    # state 2 differs by the last level and a little by level 1, state 0 by the first and by level 3
    assert found.levels[1].tolist() == [4, 1, -1, -1, -1]
    assert found.levels[2].tolist()[:2] == [0, 3]
    assert found.variables[2].tolist()[:2] == [0, 1]
    marginal = FACTORS @ PRIOR
    np.testing.assert_allclose(found.lifts[1, 0], 0.7 / marginal[4])
    np.testing.assert_allclose(found.marginals[1, 0], marginal[4])
    assert found.probabilities[1, 0] == 0.7


def test_profile_states__a_rare_level_is_behind_a_frequent_one():
    # level 1 has lift 2 and is hardly ever seen; level 4 has lift 1.75 and is in nine of ten
    factors = np.array([[0.996, 0.999], [0.004, 0.001], [0.1, 0.9], [0.9, 0.1]])
    found = profile_states(np.array([0.5, 0.5]), factors, np.array([0, 2, 4]), n_shown=2)
    assert found.levels[0].tolist() == [3, 1]
    assert found.lifts[0, 1] > 1.5


def test_profile_states__one_state_is_as_everybody_is():
    found = profile_states(np.ones(1), np.array([[0.3], [0.7]]), np.array([0, 2]))
    assert found.levels.tolist() == [[-1, -1]]
    assert np.isnan(found.lifts).all()
    assert found.divergences.tolist() == [0.0]


def test_profile_states__empty_state_and_impossible_level():
    factors = np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 1.0]])
    found = profile_states(np.array([1.0, 0.0]), factors, np.array([0, 2, 3]))
    # nobody has level 1: the empty state's claim to it is no finding
    assert (found.levels < 0).all()
    assert np.isfinite(found.divergences).all()


def test_profile_states__agrees_with_plain_loops():
    rng = np.random.default_rng(5)
    offsets = np.array([0, 3, 4, 9, 11])
    factors = np.concatenate([rng.dirichlet(np.ones(c), 4).T for c in np.diff(offsets)])
    prior = rng.dirichlet(np.ones(4))
    found = profile_states(prior, factors, offsets, n_shown=99, min_lift=1.0)
    for row, state in enumerate(found.states):
        weights = {}
        for level in range(len(factors)):
            p, q = factors[level, state], sum(factors[level] * prior)
            if p / q >= 1:
                weights[level] = p * np.log(p / q)
        expected = sorted(weights, key=lambda level: -weights[level])
        assert [level for level in found.levels[row] if level >= 0] == expected
