import numpy as np
import pytest

from pmflib.apps.crowd import WorkerPairs
from pmflib.apps.crowd.pairs.rotation_draws import draw_roots, measure_noise


def make_pairs(n_workers, n_classes, rng, noise=0.0):
    """Pairs of drawn workers, and their root."""
    confusion = rng.dirichlet(np.ones(n_classes), (n_workers, n_classes)).transpose(0, 2, 1)
    factors = confusion * np.sqrt(rng.dirichlet(np.full(n_classes, 5.0)))
    first, second = np.triu_indices(n_workers, 1)
    blocks = factors[first] @ factors[second].transpose(0, 2, 1)
    blocks += rng.normal(0.0, noise, blocks.shape)
    pairs = WorkerPairs(first, second, blocks, np.ones(first.size, int), n_workers)
    return pairs, factors.reshape(-1, n_classes)


def test_measure_noise__of_the_size_that_least_squares_would_have():
    rng = np.random.default_rng(0)
    pairs, root = make_pairs(60, 3, rng, noise=0.01)
    covariance = measure_noise(root, pairs)
    gram = root.T @ root
    expected = 0.01**2 * np.linalg.inv(gram)
    np.testing.assert_allclose(covariance.mean(axis=0), expected, rtol=0.1)


def test_draw_roots__exact_pairs_leave_only_nonnegative_ones():
    rng = np.random.default_rng(1)
    pairs, root = make_pairs(20, 3, rng)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    draws = draw_roots(root @ rotation, measure_noise(root, pairs), root, 20, rng)
    assert all((draw >= 0).all() for draw in draws)
    for draw in draws:
        np.testing.assert_allclose(draw @ draw.T, root @ root.T, atol=1e-4)
    # they differ, and the truth is among them
    spread = np.std(draws, axis=0).max()
    assert spread > 1e-3
    assert np.abs(np.mean(draws, axis=0) - root).max() < 5 * spread


@pytest.mark.parametrize(("n_workers", "n_classes"), [(3, 1), (1, 2), (4, 2)])
def test_draw_roots__one_class_nobody_met_and_no_freedom(n_workers, n_classes):
    pairs, root = make_pairs(n_workers, n_classes, np.random.default_rng(2))
    for each in (root, np.zeros_like(root)):
        noise = measure_noise(each, pairs)
        draws = draw_roots(each, noise, each, 3, np.random.default_rng(0))
        assert len(draws) == 3
        assert np.isfinite(draws).all()


def test_draw_roots__same_seed_same_bits():
    pairs, root = make_pairs(8, 3, np.random.default_rng(3), noise=0.01)
    noise = measure_noise(root, pairs)
    one, other = (draw_roots(root, noise, root, 5, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
