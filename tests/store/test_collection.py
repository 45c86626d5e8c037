"""What `pmf gc` deletes, and what survives it."""

import json
import os
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.base import StoreError
from pmflib.store import (
    COLLECTIONS,
    RunRecord,
    Store,
    append_record,
    collect,
    is_needed,
    list_collected_runs,
    list_records,
    replace_file,
    verify_store,
)
from pmflib.store.artefacts import NO_KINDS
from pmflib.store.care import collection

RUN = RunRecord("run", "kept", "", "then", "now", "", {})


def build(store, kind, number, inputs=(), *, content=None):
    """Give the entry of a small artefact."""

    def write(folder, work):
        (folder / "content").write_text(str(number if content is None else content))
        return {}

    roles = {f"input {index}": entry.reference for index, entry in enumerate(inputs)}
    return store.build(kind, inputs=roles, options={"n": number}, version=1, write=write)


def record(store, stages, *, pipeline="p", live=None, **changes):
    references = {stage: entry.reference for stage, entry in stages.items()}
    live = live and live.reference
    return append_record(store, pipeline, replace(RUN, stages=references, live=live, **changes))


def list_files(store, *folders):
    """Content of every file below some folders of a store, but for leases and records of collections."""
    return {
        path.relative_to(store.root).as_posix(): path.read_bytes()
        for path in sorted(store.root.rglob("*"))
        if path.is_file()
        and not path.relative_to(store.root)
        .as_posix()
        .startswith(("leases/", "runs/@gc", "histories/@gc"))
    }


def list_left(store):
    """Identities in the manifest, and folders of artefacts."""
    entries = {path.stem for path in (store.root / "manifest").glob("*.json")}
    kinds = [path for path in store.root.iterdir() if path.name not in NO_KINDS]
    return entries, {f"{k.name}/{path.name}" for k in kinds if k.is_dir() for path in k.iterdir()}


def run_nights(store, nights=4):
    """Give the entries of some runs, each from a source of its own and a partition that all share."""
    made = []
    shared = build(store, "samples", 0)
    for night in range(nights):
        source = store.record_source(f"day{night}.csv", f"{night:064x}", {"bytes": 10})
        own = build(store, "samples", 100 + night, [source])
        dataset = build(
            store, "dataset", night, [shared, own, *([made[-1]["dataset"]] if made else [])]
        )
        counts = build(store, "counts", night, [dataset])
        model = build(store, "model", night, [dataset, counts])
        made.append({"dataset": dataset, "counts": counts, "model": model})
        record(store, made[-1], live=model)
    return made, shared


def find_problems(store):
    """What `pmf verify` finds wrong."""
    found = verify_store(store, list_collected_runs(store), is_needed, older_than=0)
    return {each.problem for each in found.damages}


def identities(*entries):
    return {entry.reference.identity for entry in entries}


@st.composite
def plans(draw):
    """Artefacts by kind, inputs and content; and runs by the artefacts that they refer to."""
    size = draw(st.integers(1, 8))
    artefacts = []
    for index in range(size):
        inputs = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        kind = draw(st.sampled_from(["dataset", "counts", "samples"]))
        # a few contents, so that entries share folders
        artefacts.append((kind, sorted(inputs), draw(st.integers(0, 2))))
    pipelines = st.sampled_from(["p", "q"])
    stages = st.sets(st.integers(0, size - 1), max_size=2)
    runs = draw(st.lists(st.tuples(pipelines, stages), max_size=5))
    return artefacts, runs, draw(st.integers(1, 3))


@given(plans())
def test_collect__deletes_what_cannot_be_reached_and_nothing_else(plan):
    artefacts, runs, keep = plan
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        entries = []
        for index, (kind, inputs, content) in enumerate(artefacts):
            entries.append(
                build(store, kind, index, [entries[each] for each in inputs], content=content)
            )
        for pipeline, indices in runs:
            record(store, {str(index): entries[index] for index in indices}, pipeline=pipeline)
        needed = set()
        for pipeline in ("p", "q"):
            for _, indices in [run for run in runs if run[0] == pipeline][-keep:]:
                needed |= indices
        without = {("dataset", "dataset"), ("counts", "dataset")}
        for index in range(len(artefacts) - 1, -1, -1):
            if index in needed:
                kind, inputs, _ = artefacts[index]
                needed |= {each for each in inputs if (kind, artefacts[each][0]) not in without}
        counted = collect(store, keep, older_than=0, dry_run=True)
        assert len(list_left(store)[0]) == len(entries)
        found = collect(store, keep, older_than=0)
        kept = [entries[index] for index in needed]
        assert list_left(store) == (
            identities(*kept),
            {entry.reference.path for entry in kept},
        )
        assert find_problems(store) == set()
        assert sum(each.number for each in found.artefacts.values()) == len(entries) - len(kept)
        assert {kind: each.number for kind, each in counted.artefacts.items()} == {
            kind: each.number for kind, each in found.artefacts.items()
        }
        assert sum(each.number for each in found.kept.values()) == len(kept)


def test_collect__keeps_last_runs_whole_and_says_bytes(store):
    made, shared = run_nights(store)
    before = sum(map(len, list_files(store).values()))
    found = collect(store, 2, older_than=0)
    entries, _ = list_left(store)
    assert identities(shared, *made[2].values(), *made[3].values()) <= entries
    assert not identities(*made[0].values(), *made[1].values()) & entries
    assert [store.find(each.reference.identity) for each in made[3].values()] == [*made[3].values()]
    assert found.bytes == before - sum(map(len, list_files(store).values())) > 0
    assert found.artefacts["source"].number == 2
    assert list_collected_runs(store) == {"p": {1, 2}}
    assert len(list_records(store, "p")) == 4


def test_collect__again_finds_nothing_and_leaves_no_record(store):
    run_nights(store)
    collect(store, 1, older_than=0)
    found = collect(store, 1, older_than=0)
    assert (found.bytes, found.artefacts) == (0, {})
    assert len(list_records(store, COLLECTIONS)) == 1


def test_collect__dry_run_changes_nothing(store):
    run_nights(store)
    (store.root / "samples" / ("0" * 24)).mkdir()
    (store.root / "work" / "0").mkdir()
    (store.root / "tmp" / "draft-0123-4567").mkdir()
    before, folders = list_files(store), sorted(store.root.rglob("*"))
    found = collect(store, 1, older_than=0, dry_run=True)
    assert found.bytes > 0
    assert list_files(store) == before
    assert [path for path in sorted(store.root.rglob("*")) if "leases" not in path.parts] == [
        path for path in folders if "leases" not in path.parts
    ]
    assert list_records(store, COLLECTIONS) == []


def test_collect__models_of_other_pipelines_stay(store):
    made, _ = run_nights(store, 2)
    record(store, made[0], pipeline="other", live=made[0]["model"])
    assert collect(store, 1, older_than=0).artefacts == {}


def test_collect__results_are_kept_by_age(store):
    made, _ = run_nights(store, 3)
    old = build(store, "predictions", 1, [made[0]["dataset"], made[0]["model"]])
    new = build(store, "predictions", 2, [made[1]["dataset"], made[1]["model"]])
    os.utime(store.root / "manifest" / f"{old.reference.identity}.json", (1, 1))
    collect(store, 1, older_than=0)
    entries, _ = list_left(store)
    assert identities(new, made[1]["dataset"], made[1]["model"]) <= entries
    assert not identities(old, made[0]["dataset"], made[0]["model"]) & entries


def age_entry(store, entry, hours):
    """Let an entry be one that nobody has used for some hours."""
    then = time.time() - hours * 3600
    os.utime(store.root / "manifest" / f"{entry.reference.identity}.json", (then, then))


def test_collect__what_a_run_under_way_has_used_stays(store):
    made, shared = run_nights(store)
    for entry in store.entries():
        age_entry(store, entry, 25)
    # found, and so touched
    assert store.find(made[0]["counts"].reference.identity) is not None
    new = build(store, "samples", 50)
    collect(store, 1)
    entries, _ = list_left(store)
    assert identities(made[0]["counts"], new, shared) <= entries
    assert not identities(made[1]["counts"], made[0]["model"]) & entries
    # a run that takes longer is told by a longer grace
    for entry in (made[0]["counts"], new):
        age_entry(store, entry, 25)
    collect(store, 1, older_than=48)
    assert identities(made[0]["counts"], new) <= list_left(store)[0]
    collect(store, 1)
    assert not identities(made[0]["counts"], new) & list_left(store)[0]


def test_collect__touched_between_plan_and_deletion_stays(store, monkeypatch):
    made, shared = run_nights(store)
    write = append_record

    def use_it(*arguments):
        write(*arguments)
        # a run starts now, and finds a dataset
        assert store.find(made[0]["dataset"].reference.identity) is not None

    monkeypatch.setattr(collection, "append_record", use_it)
    for entry in store.entries():
        os.utime(store.root / "manifest" / f"{entry.reference.identity}.json", (1, 1))
    found = collect(store, 1, older_than=0)
    entries, _ = list_left(store)
    needed = {each.identity for each in made[0]["dataset"].inputs.values()}
    assert identities(made[0]["dataset"], shared) | needed <= entries
    assert not identities(made[0]["model"], made[0]["counts"], made[1]["dataset"]) & entries
    assert found.kept["dataset"].number == 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize("call", range(1, 40, 3))
def test_collect__killed_anywhere_leaves_a_valid_store(store, monkeypatch, call):
    made, _ = run_nights(store)
    calls = 0

    def kill(real):
        def act(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == call:
                raise Killed
            return real(*arguments, **options)

        return act

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", kill(os.rename))
        patch.setattr("shutil.rmtree", kill(shutil.rmtree))
        with pytest.raises(Killed):
            collect(store, 1, older_than=0)
    for entry in store.entries():
        for needed in entry.inputs.values():
            missing = store.find(needed.identity) is None
            assert not missing or (entry.reference.kind, needed.kind) in (
                ("dataset", "dataset"), ("counts", "dataset"),
            )  # fmt: skip
    assert find_problems(store) <= {"orphan folder"}
    assert [store.find(each.reference.identity) for each in made[3].values()] == [*made[3].values()]
    # what may be missing is said before anything is
    assert list_collected_runs(store) == {"p": {1, 2, 3}}
    collect(store, 1, older_than=0)
    entries, folders = list_left(store)
    stored = list(store.entries())
    assert entries == identities(*stored)
    assert folders == {entry.reference.path for entry in stored if entry.reference.path}
    assert len(stored) == 6


def test_collect__orphans_and_abandoned_work(store):
    run_nights(store, 2)
    orphan = store.root / "samples" / ("0" * 24)
    orphan.mkdir()
    (orphan / "chunk").write_bytes(b"12345")
    stranger = store.root / "samples" / "notes"
    stranger.mkdir()
    old, new = store.root / "work" / ("1" * 64), store.root / "work" / ("2" * 64)
    for folder in (old, new):
        folder.mkdir()
        (folder / "fold-0.npz").write_bytes(b"123")

    def age(hours):
        then = time.time() - hours * 3600
        for path in (old / "fold-0.npz", old, orphan):
            os.utime(path, (then, then))
        for path in (store.root / "runs" / "p").glob("*.json"):
            os.utime(path, (then + 60, then + 60))

    # it may have been published within the last hours, and such checkpoints may be in use
    age(23)
    assert collect(store, 2).bytes == 0
    age(25)
    assert collect(store, 2, older_than=26).bytes == 0
    found = collect(store, 2)
    assert {name: (each.number, each.bytes) for name, each in found.leftovers.items()} == {
        "orphans": (1, 5),
        "work": (1, 3),
    }
    assert not orphan.exists()
    assert not old.exists()
    assert new.exists()
    assert stranger.exists()


def test_collect__nothing_where_what_is_needed_cannot_be_known(store):
    made, _ = run_nights(store)
    before = list_left(store)
    path = store.root / "manifest" / f"{made[3]['model'].reference.identity}.json"
    whole = path.read_bytes()
    path.write_bytes(b"{")
    with pytest.raises(StoreError, match=path.name):
        collect(store, 1, older_than=0)
    path.write_bytes(whole)
    (store.root / "runs" / "p" / "000002.json").write_text(json.dumps([]))
    with pytest.raises(StoreError, match="runs/p/000002"):
        collect(store, 1, older_than=0)
    assert list_left(store) == before


def test_collect__two_at_a_time(store):
    made, _ = run_nights(store, 6)
    errors = []

    def work():
        try:
            collect(store, 1, older_than=0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    collect(store, 1, older_than=0)
    assert len(list_left(store)[0]) == 6
    assert find_problems(store) == set()
    assert store.find(made[-1]["model"].reference.identity) is not None


def test_drop__keeps_what_another_run_has_come_to(tmp_path):
    store = Store(tmp_path / "store")

    def build(option):
        def write(folder, work):
            (folder / "text").write_text("the same content")
            return {}

        return store.build("thing", inputs={}, options={"o": option}, version=1, write=write)

    folder = store.locate(build(1).reference)
    touched = folder.stat().st_mtime_ns
    build(2)
    name = folder.relative_to(store.root).as_posix()
    assert store.drop(name, touched) is None
    assert (folder / "text").read_text() == "the same content"
    assert store.drop(name, folder.stat().st_mtime_ns)
    assert not folder.exists()


def build_spill(store, number):
    """Build an artefact with rows and an account."""

    def write(folder, work):
        (folder / "rows-00.parquet").write_text("rows" * 100 + str(number))
        (folder / "account").write_text(str(number))
        return {}

    return store.build("spill", inputs={}, options={"n": number}, version=1, write=write)


def run_changes(store, nights=3):
    """Spills of some runs: one file stays as it is, the other changes every night."""
    kept, changing = build_spill(store, 0), []
    for night in range(1, nights + 1):
        changing.append(build_spill(store, night))
        listed = build(store, "spill-list", night, [kept, changing[-1]])
        record(store, {"dataset": build(store, "dataset", night, [listed])})
    return kept, changing


def list_rows(store, *spills):
    return [(store.locate(each.reference) / "rows-00.parquet").exists() for each in spills]


def test_collect__rows_of_earlier_runs_go_and_the_rest_of_these_stays(store):
    kept, changing = run_changes(store)
    before = list_files(store)
    planned = collect(store, 9, older_than=0, dry_run=True)
    assert list_files(store) == before
    found = collect(store, 9, older_than=0)
    assert planned.leftovers == found.leftovers
    assert (found.leftovers["rows"].number, found.leftovers["rows"].bytes) == (2, 2 * 401)
    assert list_rows(store, kept, *changing) == [True, False, False, True]
    assert all((store.locate(each.reference) / "account").exists() for each in changing)
    assert find_problems(store) == set()
    assert "rows" not in collect(store, 9, older_than=0).leftovers
    # what is lost besides is still told
    (store.locate(changing[0].reference) / "account").unlink()
    assert find_problems(store) == {"damaged content"}


def test_collect__an_artefact_whose_rows_went_is_found_but_built_again_where_it_is_needed(store):
    _, changing = run_changes(store)
    collect(store, 9, older_than=0)
    first = changing[0].reference
    assert store.find(first.identity) == changing[0]
    assert store.find_before(first.identity) is None
    assert build_spill(store, 1) == changing[0]
    assert list_rows(store, changing[0]) == [True]
    assert store.find_before(first.identity) == changing[0]
    assert find_problems(store) == set()


def test_collect__rows_of_a_spill_that_a_run_uses_meanwhile_stay(store, monkeypatch):
    _, changing = run_changes(store)

    def use_it(path, content):
        # a run has found the first spill just before
        store.find(changing[0].reference.identity)
        replace_file(path, content)

    monkeypatch.setattr(collection, "replace_file", use_it)
    for entry in store.entries():
        age_entry(store, entry, 25)
    collect(store, 9)
    assert list_rows(store, *changing) == [True, False, True]
    assert store.find_before(changing[0].reference.identity) is not None


def test_collect__killed_before_rows_are_gone_is_ended_by_the_next(store, monkeypatch):
    _, changing = run_changes(store)
    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            collect(store, 9, older_than=0)
    assert find_problems(store) == set()
    collect(store, 9, older_than=0)
    assert list_rows(store, *changing) == [False, False, True]
    assert find_problems(store) == set()
