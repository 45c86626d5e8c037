import numpy as np

from pmflib.blocks import SparseBlock
from pmflib.crowd.passes import score_items, score_votes
from pmflib.crowd.votes import add_votes, extend_offsets, tally_votes, weigh_votes

# three tasks of three workers and two classes: 0 0 1, nothing, 1
BLOCK = SparseBlock(np.array([0, 3, 3, 4]), np.array([0, 2, 5, 1], np.int32))


def test_add_votes__levels_stand_behind_the_answers():
    assert tally_votes(BLOCK, 2).tolist() == [[2, 1], [0, 0], [0, 1]]
    voted = add_votes(BLOCK, 3, 2)
    assert extend_offsets(3, 2).tolist() == [0, 2, 4, 6, 9, 12]
    assert voted.indptr.tolist() == [0, 5, 5, 7]
    assert voted.indices.tolist() == [0, 2, 5, 7, 9, 1, 9]


def test_score_votes__posterior_is_the_share():
    posterior = score_votes(add_votes(BLOCK, 3, 2), 3, 2)
    np.testing.assert_allclose(posterior, [[2 / 3, 1 / 3], [0.5, 0.5], [0, 1]], atol=1e-12)


def test_weigh_votes__is_a_power_of_the_smoothed_share():
    weights = np.concatenate([np.zeros((6, 2)), weigh_votes(3, 2, 0.75)])
    prior = np.array([0.3, 0.7])
    posterior = score_items(add_votes(BLOCK, 3, 2), 3, np.log(prior), weights)
    expected = prior * ([[2.5, 1.5], [0.5, 0.5], [0.5, 1.5]] / np.array([4, 1, 2])[:, None]) ** 0.75
    np.testing.assert_allclose(posterior, expected / expected.sum(axis=1, keepdims=True))
