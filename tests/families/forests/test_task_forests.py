import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import ConfigError, Progress, listen
from pmflib.families.forests import TreePMF
from pmflib.model import digest_model
from pmflib.store import Store
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine
from tests.pipelines import as_wide, load_model, make_schema, run_to_model, summary_of


def draw_chain(n_rows, *, seed=0):
    """Six variables: the last three are copies of the third with noise, one of another."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, n_rows)
    columns = [np.where(rng.random(n_rows) < 0.7, kind, rng.integers(0, 3, n_rows))]
    columns += [np.where(rng.random(n_rows) < 0.7, 2 - kind, rng.integers(0, 3, n_rows))]
    columns += [np.where(rng.random(n_rows) < 0.5, kind, rng.integers(0, 3, n_rows))]
    for _ in range(3):
        columns += [np.where(rng.random(n_rows) < 0.6, columns[-1], rng.integers(0, 3, n_rows))]
    codes = np.stack(columns, axis=1)
    codes[rng.random(codes.shape) < 0.1] = -1
    return codes


pytestmark = pytest.mark.usefixtures("few_starts")


def write_delivery(tmp_path, name, n_rows, seed):
    codes = draw_chain(n_rows, seed=seed)
    names = [f"{name}{row}" for row in range(n_rows)]
    (tmp_path / "data" / f"{name}.csv").write_text(as_wide(codes, names))


SECTIONS = {
    "model": {"rank": 2, "dependence": "auto"},
    "em": {"max_passes": 8, "pseudo_count": 0.5},
}


def test_refine__fits_forests_and_goes_on_with_them_the_next_night(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*[3] * 6), {"sample": "id"}, **SECTIONS)
    write_delivery(tmp_path, "a", 900, 1)
    received = []
    with listen(received.append, Progress):
        stages = run_to_model(config, workers)
    first, summary = load_model(config, stages["model"]), summary_of(config, stages["model"])
    assert isinstance(first, TreePMF)
    assert {each[:2] for each in first.edges()} >= {("v2", "v3"), ("v3", "v4"), ("v4", "v5")}
    assert (summary["dependence"], summary["edges"]) == ("tree", first.forest.n_edges)
    assert summary["comparisons"][-1]["points"][1]["settings"] == {"dependence": "tree"}
    assert any("forests, " in each.text for each in received)
    scored = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    assert np.isfinite(summary_of(config, scored)["log_prob_per_cell"])

    write_delivery(tmp_path, "b", 300, 2)
    dataset = ingest.fn(config, workers, base=stages["dataset"])
    counts = count.fn(config, dataset, workers)
    warm = refine.fn(config, dataset, counts, stages["model"], workers)
    model, summary = load_model(config, warm), summary_of(config, warm)
    assert isinstance(model, TreePMF)
    assert summary["method"] == "given+em"
    for name in ("shared", "pseudo_count", "edge_pseudo_count", "penalty"):
        assert model.origin[name] == first.origin[name]
    assert max(summary["held_out_per_row"]) >= summary["held_out_per_row"][0]


def test_refine__a_warm_night_looks_for_no_forest_where_there_was_none(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*[3] * 6), {"sample": "id"}, **SECTIONS)
    codes = np.random.default_rng(0).integers(0, 3, (600, 6))
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes, [f"a{row}" for row in range(600)]))
    stages = run_to_model(config, workers)
    assert not isinstance(load_model(config, stages["model"]), TreePMF)
    assert "0 of 15" in summary_of(config, stages["model"])["notes"][-1]
    write_delivery(tmp_path, "b", 300, 2)
    dataset = ingest.fn(config, workers, base=stages["dataset"])
    warm = refine.fn(config, dataset, count.fn(config, dataset, workers), stages["model"], workers)
    assert not isinstance(load_model(config, warm), TreePMF)


def test_refine__same_forests_on_workers_and_alone(pipeline, tmp_path, workers, monkeypatch):
    monkeypatch.setattr("pmflib.families.forests.dependence.SEARCH_WORK", 0)
    monkeypatch.setattr("pmflib.families.forests.dependence.START_ROWS", 300)
    config = pipeline(make_schema(*[3] * 6), {"sample": "id"}, **SECTIONS)
    write_delivery(tmp_path, "a", 900, 1)
    stages = run_to_model(config, workers)
    model = load_model(config, stages["model"])
    assert isinstance(model, TreePMF)
    other = config.model_copy(update={"store": config.store.model_copy(update={"path": "other"})})
    again = run_to_model(other, "")
    found = pmf.JointPMF.load(Store(config.resolve("other")).locate(again["model"]) / "model")
    assert digest_model(found) == digest_model(model)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"rank": 2, "dependence": "tree", "method": "traits"}}, "dependence"),
        ({"model": {"rank": 2, "dependence": "tree"}, "em": {"members": 2, "distil": 3}}, "distil"),
        (
            {"model": {"rank": 2, "dependence": "auto"}, "evaluate": {"validation_folds": 0}},
            "validation_folds",
        ),
    ],
)
def test_config__refuses_dependence_that_cannot_be_fitted(pipeline, sections, message):
    with pytest.raises(ConfigError, match=message):
        pipeline(make_schema(2, 2), {}, **sections)
