import pytest

from pmflib.model import JointPMF
from pmflib.store.artefacts import Store
from pmflib.store.run_records import read_run
from tasks.evaluate import evaluate
from tasks.publish import publish
from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model


def run_and_publish(config, workers):
    stages = run_to_model(config, workers)
    scores = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    facts = publish.fn(config, {**stages, "scores": scores}, workers)
    record = read_run(Store(config.resolve("store")), config.name)
    assert record is not None
    return stages, facts, record[0]["live"]


def with_passes(config, n):
    return config.model_copy(update={"em": config.em.model_copy(update={"max_passes": n})})


@pytest.fixture
def published(fitted, workers):
    config, _ = fitted
    return config, *run_and_publish(config, workers)


def test_publish__first_model_and_again(published, workers):
    config, stages, facts, live = published
    assert (facts["verdict"], live) == ("first model of this pipeline", stages["model"])
    assert facts["config"] == config.digest
    assert (facts["rows"]["rows_in"], facts["model"]["rank"]) == (800, 2)
    assert "quarantine" not in facts
    assert JointPMF.load(facts["live"]).rank == 2
    assert facts["warnings"] == []
    _, again, live = run_and_publish(config, workers)
    assert (again["verdict"], live) == ("the live model, unchanged", stages["model"])


def test_publish__keeps_the_better_and_promotes_the_better(published, workers):
    """A model of one state that knows no pairs is worse on hidden answers than one of two."""
    config, stages, facts, _ = published
    worse = with_passes(config, 2).model_copy(
        update={"model": config.model.model_copy(update={"rank": 1})}
    )
    _, kept, live = run_and_publish(worse, workers)
    assert kept["verdict"].startswith("kept the live model: the new one has -")
    assert live == stages["model"]
    assert kept["scores"]["log_prob_per_cell"] < facts["scores"]["log_prob_per_cell"]
    other = worse.model_copy(update={"name": "other"})
    run_and_publish(other, workers)
    better = config.model_copy(update={"name": "other"})
    _, promoted, live = run_and_publish(better, workers)
    assert promoted["verdict"].startswith("promoted: +")
    assert promoted["verdict"].endswith("nats per hidden cell against the live model")
    assert live == stages["model"]


def test_publish__a_changed_schema_is_not_compared(published, pipeline, workers):
    _, stages, _, _ = published
    config = pipeline(make_schema(3, 2, 5, 2), {})
    _, facts, live = run_and_publish(config, workers)
    assert facts["verdict"] == "promoted: the schema has changed"
    assert live != stages["model"]


def test_publish__says_where_the_quarantine_is(pipeline, tmp_path, workers):
    config = pipeline(make_schema(2, 2), {})
    (tmp_path / "data" / "a.csv").write_text(as_wide(draw_codes(60, (2, 2))) + "7,7\n")
    _, facts, _ = run_and_publish(config, workers)
    assert facts["rows"]["rows_quarantined"] == 1
    assert facts["quarantine"].startswith(str(tmp_path / "store"))
    assert facts["quarantine"].endswith("quarantine.parquet")
