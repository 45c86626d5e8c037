import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time

import pytest

from pmflib.base import StoreError, StoreWarning
from pmflib.store import LEASE_SECONDS, hold_lease, leases, list_leases, mark_draft, stay_alone
from pmflib.store.leases import drop_leases
from pmflib.store.objects.local_folder import find_holder


def age(path, seconds):
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_hold_lease__says_what_is_done_while_it_is_done(store):
    with hold_lease(store.objects, "run of pipeline p"):
        with hold_lease(store.objects, "build of model"):
            both = {lease.purpose: lease for lease in list_leases(store.objects)}
        (lease,) = list_leases(store.objects)
    assert {*both} == {"run of pipeline p", "build of model"}
    assert both["run of pipeline p"].name == lease.name
    assert {each.holder for each in both.values()} == {find_holder(mark_draft("model"))}
    assert lease.process == os.getpid()
    assert 0 <= lease.age < 60
    assert lease.is_alive
    assert list_leases(store.objects) == []


def test_hold_lease__is_touched_and_comes_back_when_it_is_deleted(store, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    with hold_lease(store.objects, "run"):
        (path,) = (store.root / "leases").iterdir()
        age(path, LEASE_SECONDS)
        deadline = time.monotonic() + 30
        while not list_leases(store.objects)[0].is_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list_leases(store.objects)[0].is_alive
        path.unlink()
        while not list_leases(store.objects):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (lease,) = list_leases(store.objects)
        assert (lease.name, lease.purpose) == (path.name, "run")
    assert list_leases(store.objects) == []


def test_list_leases__ages_are_by_the_clock_of_the_file_system(store, monkeypatch):
    with hold_lease(store.objects, "run"):
        (path,) = (store.root / "leases").iterdir()
        age(path, LEASE_SECONDS / 2)
        monkeypatch.setattr(time, "time", lambda: 4e9)
        assert list_leases(store.objects)[0].age == pytest.approx(LEASE_SECONDS / 2, abs=60)


def test_list_leases__store_that_may_only_be_read(store, monkeypatch):
    def refuse(path, times=None):
        raise PermissionError(1, "read-only", str(path))

    with hold_lease(store.objects, "run"):
        monkeypatch.setattr(os, "utime", refuse)
        assert list_leases(store.objects)[0].is_alive


@pytest.mark.parametrize("content", [b"{", b"[" * 50_000, b"[]", b'{"purpose": 1}', b"\xff"])
def test_list_leases__damaged_lease_counts_by_its_age(store, content):
    name = f"{'a' * 32}-{'0' * 8}"
    (store.root / "leases" / name).write_bytes(content)
    (store.root / "leases" / "notes").write_text("no lease")
    (lease,) = list_leases(store.objects)
    assert (lease.name, lease.holder, lease.purpose) == (name, "a" * 32, "")
    assert lease.is_alive
    drop_leases(store.objects, list_leases(store.objects))
    assert len(list_leases(store.objects)) == 1
    age(store.root / "leases" / name, LEASE_SECONDS)
    drop_leases(store.objects, list_leases(store.objects))
    assert [path.name for path in (store.root / "leases").iterdir()] == ["notes"]


def send_holder(queue):
    queue.put(find_holder(mark_draft("x")))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_mark_draft__every_process_has_a_name_of_its_own(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=send_holder, args=(queue,))
    process.start()
    theirs = queue.get(timeout=60)
    process.join(60)
    assert len(theirs) == 32
    assert theirs != find_holder(mark_draft("x"))
    queue.close()
    queue.join_thread()


WORK = """
import pathlib, sys, time
from pmflib.store.artefacts import Store
def write(folder, work):
    (folder / "half").write_text("half")
    print("here", flush=True)
    sys.stdin.readline()
    (folder / "whole").write_text("whole")
    return {}
Store(sys.argv[1]).build("thing", inputs={}, options={}, version=1, write=write)
"""


HOLD = """
import sys
from pmflib.store.artefacts import Store
from pmflib.store.leases import hold_lease
with hold_lease(Store(sys.argv[1]).objects, sys.argv[2]):
    print("here", flush=True)
    sys.stdin.readline()
"""

needs_proc = pytest.mark.skipif(
    not leases.find_process_space(), reason="the system does not name its processes"
)


def leave_lease(store, purpose, *, reap=True):
    """Kill a process that holds a lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.root), purpose],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"here\n"
    process.kill()
    if reap:
        process.wait(60)
    process.stdin.close()
    process.stdout.close()
    return process


@needs_proc
def test_drop_leases__of_processes_that_were_killed_here_are_dropped_at_once(store):
    zombie = leave_lease(store, "first run", reap=False)
    leave_lease(store, "second run")
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    with hold_lease(store.objects, "own"):
        alive = [lease.purpose for lease in list_leases(store.objects) if lease.is_alive]
        assert alive == ["own"]
        with pytest.warns(StoreWarning, match="first run.*; second run"):
            drop_leases(store.objects, list_leases(store.objects))
        assert [lease.purpose for lease in list_leases(store.objects)] == ["own"]
    zombie.wait(60)


@needs_proc
@pytest.mark.parametrize(
    ("changed", "is_alive"),
    [
        ({}, True),
        ({"birth": "1"}, False),
        ({"process": 2**22 + 1}, False),
        ({"process": 2**22 + 1, "space": "another start of a machine"}, True),
        ({"process": 2**22 + 1, "space": None}, True),
    ],
)
def test_list_leases__a_process_has_ended_where_its_number_is_anothers(store, changed, is_alive):
    with hold_lease(store.objects, "run"):
        (path,) = (store.root / "leases").iterdir()
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
        assert list_leases(store.objects)[0].is_alive == is_alive


@needs_proc
def test_stay_alone__waits_for_nobody_who_was_killed_and_names_all_who_work(store):
    leave_lease(store, "run")
    with pytest.warns(StoreWarning, match="run"), stay_alone(store):
        assert list_leases(store.objects) == []
    for holder, purpose in (("a", "run of p"), ("b", "score")):
        content = {"purpose": purpose, "host": "other", "process": 1, "started": 1.0}
        name = f"{holder * 32}-{'0' * 8}"
        (store.root / "leases" / name).write_text(json.dumps(content))
    with (
        pytest.raises(StoreError, match=r"run of p.*; score"),
        stay_alone(store),
    ):
        pass


def can_unshare():
    command = ["unshare", "--fork", "--pid", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not can_unshare(), reason="no rights to make a PID namespace")
def test_drop_leftovers__process_of_another_pid_namespace_is_at_work(store):
    # its process id, 1 or so in its own namespace, is that of another process here, or of none
    command = ["unshare", "--fork", "--pid", sys.executable, "-c", WORK, str(store.root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "here\n"
        assert store.drop_leftovers() == 0
        assert len(list((store.root / "tmp").iterdir())) == 1
        process.communicate("\n", timeout=60)
    assert process.returncode == 0
    (entry,) = store.entries()
    assert (store.locate(entry.reference) / "whole").exists()


@pytest.mark.parametrize("content", [b"", b"\0" * 200])
def test_drop_leases__one_that_a_power_failure_has_emptied(store, content):
    path = store.root / "leases" / f"{'0' * 32}-{'1' * 8}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    found = list_leases(store.objects)
    assert [lease.is_alive for lease in found] == [False]
    with pytest.warns(StoreWarning):
        drop_leases(store.objects, found)
    with stay_alone(store):
        pass
    # one that somebody has edited may still be held
    path.write_bytes(b"half of")
    assert [lease.is_alive for lease in list_leases(store.objects)] == [True]
