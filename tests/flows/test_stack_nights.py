"""Nights of a pipeline without a rank: a stack from scratch, continued, and judged by the gate."""

import pytest

from pmflib.base import ConfigError
from pmflib_tasks.config import load_config
from pmflib_tasks.planning import PlannedWorkers, plan_run
from pmflib_tasks.report import gather_report, render_page, summarise_run
from pmflib_tasks.sections import list_sections
from tests.flows.nights import Nights, draw_ratings, make_movies

MOVIES = 8


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A pipeline, and the facts of three nights: from scratch, with new users, and with nothing new."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("nights")
        nights = Nights(folder, make_movies(MOVIES), patch, model={"effort": "quick"})
        codes, facts = draw_ratings(900, MOVIES), []
        for name, first, stop in (("a.csv", 0, 700), ("b.csv", 700, 900), ("", 0, 0)):
            if name:
                nights.deliver(name, codes[first:stop], range(first, stop))
            facts.append(nights.run())
        yield nights, facts


def test_etl__without_a_rank_fits_a_stack(ran):
    _, (first, _, _) = ran
    ladder = first["model"]["ladder"]
    assert first["outcome"] == "promoted"
    assert sum(each["weight"] for each in ladder) == pytest.approx(1)
    assert any(each["states"] * each["members"] > 1 for each in ladder)
    scores = first["scores"]
    assert scores["log_prob_per_cell"] > scores["baseline_log_prob_per_cell"] + 0.1


def test_etl__weights_of_few_rows_are_learnt_from_training_rows_in_turn(ran):
    """Of 700 rows, the validation folds have fewer than the training folds."""
    _, (first, _, _) = ran
    assert first["model"]["held_out"]["n_rows"] > 350
    assert first["model"]["held_out"]["n_trials"] > 1


def test_etl__a_night_continues_the_stack_and_passes_the_gate(ran):
    _, (first, second, third) = ran
    assert second["refit"]["way"] == "warm"
    names = {each["name"] for each in first["model"]["ladder"]}
    assert {each["name"] for each in second["model"]["ladder"]} <= names
    assert max(each["passes"] for each in second["model"]["ladder"]) <= 3
    assert second["outcome"] == "promoted"
    assert second["gate"]["live"] != second["gate"]["new"]
    assert third["outcome"] == "unchanged"


def test_sections__have_the_ladder_with_its_weights(ran):
    _, (first, _, _) = ran
    tables = [each.table for each in list_sections(first) if each.table is not None]
    (table,) = (each for each in tables if each.title == "Models of the mixture")
    assert [row[0] for row in table.rows] == [each["name"] for each in first["model"]["ladder"]]


def test_report__of_a_stack_has_its_models_and_no_states(ran):
    nights, (first, _, _) = ran
    report = gather_report(nights.store, nights.config.name, 1)
    said = " ".join(summarise_run(report))
    assert all(each["name"] in said for each in first["model"]["ladder"])
    assert "model.classes = 3 adds classes to read" in said
    page = render_page(report)
    assert "The latent states" not in page
    assert "<td>AIC" not in page
    assert "Models of the mixture" in page


def test_plan__knows_stacks(ran):
    nights, _ = ran
    plan = plan_run(nights.config, PlannedWorkers.find(nights.config))
    stages = {each.stage: each for each in plan.stages}
    assert "refine" not in stages
    assert stages["stack"].client_bytes > 0


@pytest.mark.parametrize(
    "sections",
    [{"model": {"method": "spa"}}, {"em": {"members": 3}}, {"em": {"target": "v0"}}],
    ids=str,
)
def test_load_config__options_of_a_rank_need_one(tmp_path, monkeypatch, sections):
    nights = Nights(tmp_path, make_movies(3), monkeypatch, **{"model": {}, **sections})
    with pytest.raises(ConfigError, match=r"model\.rank is missing"):
        load_config(nights.path)
