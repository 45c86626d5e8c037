import numpy as np
import pytest

from pmflib.schema import make_bins


def make(values, bins):
    points, counts = np.unique(np.asarray(values, float), return_counts=True)
    return points, counts, make_bins(points, counts.astype(float), bins)


@pytest.mark.parametrize("bins", [2, 3, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_make_bins__no_bin_is_empty_and_means_are_those_of_the_bins(bins, seed):
    rng = np.random.default_rng(seed)
    values = np.where(
        rng.random(400) < 0.4, rng.integers(-2, 3, 400), rng.normal(0, 9, 400).round(1)
    )
    points, counts, found = make(values, bins)
    bin_of = np.searchsorted(found.edges, points, side="right")
    assert set(bin_of.tolist()) == set(range(len(found.labels)))
    for code, mean in enumerate(found.means):
        here = bin_of == code
        assert np.isclose(mean, np.average(points[here], weights=counts[here]))
    assert len(set(found.labels)) == len(found.labels) == len(found.edges) + 1


def test_make_bins__zero_inside_has_a_bin_that_no_other_whole_number_enters():
    values = [0] * 500 + list(range(-100, 0)) + list(range(7, 107))
    _, _, found = make(values, 6)
    position = found.edges.index(0.0)
    assert found.edges[position + 1] == 1.0
    assert found.alone == (0.0,)
    assert 5 <= len(found.labels) <= 8
