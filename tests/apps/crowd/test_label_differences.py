import pyarrow as pa

from pmflib_tasks.crowd.label_differences import compare_labels

WORKERS = pa.table(
    {"worker": ["u"], "skill": [0.5], "standard_error": [0.1], "n_labels": pa.array([3])}
)


def label(*labels):
    names = [f"t{number}" for number in range(len(labels))]
    return pa.table({"task": names, "label": labels, "confidence": [0.9] * len(labels)}), WORKERS


def test_compare_labels__another_spelling_is_no_change():
    found = compare_labels(label("dog", "cat", "owl"), label("Dog", "cat", "cat"), 5)
    assert (found.n_same, found.n_changed) == (2, 1)
    assert {each.label: each.share_first for each in found.classes}["Dog"] == 1 / 3


def test_compare_labels__classes_that_are_spelled_alike_stay_apart():
    found = compare_labels(label("dog", "Dog"), label("Dog", "dog"), 5)
    assert (found.n_same, found.n_changed) == (0, 2)
