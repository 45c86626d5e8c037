"""What a label log says of itself."""

import numpy as np
import pytest

from pmflib.blocks import SparseBlock
from pmflib.crowd.label_tally import LabelTally

# Krippendorff (2011), "Computing Krippendorff's alpha-reliability", section C: 12 units, four observers, missing data
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]


def make_labels(given: list[list[int]], n_classes: int) -> SparseBlock:
    """Labels of workers (rows) for tasks (columns), from 1; 0 is none."""
    table = np.array(given).T
    tasks, workers = np.nonzero(table)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(tasks, minlength=len(table)))])
    levels = workers * n_classes + table[tasks, workers] - 1
    return SparseBlock(indptr.astype(np.int64), levels.astype(np.int32))


def tally(given: list[list[int]], n_classes: int) -> LabelTally:
    labels = make_labels(given, n_classes)
    posterior = np.full((labels.n_rows, n_classes), 1 / n_classes)
    return LabelTally.from_labels(labels, posterior, len(given))


def test_alpha__the_published_example() -> None:
    assert tally(OBSERVERS, 5).alpha == pytest.approx(0.743, abs=5e-4)


def test_alpha__agreement_chance_and_nothing() -> None:
    assert tally([[1, 2, 1, 2], [1, 2, 1, 2]], 2).alpha == 1
    rng = np.random.default_rng(0)
    drawn = tally(rng.integers(1, 4, (3, 20_000)).tolist(), 3).alpha
    assert drawn == pytest.approx(0, abs=0.02)
    assert tally([[1, 0], [0, 2]], 2).alpha is None
    assert tally([[1, 1], [1, 1]], 2).alpha is None
    assert LabelTally.zero(2, 3).alpha is None
    assert LabelTally.zero(2, 3).majority_agreement is None


def test_merge__parts_add_up() -> None:
    whole = tally(OBSERVERS, 5)
    table = np.array(OBSERVERS)
    merged = LabelTally.merge([tally(table[:, :5].tolist(), 5), tally(table[:, 5:].tolist(), 5)])
    np.testing.assert_allclose(merged.coincidences, whole.coincidences)
    np.testing.assert_array_equal(merged.given, whole.given)
    assert merged.n_labelled == 12
    assert merged.alpha == pytest.approx(whole.alpha)


def test_majority_agreement__of_equals_any() -> None:
    labels = make_labels([[1, 1, 1, 0], [1, 2, 2, 0], [2, 0, 2, 0]], 2)
    posterior = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
    found = LabelTally.from_labels(labels, posterior, 3)
    assert (found.n_labelled, found.n_agreeing) == (3, 2)
    assert found.majority_agreement == pytest.approx(2 / 3)
    np.testing.assert_allclose(found.right, [0.9 + 0.1 + 0.8, 0.9 + 0.9 + 0.2, 0.1 + 0.2])


def test_find_suspicious__contrary_and_constant_workers() -> None:
    truth = np.tile([0, 1], 20)
    given = [truth + 1, 2 - truth, np.ones(40, int), np.where(np.arange(40) < 5, 2 - truth, 0)]
    labels = make_labels([list(each) for each in given], 2)
    posterior = np.where(truth[:, None] == [0, 1], 0.98, 0.02)
    prior = np.array([0.5, 0.5])
    found = LabelTally.from_labels(labels, posterior, 4).find_suspicious(
        list("abcd"), ["no", "yes"], prior
    )
    assert [(each["worker"], each["reason"], each["n_labels"]) for each in found] == [
        ("b", "worse than chance", 40),
        ("c", "always 'no'", 40),
    ]
    assert found[0]["right"] == pytest.approx(0.02)
    assert found[0]["by_chance"] == pytest.approx(0.5)
