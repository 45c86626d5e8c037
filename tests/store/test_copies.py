"""Copies of stores by tools that copy files: whole in the order of docs/copying.md, whatever grows meanwhile."""

import shutil

import pytest

from pmflib.store import (
    Store,
    collect,
    find_live,
    is_needed,
    keep_page,
    list_collected_runs,
    list_erased,
    list_records,
    verify_store,
)
from tests.store.copies import copy_artefacts, copy_files, copy_names, list_names, upload_files
from tests.store.test_collection import build, record, run_nights


@pytest.fixture
def source(tmp_path):
    store = Store(tmp_path / "source")
    run_nights(store)
    keep_page(store, "p", 1, b"<html>")
    return store


def list_damages(store):
    found = verify_store(store, list_collected_runs(store), is_needed, list_erased(store))
    return [(each.problem, each.location) for each in found.damages]


def add_night(store, night):
    """A run that ends while the store is copied."""
    source = store.record_source(f"late{night}.csv", f"{night:064x}", {"bytes": 10})
    dataset = build(store, "dataset", 1000 + night, [source])
    model = build(store, "model", 1000 + night, [dataset])
    return record(store, {"dataset": dataset, "model": model}, live=model)


def list_content(store):
    """Content of every file that a copy carries over."""
    return {
        name: (store.root / name).read_bytes()
        for folder in sorted({path.name for path in store.root.iterdir()})
        if folder not in ("tmp", "work", "leases", "histories", "fingerprints")
        for name in list_names(store, folder)
    }


def test_copy_files__is_the_same_store(source, tmp_path):
    collect(source, 2, older_than=0)
    copied = copy_files(source, tmp_path / "copied")
    assert list_damages(copied) == []
    assert list_content(copied) == list_content(source)
    assert find_live(copied, "p") == find_live(source, "p")
    # the history goes on where it was
    assert add_night(copied, 1) == add_night(source, 1)
    assert list_records(copied, "p") == list_records(source, "p")
    assert list_damages(copied) == []


def test_copy_files__everything_at_once_from_a_store_at_rest(source, tmp_path):
    shutil.copytree(source.root, tmp_path / "copied")
    assert list_damages(Store(tmp_path / "copied")) == []


def test_copy_files__again_every_night(source, tmp_path):
    copy_files(source, tmp_path / "copied")
    add_night(source, 1)
    copied = copy_files(source, tmp_path / "copied")
    assert list_damages(copied) == []
    assert list_content(copied) == list_content(source)


def test_copy_files__store_grows_at_each_step_and_the_copy_is_valid_at_each(source, tmp_path):
    target = tmp_path / "copied"
    names = {}
    for night, folder in enumerate(("runs", "manifest")):
        add_night(source, night)
        names[folder] = list_names(source, folder)
    add_night(source, 2)
    copy_artefacts(source, target)
    (target / "manifest").mkdir()
    copied = Store(target)
    # nothing refers to what is not there; what only the next copy refers to is there already, and young
    assert list_damages(copied) == []
    for night, folder in enumerate(("manifest", "runs")):
        add_night(source, 3 + night)
        copy_names(source, target, names[folder])
        assert list_damages(copied) == []
    assert len(list_records(copied, "p")) == 5
    live = find_live(copied, "p")
    assert copied.locate(live).is_dir()
    assert list_damages(copy_files(source, target)) == []
    assert len(list_records(copied, "p")) == 9


def test_copy_files__entries_that_are_listed_after_the_artefacts_may_lack_them(source, tmp_path):
    # why the page says to list them first
    copy_artefacts(source, tmp_path / "copied")
    add_night(source, 1)
    for folder in ("manifest", "runs"):
        copy_names(source, tmp_path / "copied", list_names(source, folder))
    found = {problem for problem, _ in list_damages(Store(tmp_path / "copied"))}
    assert found == {"missing folder"}


def test_copy_files__damage_on_the_way_is_found(source, tmp_path):
    copied = copy_files(source, tmp_path / "copied")
    path = next((copied.root / "counts").glob("*/content"))
    path.write_text("9")
    assert list_damages(copied) == [("damaged content", f"counts/{path.parent.name}")]


def test_upload_files__is_the_same_store(source, bucket):
    there = upload_files(source, f"s3://{bucket}/there")
    assert list_damages(there) == []
    assert find_live(there, "p") == find_live(source, "p")
    assert add_night(there, 1).number == 5
    assert list_damages(there) == []
