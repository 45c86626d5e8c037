"""A store that cannot be written: a clear error, nothing half-published, and all goes on when there is room."""

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pmflib.cluster import start_workers
from pmflib_tasks.config import ClusterConfig
from tests.faults.fault_runs import (
    ROOT,
    WAIT_SECONDS,
    check_artefacts,
    check_store,
    list_kinds,
    run_stages,
    write_config,
)

pytestmark = pytest.mark.slow

STAGES_HERE = """
import sys
from pathlib import Path
from tests.faults.fault_runs import run_stages
from pmflib_tasks.config import ClusterConfig
from pmflib.base.errors import StoreError
from pmflib.cluster.workers import start_workers

try:
    with start_workers(ClusterConfig(workers=2)) as address:
        run_stages(Path(sys.argv[1]), address)
except StoreError as error:
    print(error)
"""


def run_limited(command: list[str], largest_file: int | None = None) -> str:
    """Run the stages, without Prefect, in a process of its own; the store's error that it must end with."""

    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))

    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("largest_file", "unmade"), [(20_000, "spill"), (25_500, "samples")])
def test_stages__writing_refused(
    largest_file: int, unmade: str, small_log: Path, tmp_path: Path
) -> None:
    path, store = write_config(tmp_path, small_log, passes=3), tmp_path / "store"
    command = [sys.executable, "-c", STAGES_HERE, str(path)]
    said = run_limited(command, largest_file)
    assert str(store) in said
    assert "[Errno 27]" in said
    assert unmade not in list_kinds(store)
    assert list((store / "tmp").iterdir()) == []
    check_artefacts(store)
    with start_workers(ClusterConfig(workers=2)) as address:
        run_stages(path, address)
    check_store(store)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return not subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        # which of the two is refused room first is chance: the store's file, or the Prefect server's
        ("size=5m", "No space left on device|see that its disk has room"),
        ("ro", "Read-only file system"),
    ],
)
def test_run__disk_full_or_read_only(
    options: str, said: str, large_log: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path, large_log, store=tmp_path / "disk" / "store")
    (tmp_path / "disk").mkdir()
    program = f"mount -t tmpfs -o {options} none {tmp_path}/disk && exec '{sys.executable}' -m pmflib_flows run {path}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "PMF_"))}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 4
    assert re.search(said, " ".join(done.stderr.split()))
