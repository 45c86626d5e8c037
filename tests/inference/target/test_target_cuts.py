import numpy as np
import pytest

from pmflib.inference.target.partition import cut_by_target, recut_variable
from pmflib.schema import Variable


def find_accepted(numbers, classes):
    """The best cut of numbers by a slow loop, and whether its description is accepted."""

    def entropy(some):
        shares = np.unique(some, return_counts=True)[1] / some.size
        return float(-(shares * np.log2(shares)).sum())

    best, n = None, classes.size
    for edge in np.unique(numbers)[1:]:
        sides = classes[numbers < edge], classes[numbers >= edge]
        after = sum(side.size * entropy(side) for side in sides) / n
        if best is None or after < best[0] - 1e-12:
            best = after, edge, sides
    after, edge, sides = best
    k, k_left, k_right = (np.unique(each).size for each in (classes, *sides))
    spread = k * entropy(classes) - k_left * entropy(sides[0]) - k_right * entropy(sides[1])
    cost = (np.log2(n - 1) + np.log2(3**k - 2) - spread) / n
    return edge, entropy(classes) - after > cost


@pytest.mark.parametrize("seed", range(20))
def test_cut_by_target__two_classes_or_three_equal_a_slow_loop(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 12, 80).astype(float)
    classes = rng.integers(0, 2 + seed % 2, 80)
    classes = np.where((numbers < 5) & (rng.random(80) < seed / 20), 0, classes)
    edge, is_accepted = find_accepted(numbers, classes)
    found = cut_by_target(numbers, classes)
    assert (edge in found) == is_accepted
    assert bool(found.size) == is_accepted


def test_cut_by_target__classes_of_a_middle_interval():
    numbers = np.arange(300.0)
    classes = ((numbers >= 100) & (numbers < 140)).astype(int)
    assert cut_by_target(numbers, classes).tolist() == [100.0, 140.0]


@pytest.mark.parametrize(
    ("numbers", "classes"), [([], []), ([1.0], [0]), ([2.0, 2.0], [0, 1]), ([1.0, 2.0], [0, 0])]
)
def test_cut_by_target__nothing_to_cut(numbers, classes):
    assert not cut_by_target(np.array(numbers), np.array(classes, int)).size


def test_recut_variable__values_are_means_of_the_bins():
    variable = Variable("age", ("[-inf, 3)", "[3, inf)"), (1.0, 5.0), (3.0,), missing=("", "NA"))
    cut = recut_variable(variable, np.array([1.0, 1.0, 4.0, 8.0, 9.0]), np.array([4.0, 9.0]))
    assert cut.levels == ("[-inf, 4)", "[4, 9)", "[9, inf)")
    assert cut.values == (1.0, 6.0, 9.0)
    assert cut.edges == (4.0, 9.0)
    assert cut.missing == ("", "NA")
