import pytest

import pmflib as pmf
from pmflib.model import ModelOrigin
from pmflib_flows.recording import record_run
from pmflib_tasks.gate import GateNumbers, locate_for_people
from pmflib_tasks.gate.compare import compare
from pmflib_tasks.gate.publish import publish
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.refine import refine
from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model, store_of, summary_of


def run_and_publish(config, workers):
    """Run all stages and record what was decided."""
    with record_run(config) as run:
        run.stages |= run_to_model(config, workers)
        model = run.stages["model"]
        scores = evaluate.fn(config, run.stages["dataset"], run.stages["counts"], model, workers)
        run.stages["scores"] = scores
        decision = publish.fn(config, run.stages, workers)
        run.outcome, run.reason = decision.outcome, decision.reason
        run.live, run.before = decision.live, decision.before
    return run.stages, decision


def with_passes(config, n):
    return config.model_copy(update={"em": config.em.model_copy(update={"max_passes": n})})


@pytest.fixture
def published(fitted, workers):
    config, _ = fitted
    return config, *run_and_publish(config, workers)


def test_publish__first_model_and_again(published, workers):
    config, stages, first = published
    assert first.outcome == "promoted"
    assert (first.live, first.before) == (stages["model"], None)
    assert (first.facts["rows"]["rows_in"], first.facts["model"]["rank"]) == (800, 2)
    assert first.facts["gate"] == {"new": stages["model"].digest, "live": None}
    assert first.facts["warnings"] == []
    paths = locate_for_people(store_of(config), first.live, stages)
    assert list(paths) == ["live_model", "live"]
    assert pmf.JointPMF.load(paths["live"]).rank == 2
    _, again = run_and_publish(config, workers)
    assert again.outcome == "unchanged"
    assert again.live == stages["model"]


def test_publish__keeps_the_better_and_promotes_the_better(published, workers):
    """A model of one state that knows no pairs is worse on hidden answers than one of two."""
    config, stages, first = published
    worse = with_passes(config, 2).model_copy(
        update={"model": config.model.model_copy(update={"rank": 1})}
    )
    made, kept = run_and_publish(worse, workers)
    assert kept.outcome == "kept"
    assert kept.facts["scores"]["pairs"]["share_explained"] < 0.1
    assert kept.facts["warnings"] == [*kept.facts.agreement.warnings]
    assert kept.facts["warnings"]
    assert kept.facts["gate"]["today"]["verdict"] == "worse"
    assert (kept.live, kept.before) == (stages["model"], stages["model"])
    assert kept.facts["live_scores"] == first.facts["scores"]
    assert (
        kept.facts["scores"]["log_prob_per_cell"] < first.facts["scores"]["log_prob_per_cell"] - 0.1
    )
    # both were judged on one dataset: the reference is today's
    assert "reference" not in kept.facts["gate"]
    with record_run(worse) as run:
        run.live, run.outcome = made["model"], "promoted"
    _, promoted = run_and_publish(config, workers)
    assert promoted.outcome == "promoted"
    assert promoted.facts["gate"]["today"]["verdict"] == "better"
    assert promoted.facts["gate"]["today"]["gain"] == -kept.facts["gate"]["today"]["gain"]
    assert promoted.live == stages["model"]


def test_publish__equal_parameters_are_no_new_model(published, workers, monkeypatch):
    """Passes over other data found nothing better: the live model stays, and so does what it is judged on."""
    config, stages, first = published
    again = refine.fn(
        with_passes(config, 6), stages["dataset"], stages["counts"], stages["start"], workers
    )
    store = store_of(config)

    def write(folder, work):
        model = pmf.JointPMF.load(store.locate(first.live) / "model")
        pmf.JointPMF(model.prior, model.factors, model.schema, ModelOrigin("given+em")).save(
            folder / "model"
        )
        return summary_of(config, first.live)

    equal = store.build("model", inputs={"start": again}, options={}, version=1, write=write)
    assert equal.reference.digest != first.live.digest
    decision = publish.fn(config, {**stages, "model": equal.reference}, workers)
    assert (decision.outcome, decision.live) == ("unchanged", first.live)
    assert decision.facts.gate == GateNumbers()


def test_publish__a_changed_schema_is_not_compared(published, pipeline, workers):
    _, stages, _ = published
    config = pipeline(make_schema(3, 2, 5, 2), {})
    _, decision = run_and_publish(config, workers)
    assert (decision.outcome, decision.live) == ("kept", stages["model"])
    assert "schema" in decision.reason


def test_publish__other_folds_are_not_compared(published, workers):
    """Each model would be judged on samples that the other has been fitted to."""
    config, stages, _ = published
    split = config.evaluate.model_copy(update={"test_folds": 2})
    _, decision = run_and_publish(config.model_copy(update={"evaluate": split}), workers)
    assert (decision.outcome, decision.live) == ("kept", stages["model"])
    assert "folds" in decision.reason


def test_publish__nothing_held_out_is_nothing_to_compare(pipeline, tmp_path, workers):
    config = pipeline(make_schema(2, 2), {}, evaluate={"test_folds": 0})
    (tmp_path / "data" / "a.csv").write_text(as_wide(draw_codes(60, (2, 2))))
    _, first = run_and_publish(config, workers)
    assert first.outcome == "promoted"
    (tmp_path / "data" / "b.csv").write_text(as_wide(draw_codes(60, (2, 2), seed=1)))
    _, decision = run_and_publish(config, workers)
    assert (decision.outcome, decision.live) == ("kept", first.live)
    assert "test sample" in decision.reason


def test_compare__is_kept_in_the_store_and_turned_round(published, workers):
    config, stages, _ = published
    one = config.model_copy(update={"model": config.model.model_copy(update={"rank": 1})})
    other = run_to_model(one, workers)["model"]
    there, back = (
        summary_of(config, compare.fn(config, stages["dataset"], *pair, workers))
        for pair in ((stages["model"], other), (other, stages["model"]))
    )
    assert there["gain"] == -back["gain"] > 0
    assert there["standard_error"] == pytest.approx(back["standard_error"])
    assert there["cells"] == back["cells"] > 400
