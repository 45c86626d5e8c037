from pathlib import Path

import pytest

from pmflib.cluster import start_workers
from pmflib_tasks.config import ClusterConfig
from tests.faults.fault_matrix import FAULTS_SEEN, write_matrix
from tests.faults.fault_runs import run_stages, write_config, write_log, write_wide


@pytest.fixture(scope="session")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_log(folder, n_users=2500, per_user=6, n_movies=60)
    return folder


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survey")
    write_wide(folder, n_people=4000, n_questions=20)
    return folder


@pytest.fixture(scope="session")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough for stages that last long enough to be hit."""
    folder = tmp_path_factory.mktemp("large")
    write_log(folder, n_users=6000, per_user=50, n_movies=300)
    return folder


@pytest.fixture(scope="session")
def undisturbed(
    large_log: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """Store and digests of the large log where nothing went wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with start_workers(ClusterConfig(workers=2)) as address:
        digests = run_stages(write_config(folder, large_log), address)
    return folder / "store", digests


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the matrix of faults: what happened, what was being written, and with which exit codes the run ended."""
    if FAULTS_SEEN:
        terminalreporter.section("faults, each followed by a run to the same bits")
        for line in write_matrix():
            terminalreporter.line(line)
