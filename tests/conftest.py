import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

# before NumPy is loaded, which reads it: threads that share out small matrices wait for each other in a loop, which
# takes five to ten times the processor time of the work itself, and the last bits of sums depend on their number
os.environ.setdefault("OMP_NUM_THREADS", "1")
# workers in this process look at the frames of running threads every 10 ms, for a page that no test opens; in Python
# 3.11 that ends a process now and then
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")

import pytest
from hypothesis import settings

from pmflib.features import FEATURES
from pmflib.store import list_schemes
from tests.object_store import describe_access, make_bucket, serve_objects

# the first example of a kernel compiles it; the same examples in every run
settings.register_profile("pmflib", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("pmflib")

# they hold no doctests, and as modules with one name they would stand in each other's way
collect_ignore_glob = ["*conftest.py"]

# a shell has its background ignore Ctrl-C, and so would all processes that tests start from there
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Seconds:
    """Keeps how long each test took in pytest's cache: `tests.choose_tests` reads it."""

    def __init__(self, cache: pytest.Cache) -> None:
        self.cache, self.found = cache, defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.found[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self.cache.set("seconds", self.cache.get("seconds", {}) | self.found)


class Failures:
    """Prints a failure when it is known: a run that something else ends has no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.terminal.write_line(
                f"\n{report.nodeid} failed in its {report.when}:\n{report.longreprtext[-4000:]}"
            )


@pytest.hookimpl(trylast=True)  # the terminal is there by then
def pytest_configure(config: pytest.Config) -> None:
    # reports of all processes come together in the first
    if hasattr(config, "workerinput"):
        return
    if cache := getattr(config, "cache", None):
        config.pluginmanager.register(Seconds(cache))
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(Failures(terminal))


@pytest.hookimpl(tryfirst=True)  # before the fixtures, which may need it as well
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of the core that shows it by a feature, such as `surveys.drafting`, which is not installed."""
    for name in (name for mark in item.iter_markers("needs") for name in mark.args):
        if f"pmflib.{name}" not in FEATURES:
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session", autouse=True)
def no_disk_waits() -> Iterator[None]:
    """Let nothing in this process wait until a disk has what was written: that shows where the power fails alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def thread_client():
    from pmflib.cluster import open_client, start_workers
    from pmflib_tasks.config import ClusterConfig

    with start_workers(ClusterConfig(workers=2)) as address, open_client(address) as client:
        yield client


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of buckets that all tests of a process share."""
    with serve_objects(tmp_path_factory.mktemp("objects") / "server.log") as endpoint:
        yield endpoint


@pytest.fixture
def bucket(object_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a new bucket, which this process and those that it starts may use; their mirrors are below tmp_path."""
    if "s3" not in list_schemes():
        pytest.skip("this installation opens no store in a bucket")
    for name, value in describe_access(object_server, tmp_path / "mirrors").items():
        monkeypatch.setenv(name, value)
    return make_bucket(object_server)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Give a function that makes a pipeline of movies, whose flow runs as plain functions."""
    from tests.flows.nights import Nights, make_movies

    def make(n_movies, **sections):
        return Nights(tmp_path / "pipeline", make_movies(n_movies), monkeypatch, **sections)

    return make


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Give a function that runs a command in an empty folder: exit code, standard output, standard error."""
    from tests.factories import call_command

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    # titles of columns on one line
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments):
        code = call_command(monkeypatch, *arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def workers():
    """Address of two threads, of one module: flows that other modules run start and stop workers in this process."""
    from pmflib.cluster import start_workers
    from pmflib_tasks.config import ClusterConfig

    with start_workers(ClusterConfig(workers=2)) as address:
        yield address


@pytest.fixture
def pipeline(tmp_path: Path):
    """Give a function that writes a schema and a configuration, and returns the configuration."""
    from tests.pipelines import write_pipeline

    return partial(write_pipeline, tmp_path)


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory: pytest.TempPathFactory, workers: str):
    """Folder and references of a small wide pipeline."""
    from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model, write_pipeline

    folder, schema = tmp_path_factory.mktemp("fitted"), make_schema(3, 2, 4, 2)
    config = write_pipeline(folder, schema, {})
    (folder / "data" / "a.csv").write_text(as_wide(draw_codes(800, schema.cardinalities)))
    return folder, run_to_model(config, workers)


@pytest.fixture
def fitted(fitted_once, pipeline, tmp_path: Path):
    """Configuration and references of a copy of it."""
    from tests.pipelines import make_schema

    folder, stages = fitted_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return pipeline(make_schema(3, 2, 4, 2), {}), dict(stages)


@pytest.fixture(scope="session")
def truth():
    """A model of two states and four variables."""
    import numpy as np

    import pmflib as pmf
    from tests.reference import make_model

    cardinalities = [3, 2, 4, 3]
    parameters = make_model(np.random.default_rng(0), cardinalities, 2)
    return pmf.JointPMF(*parameters, pmf.Schema.from_cardinalities(cardinalities))


@pytest.fixture(scope="session")
def codes(truth):
    """Samples of it, a fifth of the cells missing."""
    import numpy as np

    drawn = truth.sample(3000, rng=1)
    drawn[np.random.default_rng(2).random(drawn.shape) < 0.2] = -1
    drawn.flags.writeable = False
    return drawn
