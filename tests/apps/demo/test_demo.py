import json
import shlex

import pytest

import pmflib as pmf
from pmflib_tasks.config import load_config


@pytest.mark.parametrize("about", ["ratings", "survey", "labels"])
def test_demo__data_only_writes_drafts_that_read_and_runs_nothing(call, tmp_path, about):
    code, out, _ = call("demo", about, "--users", "200", "--data-only", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["written_rows"] >= 200
    folder = tmp_path / "demo"
    assert load_config(folder / "pipeline.toml").source.path
    assert not (folder / "store").exists()
    if about == "survey":
        schema = pmf.Schema.load(folder / "schema.json")
        assert "see the other side" not in schema["clean"].levels
        assert schema["clean"].values == schema["punctual"].values
    assert (folder / "known.csv").exists() == (about == "labels")


def test_demo__survey_runs_and_names_a_question_that_is_answered(call):
    code, out, _ = call("demo", "survey", "--users", "400")
    assert code == 0
    command = out.strip().splitlines()[-1]
    assert command.startswith("Try: pmf query")
    code, out, _ = call(*shlex.split(command.removeprefix("Try: pmf")))
    assert code == 0
    assert "strongly agree" in out


def test_demo__labels_are_compared_with_the_truth(call):
    code, out, _ = call("demo", "labels", "--users", "200", "--json")
    assert code == 0
    found = json.loads(out)
    assert 0 <= found["truth"]["error"] <= found["truth"]["majority_error"] < 0.5
    # of the two workers who know nothing, one guesses and one repeats a class
    reasons = {each["worker"]: each["reason"] for each in found["suspicious_workers"]}
    assert {*reasons} == {"w11", "w12"}
    assert "no better than chance" in reasons["w11"]
    assert "always 'dog'" in reasons["w12"]
