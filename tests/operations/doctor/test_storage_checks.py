from dataclasses import replace

import pytest

from pmflib_tasks.operations.doctor.probes import StoreState
from pmflib_tasks.operations.doctor.storage import (
    CACHE_REMEDY,
    SourceState,
    check_disk,
    check_file_system,
    check_sources,
    check_store_folder,
    check_worker_paths,
)
from tests.operations.doctor.health_cases import FOLDER, SOURCES, VIEW, states_of, with_view

STORE = StoreState(FOLDER, "", (), 0.0)


def test_check_store_folder__there_or_not_there_yet():
    assert check_store_folder(STORE).state == "ok"
    line = check_store_folder(replace(STORE, folder=replace(FOLDER, there="/data")))
    assert line.state == "ok"
    assert "/data/store is not there yet; the first run makes it, for /data" in line.found


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (replace(STORE, unwritten="Permission denied"), "cannot be written: Permission denied"),
        (replace(STORE, lacking=("no hard links (x)",)), "publication needs: no hard links (x)"),
        (PermissionError("no"), "cannot be looked at: no"),
        (TimeoutError("no answer in 5 s"), "no answer in 5 s"),
    ],
)
def test_check_store_folder__what_a_run_would_fail_on(store, said):
    line = check_store_folder(store)
    assert (line.state, line.fault) == ("FAIL", "store")
    assert said in line.found
    assert "store.path" in line.remedy


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("ext4", "ok"),
        ("", "ok"),
        ("nfs4", "warn"),
        ("cifs", "warn"),
        ("fuse.s3fs", "warn"),
        ("tmpfs", "warn"),
        ("overlay", "warn"),
    ],
)
def test_check_file_system__those_at_risk(name, state):
    line = check_file_system(replace(FOLDER, file_system=name))
    assert (line.state, bool(line.remedy)) == (state, state == "warn")


def test_check_disk__full_little_and_enough():
    assert check_disk("d", FOLDER, 0).state == "ok"
    assert check_disk("d", FOLDER, 60 << 30).state == "warn"
    assert check_disk("d", replace(FOLDER, free=1 << 20), 0).fault == "store"
    full = check_disk("d", replace(FOLDER, free=1 << 20), 0, CACHE_REMEDY)
    assert "PMF_MIRROR" in full.remedy


def test_check_sources__absent():
    assert check_sources(SOURCES).found == "2 files, 1.0 MiB"
    assert check_sources(SourceState(0, 0, "", "matches no file")).fault == "source"


def test_check_worker_paths__all_see_the_same():
    lines = check_worker_paths({"a": VIEW, "b": VIEW}, {"a": "", "b": ""}, SOURCES)
    assert states_of(lines) == ["ok"] * 3
    assert check_worker_paths({}, {}, SOURCES) == []


@pytest.mark.parametrize(
    ("view", "unseen", "said"),
    [
        (
            with_view(unread="it is not there"),
            "",
            "1 of 2 workers cannot read what the client writes: a",
        ),
        (
            with_view(unwritten="Read-only file system"),
            "",
            "cannot write: a: Read-only file system",
        ),
        (VIEW, "it is not there", "write what the client cannot read: a"),
    ],
)
def test_check_worker_paths__another_store(view, unseen, said):
    lines = check_worker_paths({"a": view, "b": VIEW}, {"a": unseen, "b": ""}, SOURCES)
    assert (lines[0].state, lines[0].fault) == ("FAIL", "store")
    assert said in lines[0].found


def test_check_worker_paths__what_the_client_could_not_write_nobody_reads():
    view = with_view(unread="it is not there", written="")
    lines = check_worker_paths({"a": view}, {"a": ""}, SOURCES, "Permission denied")
    assert states_of(lines) == ["ok"] * 3


def test_check_worker_paths__other_sources():
    other = with_view(sources=SourceState(1, 5, "d2"))
    blind = with_view(sources=SourceState(0, 0, "", "matches no file"))
    lines = check_worker_paths({"a": other, "b": blind}, {}, SOURCES)
    assert states_of(lines) == ["ok", "FAIL", "FAIL", "ok"]
    assert "1 of 2 workers do not see them: b: matches no file" in lines[1].found
    assert "other files than here (2 files, 1.0 MiB) at a (1 files, 5 B)" in lines[2].found
    # what the client does not see either is its own line
    assert states_of(check_worker_paths({"a": blind}, {}, SourceState(0, 0, "", "x"))) == [
        "ok",
        "ok",
    ]


def test_check_worker_paths__scratch():
    full = with_view(scratch=replace(FOLDER, free=0))
    assert check_worker_paths({"a": full}, {}, SOURCES)[-1].state == "FAIL"
    memory = with_view(scratch=replace(FOLDER, file_system="tmpfs"))
    assert check_worker_paths({"a": memory}, {}, SOURCES)[-1].state == "warn"
