"""What a run says of its target."""

from dataclasses import replace

import numpy as np

import pmflib as pmf
from pmflib_tasks.target.target_report import LOGISTIC, MAJORITY, MODEL, compare_predictions
from pmflib_tasks.target.target_sections import describe_target


def test_describe_target__scores_differences_confusion_and_calibration():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 80)
    probabilities = rng.dirichlet([1, 1], 80)
    variable = pmf.Variable("[class]", ("no", "yes"))
    report = compare_predictions(
        variable, truth, {MODEL: probabilities, MAJORITY: np.full((80, 2), 0.5)}
    )
    report = replace(report, left_out={LOGISTIC: "too many"})
    shown_as = list(describe_target({"scores": {"target": report.to_json()}}))
    cells = [str(each.table) for each in shown_as]
    text = " ".join([*cells, *(line for each in shown_as for line in each.sentences)])
    for shown in ("[class]", "(80)", "log-loss (nats)", "mean probability", "too many"):
        assert shown in text
