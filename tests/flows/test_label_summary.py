"""What is said of a label log."""

from pmflib.crowd.pipeline.summaries import LabelSummary
from pmflib_flows.run_tables import describe_agreement


def test_describe_agreement__names_tasks_and_workers():
    facts = {
        **{"tasks": 7, "labels": 20, "workers": 3, "classes": ["cat", "dog"], "prior": [0.6, 0.4]},
        **{"pseudo_count": 0.5, "passes": 9, "converged": True, "left_out_power": 0.3},
        "alpha": 0.61234,
        "majority_agreement": 0.985,
        "power": 0.357,
        "ask_again": [
            {"task": "t7", "label": "cat", "confidence": 0.51, "n_labels": 2, "worker": "w1"}
        ],
        "suspicious_workers": [
            {
                "worker": "w3",
                "reason": "always 'cat'",
                "n_labels": 40,
                "right": 0.5,
                "by_chance": 0.5,
            }
        ],
    }
    found = LabelSummary.find(facts)
    assert found is not None
    lines = list(describe_agreement(found))
    assert lines[0].endswith(": 0.612")
    assert lines[1].endswith(": 98.5 %")
    assert lines[2].startswith("confidence: a label counts for 0.36 of one")
    assert lines[3] == "ask again: t7 by w1 (cat 51 %, 2 labels)"
    assert lines[4:] == [
        "suspicious workers: 1",
        "  w3: always 'cat'; 50 % of 40 labels right, 50 % by chance",
    ]


def test_describe_agreement__says_that_nothing_is_seen_of_workers_without_two_labels_of_a_task():
    found = LabelSummary(7, 7, 3, ["a", "b"], [0.5, 0.5], 0.5, 9, converged=True, compared_labels=0)
    assert next(describe_agreement(found)).startswith("no task has two labels")


def test_describe_agreement__names_classes_that_the_fit_hardly_uses():
    found = LabelSummary(
        7, 70, 3, ["a", "b"], [0.99, 0.01], 0.5, 9, converged=True, unused_classes=["b"]
    )
    assert "hardly uses the classes b" in next(describe_agreement(found))


def test_label_summary__keys_that_the_manifest_has():
    found = LabelSummary(7, 20, 3, ["cat"], [1.0], 0.5, 9, converged=True, method="ds", known=2)
    assert list(found.to_json()) == [
        *("method", "known", "tasks", "labels", "workers", "classes", "prior", "pseudo_count"),
        *(
            "passes",
            "converged",
            "subclasses",
            "power",
            "left_out_power",
            "shared_error",
            "classifier_power",
            "alpha",
        ),
        *("compared_labels", "majority_agreement", "unused_classes"),
        *("ask_again", "suspicious_workers"),
    ]
    assert LabelSummary.find(found.to_json()) == found
    assert LabelSummary.find({"rows": {}}) is None
