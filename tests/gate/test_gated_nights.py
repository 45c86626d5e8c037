"""Nights of a small pipeline: what goes live, what does not, and what the commands say of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pmflib.base import QualityError
from pmflib.store import append_record, find_live, find_record, list_records
from pmflib_flows.recording import record_run
from pmflib_tasks.facts import RunFacts
from tests.flows.nights import draw_ratings

FILES = range(10)
FRESH = {"rank": 2, "refresh": "0d"}
"""A fit from scratch in every run: over few samples, passes from the live model may find none that is better."""


def deliver_all(pipeline, codes, upside_down=()):
    """Ten files with a tenth of the ratings each, some of them 6 - rating."""
    assigned = np.random.default_rng(1).integers(0, len(FILES), codes.shape)
    for file in FILES:
        part, inverted = np.where(assigned == file, codes, -1), file in upside_down
        pipeline.deliver(f"{file}.csv", part, range(len(codes)), upside_down=inverted)


@pytest.mark.slow
def test_gate__files_upside_down_are_kept_from_going_live_by_the_reference(nights, call):
    """Better on today's rows, which are corrupted, and worse on yesterday's: no guard is needed to see it."""
    pipeline = nights(12)
    codes = draw_ratings(400, 12)
    deliver_all(pipeline, codes)
    first = pipeline.run()
    assert first["outcome"] == "promoted"
    deliver_all(pipeline, codes, upside_down=(0, 3, 5, 8))
    # the guards would not let it come to the gate
    second = pipeline.run(accept_quality=True)
    assert second["outcome"] == "kept"
    assert second["live_model"] == first["live_model"] == second["gate"]["live"]
    today, reference = second["gate"]["today"], second["gate"]["reference"]
    assert (today["verdict"], reference["verdict"]) == ("better", "worse")
    assert f"{today['gain']:+.5f}" in second["reason"]
    assert f"{reference['gain']:+.5f}" in second["reason"]
    assert "`pmf promote`" in second["reason"]
    # the rejected model has a column of its own, with its name, and so has the live one
    new, live = second["gate"]["new"], second["gate"]["live"]
    _, shown, _ = call("status", pipeline.path)
    assert {f"{new[:12]},", "rejected", live[:12]} <= {*shown.replace("┃", " ").split()}
    answer = json.loads(call("status", pipeline.path, "--json")[1])
    assert answer["live"]["model"] == live
    assert answer["run"]["scores"] != answer["run"]["live_scores"]
    # repaired files: the samples are those that the live model has seen, in other partitions, and it stays
    deliver_all(pipeline, codes)
    third = pipeline.run(accept_quality=True)
    assert (third["outcome"], third["refit"]["way"]) == ("unchanged", "warm")
    assert third["live_model"] == first["live_model"]


@pytest.mark.slow
def test_gate__a_small_log_is_neither_refused_by_chance_nor_passed_unseen(nights):
    """27 hidden cells are five times as many in five rounds; what they cannot say is said, with how many could."""
    pipeline = nights(17, store={"folds": 16})
    codes = draw_ratings(260, 17)
    outcomes = []
    for night, stop in enumerate((200, 220, 240, 260)):
        start = stop - 20 if night else 0
        pipeline.deliver(f"{night}.csv", codes[start:stop], range(start, stop))
        facts = pipeline.run()
        outcomes.append(facts["outcome"])
        if not night:
            continue
        today = facts["gate"]["today"]
        assert today["cells"] > 4 * facts["scores"]["hidden_cells"] > 60
        assert today["verdict"] != "worse"
        if facts["outcome"] == "kept":
            needed = max(facts["gate"][name]["needed"] or 0 for name in ("today", "reference"))
            assert needed > today["cells"]
            assert f"{needed:,}" in facts["reason"]
    assert outcomes[0] == "promoted"
    before = facts["live_model"]
    pipeline.deliver("0.csv", draw_ratings(200, 17), range(200), upside_down=True)
    for refresh in ("30d", "0d"):
        pipeline.configure(model={"rank": 2, "refresh": refresh}, store={"folds": 16})
        facts = pipeline.run(accept_quality=True)
        assert facts["live_model"] == before
    assert facts["outcome"] == "kept"


@pytest.mark.slow
def test_promote_and_rollback__by_hand(nights, call):
    pipeline = nights(4, model=FRESH, em={"max_passes": 3}, store={"folds": 4})
    codes = draw_ratings(120, 4)
    pipeline.deliver("1.csv", codes[:80], range(80))
    assert call("promote", pipeline.path)[0] == 4
    assert json.loads(call("models", pipeline.path, "--json")[1]) == []
    first = pipeline.run()
    assert call("rollback", pipeline.path)[0] == 4
    # too few cells: kept, and made live by hand
    pipeline.configure(
        model=FRESH, em={"max_passes": 3}, store={"folds": 4}, gate={"least_cells": 10_000}
    )
    pipeline.deliver("2.csv", codes[80:], range(80, 120))
    second = pipeline.run()
    assert second["outcome"] == "kept"
    made = json.loads(call("models", pipeline.path, "--json")[1])
    assert [(each["run"], each["standing"]) for each in made] == [(1, "live"), (2, "rejected")]
    assert made[1]["why"] == second["reason"]
    code, out, _ = call("promote", pipeline.path, "--json")
    answer = json.loads(out)
    assert (code, answer["model"], answer["model_of_run"]) == (0, second["gate"]["new"], 2)
    record = find_record(pipeline.store, "pipeline", 3)
    assert (record.action, record.outcome, record.live.digest) == (
        "promote",
        "done",
        answer["model"],
    )
    assert record.reason.endswith(second["reason"])
    assert RunFacts(record.facts).gate.assessed["today"].decision == "unsure"
    assert call("promote", pipeline.path, 2)[0] == 4
    assert call("rollback", pipeline.path)[0] == 0
    assert find_live(pipeline.store, "pipeline").digest == first["live_model"]
    status = json.loads(call("status", pipeline.path, "--json")[1])
    assert (status["live"]["action"], status["live"]["run"]) == ("rollback", 4)
    assert status["run"]["live_model"] == first["live_model"]
    # nobody's rollback is undone by the same model, whatever the gate now says of it
    pipeline.configure(
        model=FRESH,
        em={"max_passes": 3},
        store={"folds": 4},
        gate={"least_cells": 1, "largest_loss": 9},
    )
    again = pipeline.run()
    assert again["gate"]["new"] == second["gate"]["new"]
    assert "run 4" in again["reason"]
    assert find_live(pipeline.store, "pipeline").digest == first["live_model"]
    # a damaged model is not made live
    model = find_record(pipeline.store, "pipeline", 2).stages["model"]
    (pipeline.store.locate(model) / "more").touch()
    assert call("promote", pipeline.path, 2)[0] == 4


def test_run__a_changed_schema_never_goes_live_by_itself(nights):
    pipeline = nights(4, em={"max_passes": 3}, store={"folds": 4})
    pipeline.deliver("1.csv", draw_ratings(80, 4), range(80))
    first = pipeline.run()
    text = (pipeline.folder / "schema.json").read_text()
    (pipeline.folder / "schema.json").write_text(text.replace('"v3"', '"v9"'))
    (pipeline.log / "1.csv").write_text(
        (pipeline.log / "1.csv").read_text().replace(",v3,", ",v9,")
    )
    second = pipeline.run()
    assert (second["outcome"], second["live_model"]) == ("kept", first["live_model"])
    assert "schema" in second["reason"]
    assert second["refit"]["way"] == "fresh"
    assert "live_scores" not in second


def test_run__without_its_reference_a_live_model_is_not_replaced(nights):
    import shutil

    pipeline = nights(
        4,
        model=FRESH,
        em={"max_passes": 3},
        store={"folds": 4},
        gate={"largest_loss": 9, "least_cells": 50},
    )
    codes = draw_ratings(120, 4)
    pipeline.deliver("1.csv", codes[:80], range(80))
    first = pipeline.run()
    record = find_record(pipeline.store, "pipeline", 1)
    pipeline.deliver("2.csv", codes[80:], range(80, 120))
    shutil.rmtree(pipeline.store.locate(record.stages["dataset"]))
    second = pipeline.run()
    assert (second["outcome"], second["live_model"]) == ("kept", first["live_model"])
    assert second["gate"]["reference"]["obstacle"]
    (pipeline.store.root / "runs" / "pipeline" / "000001.json").unlink()
    third = pipeline.run()
    assert (third["outcome"], third["live_model"]) == ("kept", first["live_model"])


def test_run__what_became_live_meanwhile_is_not_undone(nights):
    """A model is promoted by hand while a run is under way, before and after that run decides."""
    pipeline = nights(
        4, model=FRESH, em={"max_passes": 3}, store={"folds": 4}, gate={"largest_loss": 9}
    )
    codes = draw_ratings(120, 4)
    pipeline.deliver("1.csv", codes[:80], range(80))
    pipeline.run()
    store, config = pipeline.store, pipeline.config
    (record,) = list_records(store, "pipeline")
    new, by_hand = (replace(record.live, digest=digit * 64) for digit in "ab")
    promoted = replace(record, action="promote", outcome="done", stages={}, live=by_hand)
    for ending, outcome in ((None, "kept"), (QualityError("drift"), "held back")):
        try:
            with record_run(config) as draft:
                draft.outcome, draft.reason, draft.live = "promoted", "better", new
                append_record(store, "pipeline", promoted)
                if ending is not None:
                    raise ending
        except QualityError:
            pass
        assert draft.outcome == outcome
        assert find_live(store, "pipeline") == by_hand
        append_record(store, "pipeline", replace(promoted, live=record.live))
    kept = find_record(store, "pipeline", 3)
    assert "b" * 12 in kept.reason
    # nothing became live: what was decided is recorded
    with record_run(config) as draft:
        draft.outcome, draft.reason, draft.live = "promoted", "better", new
    assert (draft.outcome, find_live(store, "pipeline")) == ("promoted", new)
