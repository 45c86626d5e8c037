"""Copying a store as a person does it: the command, and what works on the copy."""

import json
import shutil

import pytest

from pmflib.store.artefacts import Store
from pmflib.store.run_records import find_last_run, find_live
from pmflib_tasks.config import load_config
from tests.flows.nights import Nights, draw_ratings, make_movies

OPTIONS = {"em": {"max_passes": 3}, "store": {"folds": 4}}
CODES = draw_ratings(90, 4)


@pytest.fixture(scope="module")
def first_night(tmp_path_factory):
    """Folder of a pipeline after its first night."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("first night")
        pipeline = Nights(folder, make_movies(4), patch, **OPTIONS)
        pipeline.deliver("0.csv", CODES[:60], range(60))
        pipeline.run()
    return folder


@pytest.fixture
def pipeline(first_night, nights, tmp_path):
    """A pipeline of a copy of it."""
    shutil.copytree(first_night, tmp_path / "pipeline")
    return nights(4, **OPTIONS)


def point_to(pipeline, folder):
    """Let the pipeline use another store."""
    pipeline.configure(em={"max_passes": 3}, store={"folds": 4, "path": str(folder)})
    return load_config(pipeline.path)


def list_made(store):
    """What the last run made, but for the quality of its data, which is compared with the nights before it."""
    stages = find_last_run(store, "pipeline").stages
    return {stage: each for stage, each in stages.items() if stage != "quality"}


def test_copy__the_pipeline_goes_on_with_the_copy(pipeline, call, tmp_path):
    store = pipeline.store
    before = list_made(store)
    code, out, _ = call("copy", str(store.root), "backup", "--dry-run", "--json")
    assert code == 0
    would = json.loads(out)
    assert not (tmp_path / "backup").exists()
    code, out, _ = call("copy", str(store.root), "backup", "--json")
    assert code == 0
    done = json.loads(out)
    assert (done["from"], done["to"]) == (str(store.root), "backup")
    again = json.loads(call("copy", str(store.root), "backup", "--verify", "--json")[1])
    assert (again["entries"], again["records"]) == (0, 0)
    assert done["entries"] == would["entries"] > 5
    assert done["records"] == 1
    copied = Store(tmp_path / "backup")
    assert find_live(copied, "pipeline") == find_live(store, "pipeline")
    point_to(pipeline, tmp_path / "backup")
    facts = pipeline.run()
    assert facts["outcome"] == "unchanged"
    assert list_made(copied) == before
    for words in (["verify"], ["history"], ["query", "v0"], ["log"]):
        code, out, err = call(words[0], str(pipeline.path), *words[1:])
        assert code == 0, err
    # the next night is the same wherever it is
    pipeline.deliver("1.csv", CODES[60:], range(60, 90))
    pipeline.run()
    there = list_made(copied)
    point_to(pipeline, store.root)
    pipeline.run()
    assert list_made(store) == there


def test_copy__to_a_bucket_and_from_there(pipeline, bucket, call, tmp_path):
    store, address = pipeline.store, f"s3://{bucket}/store"
    before = list_made(store)
    code, _, err = call("copy", address, "back")
    assert code == 2
    assert f"STORE_A '{address}'" in err
    for words in ([], ["--verify"]):
        code, _, err = call("copy", str(store.root), address, *words)
        assert code == 0, err
    point_to(pipeline, address)
    assert pipeline.run()["outcome"] == "unchanged"
    assert list_made(pipeline.store) == before
    for words in (["verify"], ["gc", "--keep-runs", "1"], ["verify"], ["status"], ["query", "v0"]):
        code, _, err = call(words[0], str(pipeline.path), *words[1:])
        assert code == 0, err
    code, out, err = call("copy", address, "back", "--json")
    assert code == 0, err
    assert json.loads(out)["from"] == address
    assert list_made(Store(tmp_path / "back")) == before


def test_copy__mistakes_are_answered_with_the_remedy(pipeline, call, tmp_path):
    root = str(pipeline.store.root)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    for words, code, text in [
        (["nowhere", "backup"], 2, "'nowhere'"),
        ([root, "other"], 2, "'other'"),
        ([root, root], 2, root),
        ([root, "backup", "--pipeline", "x"], 2, "--pipeline"),
    ]:
        found, _, err = call("copy", *words)
        assert found == code
        assert text in err
    assert not (tmp_path / "nowhere").exists()
    path = next((pipeline.store.root / "dataset").glob("*/*.json"))
    path.write_bytes(b"x")
    code, _, err = call("copy", root, "backup")
    assert code == 4
    assert path.name in err
