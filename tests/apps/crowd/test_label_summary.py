"""What is said of a label log."""

from dataclasses import replace

from pmflib.apps.crowd.stored.summaries import LabelSummary
from pmflib_tasks.crowd.label_sections import describe_agreement

SUMMARY = LabelSummary(7, 20, 3, ["cat", "dog"], [0.6, 0.4], 0.5, 9, converged=True)


def test_describe_agreement__names_tasks_and_workers():
    task = {"task": "t7", "label": "cat", "confidence": 0.51, "n_labels": 2, "worker": "w1"}
    worker = {"worker": "w3", "reason": "always 'cat'", "n_labels": 40}
    facts = SUMMARY.to_json() | {"alpha": 0.61234, "majority_agreement": 0.985, "power": 0.357}
    facts |= {"left_out_power": 0.3, "ask_again": [task]}
    facts |= {"suspicious_workers": [worker | {"right": 0.5, "by_chance": 0.5}]}
    found = LabelSummary.find(facts)
    assert found is not None
    text = "\n".join(describe_agreement(found))
    for shown in ("0.612", "98.5 %", "0.36", "t7 by w1 (cat 51 %, 2 labels)", "w3: always 'cat'"):
        assert shown in text
    alone = replace(SUMMARY, labels=7, compared_labels=0)
    assert "0.612" not in next(describe_agreement(alone))


def test_describe_agreement__names_classes_that_the_fit_hardly_uses():
    found = replace(SUMMARY, labels=70, prior=[0.99, 0.01], unused_classes=["dog"])
    assert "dog" in "\n".join(describe_agreement(found))


def test_describe_agreement__says_how_sure_one_may_be():
    found = replace(SUMMARY, confidence=0.9)
    assert "90 % of the labels are expected to be right" in "\n".join(describe_agreement(found))
    # 75 known labels halve the error that other logs have had
    (more,) = (each for each in describe_agreement(replace(found, known=75)) if "take" in each)
    (less,) = (each for each in describe_agreement(found) if "take" in each)
    assert "take 9 points" in less
    assert "take 4 points" in more


def test_label_summary__is_read_back():
    found = replace(SUMMARY, method="ds", known=2)
    assert LabelSummary.find(found.to_json()) == found
    assert LabelSummary.find({"rows": {}}) is None
