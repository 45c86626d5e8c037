import json
import math
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import PairAgreement, compare_pairs
from pmflib.store import list_dataset_blocks, read_block
from pmflib_tasks.config import EvaluateConfig
from pmflib_tasks.stages import choose_hidden
from pmflib_tasks.stages.evaluate import evaluate
from tests.pipelines import load_model, make_schema, store_of, summary_of
from tests.reference import conditional_pmf, joint_tensor, row_probability

SIZES = (3, 2, 4, 2)


def gather(config, stages, folds):
    """Codes of some folds, and which of their cells are hidden when the last one is scored."""
    store = store_of(config)
    offsets = make_schema(*SIZES).offsets
    codes, hidden = [np.empty((0, len(SIZES)), int)], [np.empty((0, len(SIZES)), bool)]
    for block in list_dataset_blocks(store, stages["dataset"], folds):
        own = read_block(block).to_codes(offsets)
        key = int(Path(block.path).parent.name[:12], 16) ^ config.seed
        rows = np.arange(block.start, block.stop)
        codes.append(own)
        hidden.append(choose_hidden(own, rows, config.evaluate.hide, key))
    return np.concatenate(codes), np.concatenate(hidden)


def score_by_hand(codes, hidden, tensor, singles):
    """Means over the hidden cells, a cell at a time."""
    keys = ("log_prob", "correct", "error", "variable", "base_log_prob", "base_correct")
    out = {key: [] for key in keys}
    for row, gone in zip(codes, hidden, strict=True):
        for j in np.flatnonzero(gone):
            probabilities = conditional_pmf(tensor, np.where(gone, -1, row), j)
            out["log_prob"].append(math.log(probabilities[row[j]]))
            out["correct"].append(probabilities.argmax() == row[j])
            out["error"].append(probabilities @ np.arange(SIZES[j]) - row[j])
            out["variable"].append(j)
            out["base_log_prob"].append(math.log(singles[j][row[j]]))
            out["base_correct"].append(singles[j].argmax() == row[j])
    return {key: np.array(values, float) for key, values in out.items()}


def test_evaluate__equals_a_loop_over_the_hidden_cells(fitted, workers):
    config, stages = fitted
    reference = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    found = summary_of(config, reference)
    store = store_of(config)
    model = load_model(config, stages["model"])
    counts = pmf.PairCounts.load(store.locate(stages["counts"]) / "pairs")
    assert PairAgreement.from_json(found["pairs"]) == compare_pairs(model, counts)
    tensor = joint_tensor(model.prior, model.factors, SIZES)
    codes, hidden = gather(config, stages, [3])
    train, _ = gather(config, stages, [0, 1])
    raised = [
        np.bincount(train[:, j][train[:, j] >= 0], minlength=n) + 0.5 for j, n in enumerate(SIZES)
    ]
    expected = score_by_hand(codes, hidden, tensor, [c / c.sum() for c in raised])
    assert (found["rows"], found["hidden_cells"]) == (len(codes), hidden.sum())
    assert hidden.sum() > 20
    assert found["log_prob_per_cell"] == pytest.approx(expected["log_prob"].mean())
    assert found["accuracy"] == pytest.approx(expected["correct"].mean())
    assert list(found["errors"]) == ["v0", "v1, v3", "v2"]
    for errors, scale in zip(found["errors"].values(), ([0], [1, 3], [2]), strict=True):
        own = expected["error"][np.isin(expected["variable"], scale)]
        assert errors["cells"] == own.size
        assert errors["rmse"] == pytest.approx(np.sqrt((own**2).mean()))
        assert errors["mae"] == pytest.approx(np.abs(own).mean())
    assert found["baseline_log_prob_per_cell"] == pytest.approx(expected["base_log_prob"].mean())
    assert found["baseline_accuracy"] == pytest.approx(expected["base_correct"].mean())
    likelihood = np.mean([math.log(row_probability(tensor, row)) for row in codes])
    assert found["log_likelihood_per_row"] == pytest.approx(likelihood)
    by_variable = json.loads((store.locate(reference) / "scores.json").read_text())["variables"]
    assert [by_variable[f"v{j}"]["cells"] for j in range(4)] == hidden.sum(axis=0).tolist()


def test_evaluate__second_call_scores_nothing(fitted, workers, monkeypatch):
    config, stages = fitted
    arguments = (config, stages["dataset"], stages["counts"], stages["model"], workers)
    first = evaluate.fn(*arguments)
    monkeypatch.setitem(evaluate.fn.__globals__, "run_blocks", None)
    assert evaluate.fn(*arguments) == first


def test_evaluate__no_test_samples(fitted, workers):
    config, stages = fitted
    bare = config.model_copy(update={"evaluate": EvaluateConfig(test_folds=0)})
    reference = evaluate.fn(bare, stages["dataset"], stages["counts"], stages["model"], workers)
    assert summary_of(config, reference)["hidden_cells"] == 0


@pytest.mark.needs("inference.target")
def test_evaluate__with_a_target_says_how_well_it_is_predicted(fitted, workers):
    config, stages = fitted
    aimed = config.model_copy(update={"em": config.em.model_copy(update={"target": "v2"})})
    arguments = (stages["dataset"], stages["counts"], stages["model"], workers)
    found = summary_of(config, evaluate.fn(aimed, *arguments))["target"]
    codes, _ = gather(config, stages, [3])
    assert found["rows"] == np.count_nonzero(codes[:, 2] >= 0)
    assert set(found["differences"]) == {
        "majority class",
        "naive Bayes",
        "logistic regression",
        "boosting",
    }
    assert "target" not in summary_of(config, evaluate.fn(aimed, *arguments, with_target=False))
