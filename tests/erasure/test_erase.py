"""Erasure as a person meets it: the command, the nights after it, and what the other commands say."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import pmflib_tasks
from pmflib.ingest import readers, sources
from pmflib.ingest.csv import rows
from pmflib.store import find_last_run
from pmflib_tasks.erasure.removal import list_kinds
from pmflib_tasks.feature import Feature, Place
from pmflib_tasks.features import FEATURES
from pmflib_tasks.holdings import ErasedRows, Holder, describe_rows
from tests.erasure.stored_texts import find_texts
from tests.factories import run_command
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.pipelines import read_dataset

OPTIONS = {"em": {"max_passes": 3}, "store": {"folds": 4}}
CODES = draw_ratings(90, 4)
GONE = ["u-person-025-x", "u-person-005-x"]


def name_users(pipeline):
    return {name for name in read_dataset(pipeline.config, last(pipeline)["dataset"])[1]}


def last(pipeline):
    return find_last_run(pipeline.store, "pipeline").stages


def deliver(pipeline, name, codes, users):
    """Write a file of ratings of users whose names cannot be anything else."""
    lines = ["user,movie,rating,ts"]
    for user, row in zip(users, codes.tolist(), strict=True):
        rated = [(movie, code) for movie, code in enumerate(row) if code >= 0]
        lines += [f"u-person-{user:03}-x,v{movie},{code},1" for movie, code in rated]
    (pipeline.log / name).write_text("\n".join(lines) + "\n")


def spoil(path, user):
    """Add rows of a user that do not fit: a level, a variable, a field too many, text after a quotation mark."""
    with path.open("a") as file:
        file.write(
            f'{user},v0,9,1\n{user},x,1,1\n{user},v1,1,1,1\n"{user}"x,v1,1,1\n{user},v0,2,2\n'
        )


@pytest.fixture(scope="module")
def erased_once(tmp_path_factory):
    """Folder of a pipeline after three nights, predictions, and the erasure of two users; and its certificate."""
    folder = tmp_path_factory.mktemp("erased")
    with pytest.MonkeyPatch.context() as patch:
        pipeline = Nights(folder, make_movies(4), patch, **OPTIONS)
        for night, stop in enumerate((40, 60, 80)):
            start = stop - 40 if night else 0
            deliver(pipeline, f"{night}.csv", CODES[start:stop], range(start, stop))
            spoil(pipeline.log / f"{night}.csv", f"u-person-{start + 5:03}-x")
            pipeline.run()
        run_command(folder, "score", pipeline.path, "--target", "v0")
        (folder / "asked.csv").write_text("user,movie\nu-person-025-x,v1\nu-person-007-x,v2\n")
        run_command(folder, "score", pipeline.path, "--questions", "asked.csv")
        before = find_texts(pipeline.store.root, GONE)
        kinds = {path.relative_to(pipeline.store.root).parts[0] for path in before}
        assert kinds == {"answers", "predictions", "samples", "spill"}
    words = ["erase", folder / "pipeline.toml", "--sample", GONE[0], "--sample", GONE[1], "--json"]
    return folder, json.loads(run_command(folder, *words))


@pytest.fixture
def erased(erased_once, nights, tmp_path):
    """A copy of it."""
    folder, certificate = erased_once
    shutil.copytree(folder, tmp_path / "pipeline")
    pipeline = nights(4, **OPTIONS)
    pipeline.certificate = certificate
    return pipeline


@pytest.mark.needs("apps.scoring")
def test_erase__no_byte_of_the_store_holds_them_and_every_command_works_on(erased, call):
    found, certificate = find_texts(erased.store.root, GONE), erased.certificate
    assert not found
    assert certificate["samples_found"] == 2
    kinds = {"spill", "samples", "dataset", "counts", "marginals", "predictions", "answers"}
    assert kinds == {*certificate["artefacts"]}
    assert not any(name in json.dumps(certificate) for name in GONE)
    assert name_users(erased).isdisjoint(GONE)
    assert call("verify", erased.path)[0] == 0, call("verify", erased.path)
    shown = call("history", erased.path)[1]
    assert "erase" in shown
    code, diff, err = call("diff", erased.path, 2, "last", "--json")
    assert code == 0, err
    assert json.loads(diff)["missing"]
    assert "(erased)" in call("log", erased.path)[1]
    assert "rewritten" not in call("log", erased.path)[2]
    status = json.loads(call("status", erased.path, "--json")[1])["erased"]
    assert status["samples"] == 2
    assert not status["unfinished"]
    assert {each["name"] for each in status["raw_files"]} == {"0.csv", "1.csv"}
    assert "0.csv" in call("status", erased.path)[1]
    assert call("gc", erased.path, "--keep-runs", 1, "--older-than", 0)[0] == 0
    assert call("verify", erased.path)[0] == 0
    code, _, err = call("log", erased.path, "--sample", GONE[0])
    assert (code, repr(GONE[0]) in err) == (3, True), err


@pytest.mark.needs("apps.scoring")
def test_erase__what_no_installed_feature_answers_for_is_not_certified(erased, call, monkeypatch):
    def write(folder, work):
        (folder / "toys.txt").write_text(GONE[0])
        return {}

    erased.store.build("toys", inputs={}, options={}, version=1, write=write)
    code, _, err = call("erase", erased.path, "--sample", "u-person-030-x")
    assert code == 4
    assert "artefacts of kinds ['toys'], which may hold samples" in " ".join(err.split())

    def look(folder, entry, gone):
        name = (folder / "toys.txt").read_text().encode()
        return describe_rows(1, pa.array([name]), gone) if gone.holds(name) else ErasedRows()

    # a feature that makes them says what they hold
    toy = Feature("toy", erase=Place("tests.erasure.test_erase:TOY"))
    monkeypatch.setattr("tests.erasure.test_erase.TOY", Holder({"toys": look}), raising=False)
    monkeypatch.setattr("pmflib_tasks.features.FEATURES", (*FEATURES, toy))
    code, out, err = call("erase", erased.path, "--json")
    assert code == 0, err
    assert json.loads(out)["artefacts"]["toys"]["deleted"] == 1
    assert not find_texts(erased.store.root, [GONE[0], "u-person-030-x"])


def test_every_kind_of_artefact_is_answered_for():
    tasks = Path(pmflib_tasks.__file__).parent
    texts = [path.read_text("utf-8") for path in tasks.rglob("*.py")]
    made = {kind for text in texts for kind in re.findall(r'makes="([^"]+)"', text)}
    assert made <= list_kinds().keys()


@pytest.mark.slow
def test_erase__the_next_night_reads_what_is_new_and_brings_nobody_back(erased, call, monkeypatch):
    read = []
    monkeypatch.setattr(sources, "MARGIN", -60.0)
    erased.run()
    opened = sources.open_source

    def follow(source, *args, **options):
        read.append(source.name)
        return opened(source, *args, **options)

    for module in (sources, rows, readers):
        monkeypatch.setattr(module, "open_source", follow)
    facts = erased.run()
    assert not read
    assert facts["refit"]["way"] != "warm"
    # one of them is in tomorrow's file as well
    deliver(erased, "3.csv", CODES[24:90], range(24, 90))
    facts = erased.run()
    assert {*read} == {"3.csv"}
    assert facts["rows"]["rows_erased"] > 0
    assert name_users(erased).isdisjoint(GONE)
    assert not find_texts(erased.store.root, GONE)
    # answers are not given about them either
    assert call("score", erased.path, "--questions", erased.folder / "asked.csv")[0] == 0
    assert not find_texts(erased.store.root, GONE)
    # the rows are taken out of the raw files: nothing is left to say
    for path in erased.log.iterdir():
        lines = path.read_text().splitlines()
        path.write_text("\n".join(x for x in lines if not any(name in x for name in GONE)) + "\n")
    erased.run()
    assert not json.loads(call("status", erased.path, "--json")[1])["erased"]["raw_files"]
    # who comes back stays out, until that is taken back
    deliver(erased, "4.csv", CODES[25:26], range(25, 26))
    erased.run()
    assert name_users(erased).isdisjoint(GONE)
    code, out, _ = call("erase", erased.path, "--forget", "--sample", GONE[0], "--json")
    assert (code, json.loads(out)) == (0, {"forgotten": 1})
    erased.run()
    assert name_users(erased) & {*GONE} == {GONE[0]}


@pytest.mark.needs("apps.scoring")
def test_erase__models_fitted_before_are_listed_and_the_next_fit_is_from_scratch(erased, call):
    models = erased.certificate["models_fitted_before"]
    assert [each["live"] for each in models].count(True) == 1
    facts = erased.run()
    assert facts["refit"]["way"] == "fresh"
    # until a model that has not seen them is live
    assert facts["outcome"] == "kept"
    assert erased.run()["refit"]["way"] == "fresh"
    assert call("promote", erased.path)[0] == 0
    deliver(erased, "3.csv", CODES[80:], range(80, 90))
    assert erased.run()["refit"]["way"] == "warm"


def test_erase__refuses_what_it_cannot_do(nights, call, tmp_path):
    pipeline = nights(3, **OPTIONS)
    assert call("erase", pipeline.path)[0] == 2
    assert "--sample" in call("erase", pipeline.path)[2]
    code, _, err = call("erase", pipeline.path, "--sample", " ")
    assert (code, "empty" in err) == (2, True)
    code, _, err = call("erase", pipeline.path, "--file", tmp_path / "absent.txt")
    assert (code, "absent.txt" in err) == (2, True)
    pipeline.configure(source={"path": "log", "layout": "wide"}, **OPTIONS)
    code, _, err = call("erase", pipeline.path, "--sample", "u1")
    assert (code, "source.sample" in err) == (2, True)


def test_erase__names_what_was_written_outside_and_lines_of_others_that_mention_them(
    nights,
    call,
    tmp_path,
):
    pipeline = nights(4, **OPTIONS)
    deliver(pipeline, "0.csv", draw_ratings(40, 4), range(40))
    spoil(pipeline.log / "0.csv", "u-person-005-x")
    gone, other = "u-person-005-x", "u-person-009-x"
    with (pipeline.log / "0.csv").open("a") as file:
        file.write(f"{other},as {gone} said,1,1\n")
    pipeline.run()
    outputs = {"report": tmp_path / "r.html", "quarantine": tmp_path / "q.csv"}
    for command, output in outputs.items():
        assert call(command, pipeline.path, "--output", output)[0] == 0
    code, found, err = call("erase", pipeline.path, "--find", "--sample", gone, "--json")
    assert code == 0, err
    before = json.loads(found)
    # rows of one who is yet to be erased, and that of another
    assert sum(other in each["text"] for each in before if "quarantine" in each["location"]) == 1
    assert {each["location"] for each in before} >= {
        "quarantine, 0.csv",
        str(outputs["quarantine"]),
    }
    assert not (pipeline.store.root / "erasures.json").exists()
    code, made, err = call("erase", pipeline.path, "--sample", gone, "--json")
    assert code == 0, err
    certificate = json.loads(made)
    assert certificate["mentions_in_store"] == 1
    outside = {each["kind"]: each for each in certificate["written_outside"]}
    assert {kind: each["path"] for kind, each in outside.items()} == {
        kind: str(path) for kind, path in outputs.items()
    }
    assert {each["state"] for each in outside.values()} == {"as written"}
    assert outside["quarantine"]["mentions"] > 1
    assert call("verify", pipeline.path)[0] == 0
    # somebody deletes one: the next certificate says so
    outputs["quarantine"].unlink()
    made = json.loads(call("erase", pipeline.path, "--sample", "u-person-006-x", "--json")[1])
    states = {each["kind"]: each["state"] for each in made["written_outside"]}
    assert states == {"report": "as written", "quarantine": "gone"}
    assert made["mentions_in_store"] == 0
    found = json.loads(call("erase", pipeline.path, "--find", "--sample", gone, "--json")[1])
    # the page shows the row as well
    assert {each["location"] for each in found} == {"quarantine, 0.csv", str(outputs["report"])}


def test_erase__that_goes_on_without_the_identifiers_says_that_texts_were_not_searched(
    nights,
    call,
    monkeypatch,
):
    pipeline = nights(3, **OPTIONS)
    deliver(pipeline, "0.csv", draw_ratings(30, 3), range(30))
    pipeline.run()
    with monkeypatch.context() as patch:

        def stop(*arguments):
            raise KeyboardInterrupt

        patch.setattr("pmflib_tasks.erasure.removal.find_holdings", stop)
        assert call("erase", pipeline.path, "--sample", "u-person-005-x")[0] == 130
    code, made, err = call("erase", pipeline.path, "--json")
    assert code == 0, err
    assert json.loads(made)["mentions_in_store"] is None
    assert call("erase", pipeline.path, "--find")[0] == 2
