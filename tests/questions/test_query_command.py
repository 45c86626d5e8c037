"""Questions to the models of a small pipeline of two nights, by the command."""

import json
import subprocess
import sys

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import conditional_tables, evidence, gaps, weighted_tables
from pmflib.store import find_live, find_record
from tests.factories import call_command
from tests.flows.nights import Nights, draw_ratings, make_movies


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """Two nights, the second of people who like the opposite; its model is live."""
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
        code = call_command(monkeypatch, "query", pipeline.path, *arguments)
        return code, *capsys.readouterr()

    return run


def list_tables(pipeline):
    return [each for each in pipeline.store.entries() if each.reference.kind == "tables"]


def load_model(pipeline, number):
    record = find_record(pipeline.store, "pipeline", number)
    return pmf.JointPMF.load(pipeline.store.locate(record.stages["model"]) / "model")


def read_codes(pipeline, number):
    """All samples that a run had."""
    dataset = find_record(pipeline.store, "pipeline", number).stages["dataset"]
    schema = load_model(pipeline, number).schema
    return pmf.em.StoredSamples.open(pipeline.store, dataset, schema, range(8)).read_codes()


@pytest.mark.parametrize(
    "question", ["P(v1 | v0=4)", "P(v1 | v0>=3, v2>=3, v3<2)", "MI(v0; v1 | v2)"]
)
def test_query__is_answered_as_in_memory(pipeline, call, question):
    model, codes = load_model(pipeline, 1), read_codes(pipeline, 1)
    assert model.origin["equivalent_samples"]["n_unseen"] > 0
    for source in ("both", "counts", "model"):
        code, out, _ = call(question, "--run", "1", "--from", source, "--level", "0.8", "--json")
        assert code == 0
        known = model.ask(question, codes, source=source, level=0.8)
        assert json.loads(out) == json.loads(json.dumps(known.to_json()))
        assert known.source == source


def test_query__tables_are_counted_once(pipeline, call, monkeypatch):
    question = "P(v3 | v0=4, v1=1, v2=3)"
    known = call(question, "--run", "1", "--json")
    assert known[0] == 0
    kept = list_tables(pipeline)
    assert all(set(each.inputs) == {"dataset"} for each in kept)

    def refuse(*arguments, **options):
        raise AssertionError("counted again")

    monkeypatch.setattr(evidence, "count_stored_tables", refuse)
    assert call(question, "--run", "1", "--json") == known
    assert list_tables(pipeline) == kept


def test_query__all_questions_are_counted_in_one_pass(pipeline, call, tmp_path, monkeypatch):
    path = tmp_path / "questions.txt"
    questions = [
        "P(v1 | v0=4, v2=1)",
        "MI(v0; v1 | v3)",
        "E(v2 | v0, v1=0)",
        "TV(v1 | v0=1, v2=3; v0=2)",
        "argmax(v0, v1, v2 | v3>=1, v4=2)",
        "P(v9)",
        "P(v0)",
    ]
    passes = []
    count = weighted_tables.count_stored_tables

    def watch(*arguments, **options):
        passes.append(len(arguments[2]))
        return count(*arguments, **options)

    monkeypatch.setattr(evidence, "count_stored_tables", watch)
    # without counts of pairs all has to be counted in the samples
    monkeypatch.setattr(evidence, "MAX_LEVELS", 3)
    monkeypatch.setattr(gaps, "MOST_LEVELS", 3)
    path.write_text("\n".join(questions[:-2] + questions[-1:]), "utf-8")
    code, out, _ = call("--file", path, "--run", "1", "--json")
    assert code == 0
    assert len(passes) == 1
    model, codes = load_model(pipeline, 1), read_codes(pipeline, 1)
    for each in json.loads(out):
        known = json.loads(json.dumps(model.ask(each["question"], codes, top=10).to_json()))
        assert each == known
    # one that cannot be read is refused by its own line
    path.write_text("\n".join(questions), "utf-8")
    assert "line 6" in call("--file", path, "--run", "1")[2]


@pytest.mark.parametrize("seconds", [0.1, 100.0])
def test_query__the_cluster_counts_what_takes_long_and_says_so_before(
    pipeline, call, monkeypatch, thread_client, seconds
):
    count, clients = weighted_tables.count_stored_tables, []

    def watch(*arguments, client, **options):
        clients.append(client)
        return count(*arguments, client=client, **options)

    monkeypatch.setattr(evidence, "count_stored_tables", watch)
    monkeypatch.setattr(conditional_tables.TablePlan, "plan_seconds", lambda plan, block: seconds)
    monkeypatch.setenv("PMF_DASK_ADDRESS", thread_client.scheduler.address)
    question = f"P(v2 | v0=4, v1=1, v3={2 if seconds > 1 else 3})"
    code, out, said = call(question, "--run", "1", "--json")
    assert code == 0
    (client,) = clients
    assert (client is not None) == (said != "") == (seconds > 1)
    monkeypatch.delenv("PMF_DASK_ADDRESS")
    # what was counted is not counted again, and nothing is said of it
    assert call(question, "--run", "1", "--json") == (0, out, "")
    known = load_model(pipeline, 1).ask(question, read_codes(pipeline, 1))
    assert json.loads(out) == json.loads(json.dumps(known.to_json() | {"from": "both"}))


def test_query__a_budget_counts_a_part_and_says_so(pipeline, call, monkeypatch):
    question = "P(v3 | v0=4, v1=1, v2=2)"
    # every block takes a second
    monkeypatch.setattr(conditional_tables.TablePlan, "plan_seconds", lambda plan, block: 1.0)
    n_rows = len(read_codes(pipeline, 1))
    content = json.loads(call(question, "--run", "1", "--budget", "3s", "--json")[1])
    assert 0 < content["support"]["counted_samples"] < content["support"]["samples"] == n_rows
    whole = json.loads(call(question, "--run", "1", "--budget", "1h", "--json")[1])
    assert whole["support"]["counted_samples"] == n_rows
    assert whole == json.loads(call(question, "--run", "1", "--json")[1])


def test_query__warnings_are_on_standard_error(call):
    code, out, err = call("P(v4 | v0=4)", "--run", "1")
    assert code == 0
    assert "'v4' and 'v0'" in err
    assert "'v4' and 'v0'" not in out
    content = json.loads(call("P(v4 | v0=4)", "--run", "1", "--json")[1])
    assert len(content["warnings"]) >= 1


def test_query__two_runs_are_compared(pipeline, call):
    assert call("P(v1 | v0=4)", "--run", "1", "--against", "2")[0] == 0
    content = json.loads(call("E(v1)", "--run", "1", "--against", "last", "--json")[1])
    (row,) = content["differences"]
    means = []
    for number in (1, 2):
        means.append(load_model(pipeline, number).ask("E(v1)", read_codes(pipeline, number)).value)
    np.testing.assert_allclose([row["first"], row["second"]], means)
    assert row["standard_error"] > 0


def test_query__file_of_questions(tmp_path, call):
    path = tmp_path / "questions.txt"
    path.write_text("# of the first movies\nP(v0)\n\nMI(v0; v1)\n", "utf-8")
    code, out, _ = call("--file", path, "--json")
    assert code == 0
    assert [each["question"] for each in json.loads(out)] == ["P(v0)", "MI(v0; v1)"]
    path.write_text("P(v0)\nP(v9)\n", "utf-8")
    code, out, err = call("--file", path)
    assert (code, out) == (3, "")
    assert "line 2" in err
    assert "'v9'" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["P(v0 | v1=9)"], 3, "'9'"),
        (["P(v0 | v1)", "--run", "7"], 4, "run 7"),
        (["P(v0)", "--against", "yesterday"], 2, "'yesterday'"),
        (["P(v0 | v1=4, v1=3)"], 2, "'v1'"),
        (["P(v0 v1=4)"], 2, None),
        ([], 2, "--file"),
        (["P(v0)", "--file", "x"], 2, "--file"),
        (["--file", "nowhere.txt"], 2, "nowhere.txt"),
        (["P(v0)", "--from", "guesses"], 2, "--from"),
        (["P(v0)", "--budget", "much"], 2, "--budget"),
        (["P(v0)", "--level", "95"], 2, "level"),
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


def test_query__samples_of_a_wide_schema_are_counted(pipeline, call, monkeypatch):
    question = "P(v0 | v1=4, v2=1)"
    known = json.loads(call(question, "--json")[1])
    monkeypatch.setattr(evidence, "MAX_LEVELS", 3)
    assert json.loads(call(question, "--json")[1]) == known
    assert known["support"]["given"][0]["is_exact"]


def test_query__a_store_that_may_only_be_read_is_answered(pipeline, call, monkeypatch):
    from pmflib.base import StoreError
    from pmflib.store import Store

    question = "E(v1 | v0=1, v2=3, v3<4)"
    known = json.loads(call(question, "--json")[1])
    n_tables = len(list_tables(pipeline))

    def refuse(*arguments, **options):
        raise StoreError("read only")

    monkeypatch.setattr(Store, "build", refuse)
    assert json.loads(call(question, "--json")[1]) == known
    other = "E(v1 | v0=2, v2=3, v3<4)"
    found = json.loads(call(other, "--json")[1])
    assert len(list_tables(pipeline)) == n_tables
    monkeypatch.undo()
    assert json.loads(call(other, "--json")[1]) == found


def test_query__loads_nothing_heavy_once_tables_are_kept(pipeline, call):
    question = "P(v0 | v1=4, v2=0, v3=1)"
    assert call(question)[0] == 0
    code = (
        "import sys; from pmflib_flows.cli import main\n"
        f"sys.argv = ['pmf', 'query', {str(pipeline.path)!r}, {question!r}, '--json']\n"
        "try:\n    main()\n"
        "except SystemExit:\n"
        "    heavy = {'numba', 'scipy.optimize', 'scipy.stats', 'dask', 'prefect', 'sklearn', 'zarr'}\n"
        "    heavy |= {'pandas', 'pyarrow.compute'}\n"
        "    print(heavy & {*sys.modules}, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
    assert json.loads(done.stdout)["levels"]


def test_status__says_what_the_live_model_is_worth(pipeline, monkeypatch, capsys):
    from pmflib.answering import EquivalentSamples

    live = find_live(pipeline.store, "pipeline")
    model = pmf.JointPMF.load(pipeline.store.locate(live) / "model")
    known = EquivalentSamples.from_json(model.origin["equivalent_samples"])
    assert known.n_questions > 0
    assert call_command(monkeypatch, "status", pipeline.path, "--json") == 0
    found = json.loads(capsys.readouterr().out)["equivalent_samples"]
    assert found.pop("text") == str(known)
    assert EquivalentSamples.from_json(found) == known


def test_query__margins_without_the_feature_are_refused_in_words(call, monkeypatch, tmp_path):
    monkeypatch.setattr("pmflib.features.FEATURES", ())
    code, _, said = call("P(v1)", "--margins", tmp_path / "v0.csv")
    assert code == 2
    assert "this installation of pmflib rakes no models" in " ".join(said.split())
