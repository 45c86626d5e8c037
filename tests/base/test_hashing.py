import numpy as np
import pytest

from pmflib.base import assign_folds, mix_hashes


def mix_one(key, seed):
    """splitmix64's finaliser in Python integers."""
    mask = 2**64 - 1
    z = (key + seed + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_mix_hashes__equals_the_published_finaliser(seed):
    keys = [0, 1, 2, 2**32, 2**63 - 1, -1]
    expected = [mix_one(key % 2**64, seed) for key in keys]
    assert mix_hashes(np.array(keys), seed).tolist() == expected


def test_mix_hashes__first_output_of_splitmix64():
    # the first number of the generator seeded with 0, as everybody prints it
    assert mix_hashes(np.array([0])).tolist() == [0xE220A8397B1DCDAF]


def test_assign_folds__is_even_for_sorted_keys():
    counts = np.bincount(assign_folds(np.arange(16_000), 16), minlength=16)
    # six standard deviations of a binomial count
    assert np.all(np.abs(counts - 1000) < 6 * np.sqrt(1000 * 15 / 16))


def test_assign_folds__one_fold_and_other_seed():
    keys = np.arange(64)
    assert not assign_folds(keys, 1).any()
    assert not np.array_equal(assign_folds(keys, 8), assign_folds(keys, 8, seed=1))
