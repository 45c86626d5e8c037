import errno
import os
from dataclasses import replace

import pytest

from pmflib.base import StoreError
from pmflib.store import (
    Reference,
    RunRecord,
    Store,
    append_record,
    find_last_run,
    find_live,
    find_record,
    find_run_of,
    list_records,
    seal,
    unseal,
)

MODEL = Reference("model", "1" * 64, "a" * 64)
OTHER = Reference("model", "2" * 64, "b" * 64)
RUN = RunRecord(
    "run", "promoted", "better", "then", "now", "digest", {"model": MODEL}, MODEL, facts={"a": 1.5}
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_append_record__numbers_the_runs_of_each_pipeline(store):
    assert (find_live(store, "größe"), find_last_run(store, "größe")) == (None, None)
    first = append_record(store, "größe", RUN)
    second = append_record(store, "größe", replace(RUN, outcome="kept", number=7))
    append_record(store, "other", RUN)
    assert (first.number, second.number) == (1, 2)
    assert list_records(store, "größe") == [first, second]
    assert find_record(store, "größe", 1) == first
    assert [record.number for record in list_records(store, "other")] == [1]
    assert [path.name for path in sorted((store.root / "runs" / "größe").iterdir())] == [
        "000001.json",
        "000002.json",
    ]


def test_append_record__never_replaces_the_record_of_another_run(store, monkeypatch):
    append_record(store, "p", RUN)
    monkeypatch.setattr("pmflib.store.run_records.list_numbers", lambda store, name: [])
    monkeypatch.setattr("pmflib.store.run_records.read_last_number", lambda store, name: None)
    assert append_record(store, "p", replace(RUN, reason="at the same time")).number == 2
    monkeypatch.undo()
    assert [record.reason for record in list_records(store, "p")] == ["better", "at the same time"]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.EPERM])
def test_append_record__file_system_without_links(store, monkeypatch, number):
    def link(source, target):
        raise OSError(number, os.strerror(number), str(source))

    monkeypatch.setattr("pmflib.store.objects.local_folder.os.link", link)
    with pytest.raises(StoreError, match=r"store\.path"):
        append_record(store, "p", RUN)
    monkeypatch.undo()
    assert list_records(store, "p") == []
    assert append_record(store, "p", RUN).number == 1


def test_find_live__is_what_the_last_record_says(store):
    append_record(store, "p", RUN)
    append_record(store, "p", replace(RUN, outcome="kept", stages={"model": OTHER}))
    assert find_live(store, "p") == MODEL
    append_record(
        store, "p", replace(RUN, action="rollback", outcome="done", live=OTHER, stages={})
    )
    assert find_live(store, "p") == OTHER


def test_find_last_run__passes_over_what_did_not_end_and_over_commands(store):
    append_record(store, "p", RUN)
    for outcome in ("failed", "held back", "interrupted"):
        append_record(store, "p", replace(RUN, outcome=outcome))
    append_record(store, "p", replace(RUN, action="promote", outcome="done"))
    last = find_last_run(store, "p")
    assert last is not None
    assert last.number == 1


def test_find_run_of__is_the_run_that_made_a_model(store):
    append_record(store, "p", RUN)
    append_record(store, "p", replace(RUN, stages={"model": OTHER}))
    append_record(store, "p", replace(RUN, action="rollback", outcome="done", stages={}))
    made = find_run_of(store, "p", MODEL)
    assert made is not None
    assert made.number == 1
    assert find_run_of(store, "p", replace(MODEL, digest="c" * 64)) is None


def test_find_record__says_what_there_is(store):
    for _ in range(2):
        with pytest.raises(StoreError, match="run 3 of pipeline 'p'"):
            find_record(store, "p", 3)
        append_record(store, "p", RUN)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b'{"stages": {}}', b'{"stages": [], "facts": {}}', b"[" * 50_000],
)
def test_list_records__refuses_a_damaged_record(store, content):
    append_record(store, "p", RUN)
    (store.root / "runs" / "p" / "000001.json").write_bytes(content)
    with pytest.raises(StoreError, match="runs/p/000001"):
        list_records(store, "p")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stages", {"model": {"kind": "../..", "identity": "1" * 64, "digest": "a" * 64}}),
        ("stages", ["model"]),
        ("live", {"kind": "model", "identity": "1" * 64, "digest": "../" * 22}),
        ("live", "model"),
        ("facts", 3),
        ("outcome", ["promoted"]),
        ("number", "1"),
        ("number", 2),
        ("number", True),
        ("more", 1),
    ],
)
def test_list_records__refuses_types_that_no_record_has(store, key, value):
    append_record(store, "p", RUN)
    path = store.root / "runs" / "p" / "000001.json"
    content = unseal(path.read_bytes())
    path.write_bytes(seal(content | {key: value}))
    with pytest.raises(StoreError, match="runs/p/000001"):
        list_records(store, "p")


def test_list_records__refuses_an_edited_record(store):
    append_record(store, "p", RUN)
    path = store.root / "runs" / "p" / "000001.json"
    path.write_text(path.read_text().replace("better", "worse"))
    with pytest.raises(StoreError, match="runs/p/000001"):
        find_live(store, "p")
