import pytest

from pmflib.model import JointPMF
from pmflib.store.artefacts import Store
from tasks.evaluate import evaluate
from tasks.publish import locate_for_people, publish
from tests.pipelines import make_schema, run_to_model


def run_and_publish(config, workers, live=None):
    stages = run_to_model(config, workers)
    scores = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    return stages, publish.fn(config, {**stages, "scores": scores}, live, workers)


def with_passes(config, n):
    return config.model_copy(update={"em": config.em.model_copy(update={"max_passes": n})})


@pytest.fixture
def published(fitted, workers):
    config, _ = fitted
    return config, *run_and_publish(config, workers)


def test_publish__first_model_and_again(published, workers):
    config, stages, first = published
    assert (first.outcome, first.reason) == ("promoted", "first model of this pipeline")
    assert first.live == stages["model"]
    assert (first.facts["rows"]["rows_in"], first.facts["model"]["rank"]) == (800, 2)
    assert first.facts["warnings"] == []
    paths = locate_for_people(Store(config.resolve("store")), first)
    assert list(paths) == ["live"]
    assert JointPMF.load(paths["live"]).rank == 2
    _, again = run_and_publish(config, workers, first.live)
    assert (again.outcome, again.reason) == ("unchanged", "the live model, unchanged")
    assert again.live == stages["model"]


def test_publish__keeps_the_better_and_promotes_the_better(published, workers):
    """A model of one state that knows no pairs is worse on hidden answers than one of two."""
    config, stages, first = published
    worse = with_passes(config, 2).model_copy(
        update={"model": config.model.model_copy(update={"rank": 1})}
    )
    made, kept = run_and_publish(worse, workers, first.live)
    assert kept.outcome == "kept"
    assert kept.reason.startswith("kept the live model: the new one has -")
    assert kept.live == stages["model"]
    new, old = (each.facts["scores"]["log_prob_per_cell"] for each in (kept, first))
    assert new < old
    _, promoted = run_and_publish(config, workers, made["model"])
    assert promoted.outcome == "promoted"
    assert promoted.reason.startswith("promoted: +")
    assert promoted.reason.endswith("nats per hidden cell against the live model")
    assert promoted.live == stages["model"]


def test_publish__a_changed_schema_is_not_compared(published, pipeline, workers):
    _, stages, _ = published
    config = pipeline(make_schema(3, 2, 5, 2), {})
    _, decision = run_and_publish(config, workers, stages["model"])
    assert decision.reason == "promoted: the schema has changed"
    assert decision.live != stages["model"]
