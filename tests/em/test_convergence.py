import math

import pytest

from pmflib.em.family import count_stale, estimate_gap, has_converged


def test_estimate_gap__is_exact_for_a_geometric_sequence():
    losses = [2.0 + 0.9**k for k in range(20)]
    assert estimate_gap(losses) == pytest.approx(0.9**19, rel=1e-9)
    # the last change is ten times smaller
    assert losses[-2] - losses[-1] < 0.12 * 0.9**19


@pytest.mark.parametrize(
    ("losses", "gap"),
    [([3.0], math.inf), ([3.0, 2.0], math.inf), ([3.0, 2.5, 1.5], math.inf), ([3, 2, 2], 0.0)],
)
def test_estimate_gap__short_growing_and_constant_sequences(losses, gap):
    assert estimate_gap(losses) == gap


@pytest.mark.parametrize(
    ("losses", "tol", "settled"),
    [
        ([5.0, 4.0, 4.0, 4.0], 0.0, True),
        ([5.0, 4.0], 1.0, False),
        # two passes gained little and the one before them much
        ([9.0, 5.0, 4.999, 4.998], 0.001, True),
        ([9.0, 5.0, 4.999, 4.99], 0.001, False),
    ],
)
def test_has_converged__gain_of_the_last_passes_together(losses, tol, settled):
    assert has_converged(losses, tol, 2) is settled


@pytest.mark.parametrize(
    ("held_out", "tol", "stale"),
    [([-9.0], 0.0, 0), ([-9, -8, -8], 0.0, 1), ([-9, -8, -7.99], 0.01, 1), ([-9, -8, -7], 0.01, 0)],
)
def test_count_stale__passes_since_the_last_rise(held_out, tol, stale):
    assert count_stale(held_out, tol) == stale
