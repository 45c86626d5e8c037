"""Nights of a pipeline whose weights are raked to known margins."""

import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import ConfigError, SchemaError
from pmflib.counts import PairCounts
from pmflib.store import find_last_run, find_live
from pmflib_flows.crowd.crowd_flow import crowd_flow
from pmflib_tasks.planning import PlannedWorkers, plan_run
from pmflib_tasks.report import gather_report, render_page
from tests.factories import call_command
from tests.flows.nights import Nights, draw_ratings, make_movies

SHARES = {"v0": {"0": 0.1, "1": 0.2, "2": 0.3, "3": 0.2, "4": 0.2}}


def configure(nights, shares=None):
    """Write the configuration with inline margins, or without any."""
    nights.configure()
    if shares is not None:
        levels = ", ".join(f"{level} = {share}" for level, share in shares["v0"].items())
        with nights.path.open("a") as file:
            file.write(f"[margins.tables]\nv0 = {{{levels}}}\n")


def load_counts(nights):
    reference = find_stages(nights)["counts"]
    return PairCounts.load(nights.store.locate(reference) / "pairs")


def find_stages(nights):
    return find_last_run(nights.store, "pipeline").stages


@pytest.fixture
def nights(tmp_path, monkeypatch):
    made = Nights(tmp_path / "pipeline", make_movies(4), monkeypatch)
    configure(made, SHARES)
    made.deliver("day1.csv", draw_ratings(300, 4), range(300))
    made.run()
    return made


def test_nights__new_samples_are_raked_with_the_others(nights, tmp_path, monkeypatch):
    first = find_stages(nights)
    nights.deliver("day2.csv", draw_ratings(200, 4, seed=1), range(300, 500))
    facts = nights.run()
    second = find_stages(nights)
    assert second["dataset"] != first["dataset"]
    assert facts["rows"]["samples"] == 500
    whole = load_counts(nights)
    codes = np.concatenate([draw_ratings(300, 4), draw_ratings(200, 4, seed=1)])
    held = codes[(codes >= 0).any(axis=1)]
    weight = pmf.surveys.rake(held, SHARES, schema=make_movies(4)).weight
    expected = pmf.count_pairs(held, make_movies(4), weight=weight)
    np.testing.assert_allclose(
        whole.tables.sum(axis=0) / 1e6,
        expected.tables.sum(axis=0) / 10**expected.weights.decimals,
        atol=1e-3,
    )
    skipped = [each for each in facts["quality"] if "raked again" in str(each)]
    assert skipped
    # nothing new: everything is found
    assert nights.run()["outcome"] in ("unchanged", "kept", "promoted")
    again = find_stages(nights)
    assert all(again[name] == second[name] for name in ("encoded", "dataset", "counts"))


def test_report__has_the_shares_before_and_after(nights):
    found = gather_report(nights.store, "pipeline", 1)
    raking = found.record.facts["rows"]["raking"]  # type: ignore[index]
    names, known, before, after = zip(*raking["levels"], strict=True)
    assert names == tuple(f"v0={level}" for level in range(5))
    np.testing.assert_allclose(known, list(SHARES["v0"].values()))
    np.testing.assert_allclose(after, known)
    counted = np.bincount(draw_ratings(300, 4)[:, 0] + 1, minlength=6)[1:]
    np.testing.assert_allclose(before, counted / counted.sum())
    # of a single margin, a factor is the ratio of the shares, but for samples without a value
    low, high = raking["factors"]
    ratios = np.divide(after, before)
    assert (low, high) == pytest.approx((min(1, ratios.min()), max(1, ratios.max())))
    assert "Known margins" in render_page(found)


def test_nights__without_margins_again_the_counts_are_those_of_the_samples(nights):
    configure(nights)
    nights.deliver("day2.csv", draw_ratings(50, 4, seed=1), range(300, 350))
    nights.run()
    codes = np.concatenate([draw_ratings(300, 4), draw_ratings(50, 4, seed=1)])
    expected = pmf.count_pairs(codes, make_movies(4)).tables.sum(axis=0)
    np.testing.assert_array_equal(load_counts(nights).tables.sum(axis=0), expected)
    assert "encoded" not in find_stages(nights)


def test_nights__other_margins_are_fitted_from_scratch_and_need_a_person(nights):
    live = find_live(nights.store, "pipeline")
    configure(nights, {"v0": dict(zip("01234", [0.2] * 5, strict=True))})
    facts = nights.run()
    assert facts["refit"]["reason"] == "fresh: the margins have changed"
    assert "the margins have changed" in facts["reason"]
    assert find_live(nights.store, "pipeline") == live


def test_nights__margins_that_samples_cannot_have_stop_the_run(nights):
    live = find_live(nights.store, "pipeline")
    configure(nights, {"v0": {"0": 0.5, "1": 0.5, "2": 0, "3": 0, "4": 0}})
    with pytest.raises(SchemaError, match="v0=2 nothing"):
        nights.run()
    assert find_live(nights.store, "pipeline") == live


def test_plan__lists_the_raking(nights):
    def list_stages():
        return [each.stage for each in plan_run(nights.config, workers).stages]

    workers = PlannedWorkers.find(nights.config)
    assert list_stages()[:3] == ["ingest", "rake", "count"]
    configure(nights)
    assert "rake" not in list_stages()


def test_query__of_a_model_raked_to_a_file(nights, monkeypatch, capsys):
    def ask(question, *options):
        arguments = ("--margins", path, "--json", *options)
        assert call_command(monkeypatch, "query", nights.path, question, *arguments) == 0
        return json.loads(capsys.readouterr().out)

    path = nights.folder / "v0.csv"
    path.write_text("v0,people\n" + "\n".join(f"{n},{100 * (n + 1)}" for n in range(5)) + "\n")
    found = {row["level"]["v0"]: row["probability"] for row in ask("P(v0)")["levels"]}
    assert found == pytest.approx({str(n): (n + 1) / 15 for n in range(5)}, abs=1e-6)
    model = pmf.JointPMF.load(nights.store.locate(find_live(nights.store, "pipeline")) / "model")
    expected = model.rake(path).ask("P(v1 | v2=3)", source="model").to_json()["levels"]
    for row, other in zip(ask("P(v1 | v2=3)")["levels"], expected, strict=True):
        assert row["probability"] == pytest.approx(other["probability"])
    arguments = ("P(v0)", "--margins", path, "--from", "counts")
    assert call_command(monkeypatch, "query", nights.path, *arguments) == 2
    assert "--margins" in capsys.readouterr().err


def test_crowd__label_logs_have_no_margins(nights):
    with pytest.raises(ConfigError, match="margins"):
        crowd_flow.fn(str(nights.path))


def test_crowd__label_logs_have_no_sites(nights):
    configure(nights)
    with nights.path.open("a") as file:
        file.write('[sites]\nsouth = "south.counts"\n')
    with pytest.raises(ConfigError, match="sites are given"):
        crowd_flow.fn(str(nights.path))
