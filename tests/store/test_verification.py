import json
import os
import shutil
from dataclasses import replace

import pytest

from pmflib.base import StoreError
from pmflib.store import (
    GRACE_HOURS,
    LIST_FILE,
    Reference,
    RunRecord,
    Store,
    append_record,
    digest_file,
    find_live,
    mark_draft,
    remember_export,
    seal,
    unseal,
    verify_store,
    write_fingerprint,
)

RUN = RunRecord("run", "promoted", "better", "then", "now", "digest", {})


def build(store, kind, text, **inputs):
    def write(folder, work):
        (folder / "deep").mkdir()
        (folder / "deep" / "table.parquet").write_text(text)
        (folder / "meta.json").write_text("{}")
        return {"rows": 3}

    made = store.build(kind, inputs=inputs, options={"text": text}, version=1, write=write)
    return made.reference


@pytest.fixture
def stages(tmp_path):
    """Give the references of a store of two artefacts and their raw file, and of two runs."""
    store = Store(tmp_path / "store")
    source = store.record_source("raw.csv", "d" * 64, {}).reference
    dataset = build(store, "dataset", "one", source=source)
    model = build(store, "model", "two", dataset=dataset)
    run = replace(RUN, stages={"dataset": dataset, "model": model}, live=model)
    append_record(store, "p", run)
    append_record(store, "p", replace(run, outcome="kept"))
    (store.root / ".prefect").mkdir()
    return {"source": source, "dataset": dataset, "model": model}


@pytest.fixture
def store(tmp_path, stages):
    return Store(tmp_path / "store")


def list_damages(store, *, older_than=0, **options):
    found = verify_store(store, older_than=older_than, **options)
    return [(each.problem, each.location) for each in found.damages]


def manifest_of(reference):
    return f"manifest/{reference.identity}.json"


def test_verify_store__whole_store(store):
    found = verify_store(store)
    assert (found.n_whole, found.damages) == (2, ())
    # a run under way has drafts, checkpoints, and folders that are not in the manifest yet
    (store.root / "tmp" / mark_draft("model")).mkdir()
    (store.root / "manifest" / mark_draft(".entry")).write_text("")
    (store.root / "work" / ("a" * 64)).mkdir()
    (store.root / "model" / ("a" * 24)).mkdir()
    assert list_damages(store, older_than=GRACE_HOURS) == []
    # one that is older was left
    assert list_damages(store) == [("orphan folder", f"model/{'a' * 24}")]


@pytest.mark.parametrize(
    "damage", ["flip", "drop", "add", "rename", "list", "both", "link", "inner"]
)
def test_verify_store__damaged_content(store, stages, damage):
    folder = store.locate(stages["model"])
    file = folder / "deep" / "table.parquet"
    if damage == "flip":
        file.write_text("tWo")
    elif damage == "drop":
        file.unlink()
    elif damage == "add":
        (folder / "more").write_text("")
    elif damage == "rename":
        file.rename(folder / "table.parquet")
    elif damage == "list":
        (folder / LIST_FILE).unlink()
    elif damage == "both":
        # a file and its line in the list: the folder's name does not fit any more
        file.write_text("tWo")
        listed = json.loads((folder / LIST_FILE).read_text())
        listed["deep/table.parquet"] = digest_file(file)
        (folder / LIST_FILE).write_text(json.dumps(listed))
    elif damage == "inner":
        # what a link leads to is not the store's, be it the same bytes today
        file.rename(store.root.parent / "elsewhere")
        file.symlink_to(store.root.parent / "elsewhere")
    else:
        shutil.move(folder, store.root.parent / "elsewhere")
        folder.symlink_to(store.root.parent / "elsewhere")
    found = verify_store(store)
    assert found.n_whole == 1
    (one,) = found.damages
    assert (one.problem, one.location) == ("damaged content", stages["model"].path)
    assert str(store.root) not in one.location + one.detail


def test_verify_store__folders_that_are_gone(store, stages):
    # rm -r store/model/*
    shutil.rmtree(store.locate(stages["model"]))
    assert list_damages(store) == [("missing folder", stages["model"].path)]
    shutil.rmtree(store.root / "dataset")
    assert len(list_damages(store)) == 2


def test_verify_store__entries_that_are_gone(store, stages):
    (store.root / manifest_of(stages["model"])).unlink()
    # the run refers to it
    assert list_damages(store) == [
        ("missing entry", manifest_of(stages["model"])),
        ("orphan folder", stages["model"].path),
    ]
    (store.root / manifest_of(stages["source"])).unlink()
    # the dataset refers to it
    assert ("missing entry", manifest_of(stages["source"])) in list_damages(store)


EDITS = [
    lambda entry: entry | {"version": 2},
    lambda entry: entry | {"options": {}},
    lambda entry: entry | {"reference": entry["reference"] | {"digest": "../" * 8}},
    lambda entry: entry | {"reference": entry["reference"] | {"kind": "../etc"}},
    lambda entry: entry | {"reference": 3},
    lambda entry: entry | {"inputs": None},
]
"""Edits that are seen even with the right checksum."""
SEALED = [
    lambda entry: entry | {"summary": {"rows": 4}},
    lambda entry: entry | {"reference": entry["reference"] | {"path": "/etc/ssh"}},
]
"""Edits that the checksum shows."""


@pytest.mark.parametrize("edit", [*EDITS, *SEALED])
def test_verify_store__edited_entries(store, stages, edit):
    path = store.root / manifest_of(stages["model"])
    checksum = json.loads(path.read_bytes())["checksum"]
    edited = edit(unseal(path.read_bytes()))
    path.write_text(json.dumps(edited | {"checksum": checksum}))
    assert ("edited entry", manifest_of(stages["model"])) in list_damages(store)
    if edit in EDITS:
        path.write_bytes(seal(edited))
        assert ("edited entry", manifest_of(stages["model"])) in list_damages(store)
    assert not any("etc" in each.location for each in verify_store(store).damages)


def test_verify_store__entry_of_another_content(store, stages):
    path = store.root / manifest_of(stages["dataset"])
    other = build(store, "dataset", "other")
    entry = unseal(path.read_bytes())
    entry["reference"]["digest"] = other.digest
    path.write_bytes(seal(entry))
    assert list_damages(store) == [
        ("edited entry", manifest_of(stages["dataset"])),
        ("orphan folder", stages["dataset"].path),
    ]


def test_verify_store__newest_records_and_whole_histories_are_missed(store):
    folder, missing = store.root / "runs" / "p", [f"runs/p/00000{n}.json" for n in (1, 2)]
    (folder / "000002.json").unlink()
    assert list_damages(store) == [("missing record", missing[1])]
    # its number is not given again: the hole stays until somebody says that the record is lost
    assert append_record(store, "p", RUN).number == 3
    assert list_damages(store) == [("missing record", missing[1])]
    (folder / "000002.lost").write_text("")
    assert list_damages(store) == []
    for gone in (folder, folder.parent):
        shutil.rmtree(gone, ignore_errors=True)
        assert ("missing record", missing[0]) in list_damages(store)
        assert ("missing record", missing[1]) in list_damages(store)
    store.objects.put("histories/p", b"x")
    assert list_damages(store) == [("damaged count", "histories/p")]
    store.objects.delete(["histories/p"])
    assert list_damages(store) == []


def test_verify_store__what_is_remembered_of_files_outside(store, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("a page")
    remember_export(store, "report", page, [page])
    assert list_damages(store) == []
    (path,) = (store.root / "exports").iterdir()
    path.write_text(path.read_text().replace("page.html", "else.html"))
    assert list_damages(store) == [("damaged export", f"exports/{path.name}")]


def test_verify_store__records(store):
    folder = store.root / "runs" / "p"
    whole = (folder / "000001.json").read_text()
    (folder / "000001.json").write_text(whole.replace("better", "worse"))
    assert list_damages(store) == [("damaged record", "runs/p/000001.json")]
    (folder / "000001.json").unlink()
    assert list_damages(store) == [("missing record", "runs/p/000001.json")]
    (folder / "000001.lost").write_text("")
    assert list_damages(store) == []
    (folder / "000002.json").rename(folder / "000001.json")
    assert list_damages(store) == [
        ("damaged record", "runs/p/000001.json"),
        ("missing record", "runs/p/000002.json"),
    ]
    (folder / "000001.json").rename(folder / "000001.lost")
    (folder / "000002.lost").write_text("")
    assert list_damages(store) == []
    # the numbers of lost runs are not given again
    assert append_record(store, "p", RUN).number == 3


def test_verify_store__a_record_in_whose_place_is_a_folder_or_a_link(store, tmp_path):
    record = store.root / "runs" / "p" / "000002.json"
    record.rename(tmp_path / "kept")
    record.mkdir()
    assert list_damages(store) == [("damaged record", "runs/p/000002.json")]
    # history and live model are not those of the run before
    with pytest.raises(StoreError, match=r"000002\.json"):
        find_live(store, "p")
    with pytest.raises(StoreError, match=r"000002\.json"):
        append_record(store, "p", RUN, lambda record, live: record)
    record.rmdir()
    record.symlink_to(tmp_path / "kept")
    assert list_damages(store) == [("damaged record", "runs/p/000002.json")]
    (tmp_path / "kept").unlink()
    assert list_damages(store) == [("damaged record", "runs/p/000002.json")]


def test_verify_store__an_entry_in_whose_place_is_a_folder_or_a_link(store, stages, tmp_path):
    location = manifest_of(stages["model"])
    entry = store.root / location
    entry.rename(tmp_path / "kept")
    entry.symlink_to(tmp_path / "kept")
    assert ("foreign file", location) in list_damages(store)
    entry.unlink()
    entry.mkdir()
    assert ("foreign file", location) in list_damages(store)


def test_verify_store__fingerprints(store):
    write_fingerprint(store.objects, "a" * 64, {"size": 3}, "d" * 64)
    write_fingerprint(store.objects, "b" * 64, {"size": 4}, "e" * 64)
    assert list_damages(store) == []
    one, other = ("fingerprints/" + letter * 64 + ".json" for letter in "ab")
    whole = (store.root / one).read_bytes()
    for damaged in (whole.replace(b"dd", b"de"), b"", (store.root / other).read_bytes()):
        (store.root / one).write_bytes(damaged)
        assert list_damages(store) == [("damaged fingerprint", one)]
    (store.root / one).unlink()
    assert list_damages(store) == []


def test_verify_store__events(store):
    events = store.root / "lineage" / "events.jsonl"
    events.parent.mkdir()
    for damaged in ('{"a": 1}\n{"b"}\n', '{"a"\n{"b": 2}\n', '{"a"\n{"b'):
        events.write_text(damaged)
        assert list_damages(store) == [("damaged events", "lineage/events.jsonl")]
    for whole in ('{"a": 1}\n{"b": 2}\n', '{"a": 1}'):
        events.write_text(whole)
        assert list_damages(store) == []
        assert verify_store(store).torn == ()
    events.write_text('{"a": 1}\n{"b')
    assert list_damages(store) == []
    assert verify_store(store).torn == ("lineage/events.jsonl",)

    def refuse(line):
        raise ValueError("it has been edited")

    assert list_damages(store, read_event=refuse) == [("damaged events", "lineage/events.jsonl")]
    events.unlink()
    events.mkdir()
    assert list_damages(store) == [("foreign file", "lineage/events.jsonl")]


def test_store__that_has_lost_its_manifest_is_not_opened(store):
    (store.root / "manifest").rename(store.root.parent / "kept")
    with pytest.raises(StoreError, match="'manifest'"):
        Store(store.root)
    assert not (store.root / "manifest").exists()
    (store.root.parent / "kept").rename(store.root / "manifest")
    assert list_damages(Store(store.root)) == []


def test_verify_store__what_pmf_did_not_write(store):
    for name in (
        "notes",
        "Notes.txt",
        ".DS_Store",
        "model/notes",
        "manifest/notes",
        "tmp/notes",
        "work/notes",
        "runs/notes",
        "runs/p/notes",
        "leases/notes",
        "model/\x1b[31m\udcff",
    ):
        (store.root / os.fsencode(name).decode("utf-8", "surrogateescape")).write_text("")
    (store.root / "model" / ("b" * 24)).mkdir()
    found = list_damages(store)
    assert ("orphan folder", f"model/{'b' * 24}") in found
    assert ("foreign file", r"model/\x1b[31m\udcff") in found
    assert len(found) == 12


def test_verify_store__what_was_collected_on_purpose(store, stages):
    old = build(store, "model", "old", dataset=stages["dataset"])
    run = replace(RUN, stages={"model": old}, live=old)
    for each in (run, replace(run, stages={"model": stages["model"]}, live=stages["model"])):
        append_record(store, "q", each)
    shutil.rmtree(store.locate(old))
    (store.root / manifest_of(old)).unlink()
    assert list_damages(store) == [("missing entry", manifest_of(old))]
    assert list_damages(store, collected={"q": {1}}) == []
    # the live model is never collected
    assert list_damages(store, collected={"q": {1, 2}}) == []
    (store.root / manifest_of(stages["model"])).unlink()
    assert len(list_damages(store, collected={"q": {1, 2}, "p": {1, 2}})) == 2
    build(store, "model", "two", dataset=stages["dataset"])
    # an input that its artefact does without
    (store.root / manifest_of(stages["source"])).unlink()
    assert list_damages(store, collected={"q": {1}}) == [
        ("missing entry", manifest_of(stages["source"]))
    ]
    assert (
        list_damages(
            store, collected={"q": {1}}, is_needed=lambda entry, each: each.kind != "source"
        )
        == []
    )


def test_verify_store__references_are_those_of_the_entries(store, stages):
    wrong = Reference("model", stages["model"].identity, "e" * 64)
    append_record(store, "p", replace(RUN, live=wrong))
    assert list_damages(store) == [("edited entry", manifest_of(stages["model"]))]
