"""What is said of a label log."""

from flows.label_summary import describe_agreement


def test_describe_agreement__names_tasks_and_workers():
    facts = {
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
    lines = list(describe_agreement(facts))
    assert lines[0].endswith(": 0.612")
    assert lines[1].endswith(": 98.5 %")
    assert lines[2].startswith("confidence: a label counts for 0.36 of one")
    assert lines[3] == "ask again: t7 by w1 (cat 51 %, 2 labels)"
    assert lines[4:] == [
        "suspicious workers: 1",
        "  w3: always 'cat'; 50 % of 40 labels right, 50 % by chance",
    ]
