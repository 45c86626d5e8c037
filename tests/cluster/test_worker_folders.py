"""What a run writes into a shared folder of temporary files is in a folder that nobody else can reach or replace."""

import os
import subprocess
import sys
import tempfile

import pytest

from pmflib.base import ConfigError, find_temporary_danger, make_private_folder
from pmflib.cluster import open_client, start_workers
from pmflib_flows.doctor import examine
from pmflib_tasks.config import ClusterConfig

OTHER_USER = 12345
NAMES = ("dask-scratch-space", "dask-worker-space", f"dask-scratch-space-{os.geteuid()}")
LOCKS = ("global.lock", "purge.lock")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder like /tmp in which another user took first the names that Dask has by default, with links for locks."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    kept = tmp_path / "kept"
    kept.write_text("not to be lost")
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
        for lock in LOCKS:
            (folder / name / lock).symlink_to(kept)
        if os.geteuid() == 0:
            os.chown(folder / name, OTHER_USER, OTHER_USER)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert kept.read_text() == "not to be lost"
    assert sorted(each.name for each in folder.iterdir()) == sorted(NAMES)
    assert all(sorted(os.listdir(folder / name)) == sorted(LOCKS) for name in NAMES)


def list_folders(address):
    with open_client(address) as client:
        assert client.submit(len, [1, 2]).result() == 2
        of_scheduler = client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.local_directory
        )
        return [of_scheduler, *client.run(lambda dask_worker: dask_worker.local_directory).values()]


@pytest.mark.parametrize(
    "processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"]
)
def test_start_workers__scheduler_and_workers_write_into_one_private_folder(shared, processes):
    with start_workers(ClusterConfig(workers=2, processes=processes)) as address:
        found = list_folders(address)
        (private,) = {os.path.relpath(each, shared).split(os.sep)[0] for each in found}
        assert private.startswith("pmf-")
        assert os.stat(shared / private).st_mode & 0o777 == 0o700
        assert not [each for each in sys.path if each.startswith(str(shared / NAMES[0]))]


@needs_root
def test_start_workers__refuses_a_folder_that_another_user_owns(tmp_path, monkeypatch):
    tmp_path.chmod(0o1777)
    os.chown(tmp_path, OTHER_USER, OTHER_USER)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        pytest.raises(ConfigError, match=r"12345.*TMPDIR"),
        start_workers(ClusterConfig(workers=1)),
    ):
        pass
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("mode", "danger"), [(0o700, ""), (0o755, ""), (0o1777, ""), (0o777, "mode 777")]
)
def test_find_temporary_danger__by_mode(tmp_path, monkeypatch, mode, danger):
    tmp_path.chmod(mode)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert danger in find_temporary_danger()
    assert bool(danger) == bool(find_temporary_danger())
    if danger:
        with pytest.raises(ConfigError, match="TMPDIR"), make_private_folder():
            pass


@pytest.mark.slow
@pytest.mark.parametrize("words", ["run", "doctor", "plan", "crowd"])
def test_commands__leave_a_shared_folder_as_it_is(shared, tmp_path, words):
    demo = tmp_path / "demo"
    kind = "labels" if words == "crowd" else "survey"
    pmf = [sys.executable, "-m", "pmflib_flows"]
    subprocess.run([*pmf, "demo", kind, "--folder", demo, "--data-only"], check=True)
    config = demo / "pipeline.toml"
    config.write_text(config.read_text() + "\n[cluster]\nworkers = 2\nprocesses = true\n")
    given = demo / "labels.csv" if words == "crowd" else config
    subprocess.run([*pmf, words, given], check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)


@needs_root
def test_examine__names_the_owner_of_the_folder(tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, OTHER_USER, OTHER_USER)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    config = tmp_path / "pipeline.toml"
    config.write_text('[source]\npath = "log.csv"\nlayout = "wide"\n[model]\nrank = 2\n')
    (line,) = [each for each in examine(config, "") if each.what == "temporary files"]
    assert line.state == "FAIL"
    assert "12345" in line.found
