import numpy as np
import pytest

from pmflib.apps.crowd import count_votes
from pmflib.apps.crowd.e_step import (
    MOST_VOTES,
    LogWeights,
    add_votes,
    evaluate_blocks,
    score_tasks,
    share_votes,
    weigh_votes,
)
from pmflib.base import SparseBlock
from pmflib.model import em_statistics

# three tasks of three workers and two classes: 0 0 1, nothing, 1
BLOCK = SparseBlock(np.array([0, 3, 3, 4]), np.array([0, 2, 5, 1], np.int32))


def draw_block(rng, n_rows, n_workers, n_classes, most):
    """Tasks with up to so many labels, some without any."""
    lengths = rng.integers(0, most + 1, n_rows)
    rows = [
        np.sort(rng.choice(n_workers, n, replace=False)) * n_classes
        + rng.integers(n_classes, size=n)
        for n in lengths
    ]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return SparseBlock(indptr, np.concatenate(rows).astype(np.int32))


def add_levels(block, n_workers, n_classes):
    """Tasks with their votes as levels of their own behind the labels: the slow way, by the book."""
    offsets = np.arange(n_workers + 1) * n_classes
    offsets = np.append(offsets, offsets[-1] + np.arange(1, n_classes + 1) * MOST_VOTES)
    rows = []
    for s, votes in enumerate(np.minimum(count_votes(block, n_classes), MOST_VOTES)):
        held = offsets[n_workers:-1] + votes - 1
        rows.append([*block.indices[block.indptr[s] : block.indptr[s + 1]], *held[votes > 0]])
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return SparseBlock(indptr, np.concatenate(rows).astype(np.int32)), offsets


def weigh_levels(gains, n_classes, n_subclasses):
    weights = np.zeros((n_classes, MOST_VOTES, n_subclasses, n_classes))
    for one in range(n_classes):
        weights[one, :, :, one] = gains[1:, None]
    return weights.reshape(-1, n_subclasses * n_classes)


def test_add_votes__tasks_with_equal_votes_are_a_stratum():
    assert count_votes(BLOCK, 2).tolist() == [[2, 1], [0, 0], [0, 1]]
    voted = add_votes(BLOCK, 2)
    assert voted.labels is BLOCK
    assert voted.vote_counts.tolist() == [[0, 0], [0, 1], [2, 1]]
    assert voted.strata.tolist() == [2, 0, 1]
    assert voted.sizes.tolist() == [1, 1, 1]


@pytest.mark.parametrize("n_classes", [2, 3, 7, 30])
def test_add_votes__strata_are_the_distinct_vote_counts(n_classes):
    block = draw_block(np.random.default_rng(n_classes), 300, 20, n_classes, 6)
    voted = add_votes(block, n_classes)
    assert (voted.vote_counts[voted.strata] == count_votes(block, n_classes)).all()
    assert len(np.unique(voted.vote_counts, axis=0)) == len(voted.vote_counts)


def test_add_votes__no_tasks_and_more_votes_than_are_reported_apart():
    nothing = add_votes(SparseBlock(np.zeros(1, np.int64), np.empty(0, np.int32)), 3)
    assert nothing.vote_counts.shape == (0, 3)
    assert score_tasks(
        nothing, LogWeights(np.zeros(3), np.zeros((6, 3)), weigh_votes(0.75))
    ).shape == (0, 3)
    many = SparseBlock(np.array([0, 200]), np.arange(200, dtype=np.int32) * 2)
    assert add_votes(many, 2).vote_counts.tolist() == [[MOST_VOTES, 0]]


@pytest.mark.parametrize("n_subclasses", [1, 2])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("gains", [weigh_votes(0.75), share_votes(), weigh_votes(0.0)])
def test_evaluate_blocks__votes_are_evidence_as_levels_of_their_own_would_be(
    n_subclasses, n_classes, gains
):
    rng = np.random.default_rng(n_classes)
    n_workers = 150
    block = draw_block(rng, 200, n_workers, n_classes, 140)
    n_states = n_subclasses * n_classes
    log_prior = np.log(rng.dirichlet(np.ones(n_states)))
    weights = np.log(rng.dirichlet(np.ones(n_states), n_workers * n_classes))
    voted, log_weights = add_votes(block, n_classes), LogWeights(log_prior, weights, gains)
    found = evaluate_blocks([voted], log_weights)
    levelled, offsets = add_levels(block, n_workers, n_classes)
    every = np.concatenate([weights, weigh_levels(gains, n_classes, n_subclasses)])
    expected = em_statistics(levelled, offsets, log_prior, every)
    np.testing.assert_allclose(
        found.level_mass, expected.level_mass[: len(weights)], rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(found.state_mass, expected.state_mass, rtol=1e-12)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
    assert found.n_rows == expected.n_rows
    # states are the classes of one subclass after the other
    posterior = score_tasks(voted, log_weights)
    of_classes = found.state_mass.reshape(n_subclasses, n_classes).sum(axis=0)
    labelled = np.diff(block.indptr) > 0
    np.testing.assert_allclose(posterior[labelled].sum(axis=0), of_classes, rtol=1e-11)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)


def test_score_tasks__hopeless_labels_are_left_to_the_log_domain():
    # 200 labels that nobody could have given: products vanish, sums of logarithms do not
    n_workers = 200
    weights = np.full((n_workers * 2, 2), -700.0)
    weights[::2, 0] = -690.0
    weights[1::2, 1] = -690.0
    levels = np.arange(n_workers) * 2 + (np.arange(n_workers) >= 99)
    block = SparseBlock(np.array([0, n_workers]), levels.astype(np.int32))
    posterior = score_tasks(
        add_votes(block, 2), LogWeights(np.log([0.5, 0.5]), weights, weigh_votes(20.0))
    )
    logs = np.array([99, 101]) * 10.0 + 20.0 * np.log((np.array([99, 101]) + 0.5) / 0.5)
    expected = np.exp(logs - logs.max())
    np.testing.assert_allclose(posterior[0], expected / expected.sum(), rtol=1e-9)


def test_score_tasks__posterior_of_votes_is_their_share():
    posterior = score_tasks(add_votes(BLOCK, 2), LogWeights.from_votes(3, 2))
    np.testing.assert_allclose(posterior, [[2 / 3, 1 / 3], [0.5, 0.5], [0.0, 1.0]], atol=1e-12)


def test_weigh_votes__is_a_power_of_the_share():
    prior = np.array([0.3, 0.7])
    posterior = score_tasks(
        add_votes(BLOCK, 2), LogWeights(np.log(prior), np.zeros((6, 2)), weigh_votes(0.75))
    )
    expected = prior * ([[2.5, 1.5], [0.5, 0.5], [0.5, 1.5]] / np.array([4, 1, 2])[:, None]) ** 0.75
    np.testing.assert_allclose(posterior, expected / expected.sum(axis=1, keepdims=True))
