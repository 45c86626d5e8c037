import numpy as np
import pytest

import pmflib as pmf
from benchmarks.crowd.scenarios import draw_crowd
from pmflib.apps.crowd import aggregate
from pmflib.apps.crowd.label_log import check_class_order
from pmflib.base import SchemaError


@pytest.mark.parametrize("classes", [[1, 2, 10], ["-1", "0", "0.5"], ["7"]])
def test_check_class_order__numbers_have_one(classes):
    check_class_order(classes, given=False)


@pytest.mark.parametrize("classes", [["bad", "good"], ["1", "10", "2"], ["many"]])
def test_check_class_order__others_need_to_be_given_one(classes):
    check_class_order(classes, given=True)
    with pytest.raises(SchemaError, match="give classes from the lowest to the highest"):
        check_class_order(classes, given=False)


def test_aggregate__refuses_an_order_that_nothing_uses():
    table = {"task": [1, 1], "worker": ["a", "b"], "label": [1, 2]}
    for method in ("dawid_skene", "one_coin", "robust", "majority", "mv_em"):
        with pytest.raises(pmf.PmfError, match=f"method is '{method}'.*ordinal"):
            aggregate(table, method, ordinal=True)
    with pytest.raises(SchemaError, match="ordinal"):
        aggregate(table | {"label": ["low", "high"]}, ordinal=True)


def draw_gains(scenario, sizes, seeds):
    """By how much classes expected in order are nearer to the truth, and labels right more often; (n_seeds, 2)."""
    n_tasks, n_workers, n_classes, n_labels = sizes
    gains = []
    for seed in seeds:
        rng = np.random.default_rng([seed, *scenario.encode()])
        crowd = draw_crowd(n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario)
        found = []
        for ordinal in (False, True):
            result = aggregate(
                crowd.log, classes=range(n_classes), ordinal=ordinal, max_passes=1000
            )
            truth = crowd.truth[result.log.tasks.to_numpy()]
            distance = np.abs(result.posterior @ np.arange(n_classes) - truth).mean()
            found.append((distance, (result.codes != truth).mean()))
        gains.append(np.array(found[0]) - np.array(found[1]))
    return np.array(gains)


# with five classes, the labels of rare ones are mostly mistakes
@pytest.mark.filterwarnings("ignore::pmflib.base.errors.IdentificationWarning")
@pytest.mark.parametrize(
    ("scenario", "sizes", "n_logs"),
    [("order", (2000, 20, 5, 5), 4), ("plain", (400, 60, 5, 4), 8)],
)
def test_aggregate__order_does_no_harm_where_it_is_of_no_use(scenario, sizes, n_logs):
    gains = draw_gains(scenario, sizes, range(n_logs))
    # means have errors of .001 at most: a harm of the limit would be five of them
    assert (gains.mean(axis=0) > [-0.005, -0.005]).all()
