"""Questions to the models of a small pipeline of two nights, by the command."""

import json
import subprocess
import sys

import numpy as np
import pytest

from flows import cli
from pmflib.model import JointPMF
from pmflib.questions import stored_evidence
from pmflib.store.run_records import find_live, find_record
from tests.flows.nights import Nights, draw_ratings, make_movies


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """Two nights, the second of people who like the opposite; the model of the first stays live."""
    with pytest.MonkeyPatch.context() as patch:
        # movie v4 is of nobody who has rated v0
        made = Nights(tmp_path_factory.mktemp("query") / "pipeline", make_movies(5), patch)
        codes = draw_ratings(400, 5)
        codes[codes[:, 0] >= 0, 4] = -1
        made.deliver("day1.csv", codes, range(400))
        made.run()
        made.deliver("day2.csv", draw_ratings(400, 5, seed=1), range(400, 800), upside_down=True)
        made.run(accept_quality=True)
        return made


@pytest.fixture
def call(pipeline, monkeypatch, capsys):
    def run(*arguments):
        words = ["pmf", "query", str(pipeline.path), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        code: str | int = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


def list_refits(pipeline):
    return [each for each in pipeline.store.entries() if each.reference.kind == "refits"]


def test_query__is_answered_by_the_model_with_errors_that_are_kept(pipeline, call):
    code, out, err = call("P(v1 | v0=4)", "--run", "1", "--json")
    assert code == 0
    assert "fits, once for this model" in err
    content = json.loads(out)
    record = find_record(pipeline.store, "pipeline", 1)
    model = JointPMF.load(pipeline.store.locate(record.stages["model"]) / "model")
    known = model.ask("P(v1 | v0=4)")
    assert {row["level"]["v1"]: row["probability"] for row in content["levels"]} == known.value
    assert all(row["standard_error"] > 0 for row in content["levels"])
    assert content["best"] == {"v1": known.labels[0][0]}
    assert content["support"]["given"][0]["samples"] > 0
    (entry,) = [
        each for each in list_refits(pipeline) if each.inputs["model"] == record.stages["model"]
    ]
    assert entry.summary["folds"] == len(entry.options["folds"]) > 1
    code, again, err = call("P(v1 | v0=4)", "--run", "1", "--json")
    assert (json.loads(again), err) == (content, "")


def test_query__counts_are_those_of_the_folds_that_were_fitted_to(pipeline, call):
    content = json.loads(call("P(v1)", "--no-errors", "--json")[1])
    live = find_live(pipeline.store, "pipeline")
    folds = pipeline.store.find(live.identity).options["train"]
    assert 0 < len(folds) < 8
    assert content["support"]["samples"] < 400 * 2
    assert content["no_standard_errors"] == "--no-errors"


def test_query__warnings_are_on_standard_error(call):
    code, out, err = call("P(v4 | v0=4)", "--run", "1", "--no-errors")
    assert code == 0
    assert "'v4' and 'v0' were never observed together" in err
    assert "support: " in out
    content = json.loads(call("P(v4 | v0=4)", "--run", "1", "--json")[1])
    assert "never observed together" in content["warnings"][0]


def test_query__two_runs_are_compared(pipeline, call):
    code, out, _ = call("P(v1 | v0=4)", "--run", "1", "--against", "2")
    assert code == 0
    assert "total variation: " in out
    content = json.loads(call("E(v1)", "--run", "1", "--against", "last", "--json")[1])
    (row,) = content["differences"]
    means = []
    for number in (1, 2):
        record = find_record(pipeline.store, "pipeline", number)
        model = JointPMF.load(pipeline.store.locate(record.stages["model"]) / "model")
        means.append(model.ask("E(v1)").value)
    np.testing.assert_allclose([row["first"], row["second"]], means)
    assert row["standard_error"] > 0


def test_query__file_of_questions(tmp_path, call):
    path = tmp_path / "questions.txt"
    path.write_text("# of the first movies\nP(v0)\n\nMI(v0; v1)\n", "utf-8")
    code, out, _ = call("--file", path, "--json", "--no-errors")
    assert code == 0
    assert [each["question"] for each in json.loads(out)] == ["P(v0)", "MI(v0; v1)"]
    path.write_text("P(v0)\nP(v9)\n", "utf-8")
    code, out, err = call("--file", path, "--no-errors")
    assert (code, out) == (3, "")
    assert "questions.txt, line 2: variable 'v9' is not in the schema" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["P(v0 | v1=9)"], 3, "variable 'v1' has no level '9'"),
        (["P(v0 | v1)", "--run", "7"], 4, "run 7 of pipeline 'pipeline' is not in its history"),
        (["P(v0)", "--against", "yesterday"], 2, "give a number, live or last"),
        (["P(v0 | v1=4, v1=3)"], 2, "'v1' is given as '4' and as '3'"),
        (["P(v0 v1=4)"], 2, None),
        ([], 2, "give a question, or --file"),
        (["P(v0)", "--file", "x"], 2, "give a question, or --file"),
        (["--file", "nowhere.txt"], 2, "cannot be read"),
    ],
)
def test_query__refuses(call, arguments, code, message):
    found, out, err = call(*arguments)
    if message is None:
        assert found in (2, 3)
        assert "^" in err
        return
    assert (found, out) == (code, "")
    assert message in err


def test_query__many_variables_have_a_row_each(call, monkeypatch):
    from flows.commands import query

    monkeypatch.setattr(query, "WIDE", 2)
    out = call("argmax(v0, v1, v2)", "--no-errors")[1]
    assert "8 more; --top or --json" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("│ v")] == [
        "v0",
        "v1",
        "v2",
    ]


def test_query__carets_stand_under_the_place(call):
    lines = call("P(v0 | vv1=4)")[2].splitlines()
    assert lines[-2].index("vv1") == lines[-1].index("^^^")


def test_query__a_wide_schema_has_counts_of_levels_alone(call, monkeypatch):
    monkeypatch.setattr(stored_evidence, "MAX_LEVELS", 3)
    content = json.loads(call("P(v0 | v1=4, v2=1)", "--no-errors", "--json")[1])
    assert content["support"]["pairs"] == []
    assert content["support"]["variables"]["v0"] > 0
    assert not content["support"]["given"][0]["is_exact"]


def test_query__a_store_that_may_only_be_read_is_answered(pipeline, call, monkeypatch):
    from pmflib.errors import StoreError
    from pmflib.store.artefacts import Store

    known = json.loads(call("E(v1)", "--json")[1])

    def refuse(*arguments, **options):
        raise StoreError("read only")

    monkeypatch.setattr(Store, "build", refuse)
    assert json.loads(call("E(v1)", "--json")[1]) == known


def test_query__loads_nothing_heavy_once_the_fits_are_kept(pipeline, call):
    question = "P(v0 | v1=4)"
    assert call(question)[0] == 0
    code = (
        "import sys; from flows.cli import main\n"
        f"sys.argv = ['pmf', 'query', {str(pipeline.path)!r}, {question!r}, '--json']\n"
        "try:\n    main()\n"
        "except SystemExit:\n"
        "    print({'numba', 'scipy', 'dask', 'prefect', 'sklearn'} & {*sys.modules}, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
    assert json.loads(done.stdout)["levels"]
