"""What a label log says of itself."""

import numpy as np
import pytest

from pmflib.apps.crowd.label_counts import LabelCounts, list_unused
from pmflib.base import SparseBlock

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


def count_labels(given: list[list[int]], n_classes: int) -> LabelCounts:
    labels = make_labels(given, n_classes)
    posterior = np.full((labels.n_rows, n_classes), 1 / n_classes)
    return LabelCounts.from_labels(labels, posterior, posterior, len(given))


def test_alpha__the_published_example() -> None:
    assert count_labels(OBSERVERS, 5).alpha == pytest.approx(0.743, abs=5e-4)


def test_alpha__agreement_chance_and_nothing() -> None:
    assert count_labels([[1, 2, 1, 2], [1, 2, 1, 2]], 2).alpha == 1
    rng = np.random.default_rng(0)
    drawn = count_labels(rng.integers(1, 4, (3, 20_000)).tolist(), 3).alpha
    assert drawn == pytest.approx(0, abs=0.02)
    assert count_labels([[1, 0], [0, 2]], 2).alpha is None
    assert count_labels([[1, 1], [1, 1]], 2).alpha is None
    assert LabelCounts.zero(2, 3).alpha is None
    assert LabelCounts.zero(2, 3).majority_agreement is None


def test_merge__parts_add_up() -> None:
    whole = count_labels(OBSERVERS, 5)
    table = np.array(OBSERVERS)
    merged = LabelCounts.merge(
        [count_labels(table[:, :5].tolist(), 5), count_labels(table[:, 5:].tolist(), 5)]
    )
    np.testing.assert_allclose(merged.coincidences, whole.coincidences)
    np.testing.assert_array_equal(merged.given, whole.given)
    assert merged.n_labelled == 12
    assert merged.alpha == pytest.approx(whole.alpha)


def test_majority_agreement__of_equals_any() -> None:
    labels = make_labels([[1, 1, 1, 0], [1, 2, 2, 0], [2, 0, 2, 0]], 2)
    posterior = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
    found = LabelCounts.from_labels(labels, posterior, posterior, 3)
    assert (found.n_labelled, found.n_agreeing) == (3, 2)
    assert found.majority_agreement == pytest.approx(2 / 3)
    np.testing.assert_allclose(found.right, [0.9 + 0.1 + 0.8, 0.9 + 0.9 + 0.2, 0.1 + 0.2])
    assert found.confidence == pytest.approx(0.9 + 0.9 + 0.8 + 0.5)


def test_list_unused__classes_with_labels_but_hardly_a_task():
    n_labels = np.array([500, 300, 190, 10])
    assert list_unused(n_labels, np.array([0.88, 0.06, 0.06, 0.0])) == [1]
    assert list_unused(n_labels, np.array([0.5, 0.3, 0.19, 0.01])) == []
    assert list_unused(np.zeros(2, int), np.array([0.5, 0.5])) == []
