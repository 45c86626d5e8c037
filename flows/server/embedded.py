"""The Prefect API around a run: the configured server, or one of our own while the run lasts."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from flows.server.run_history import wait_until_stored
from pmflib.errors import StoreError
from pmflib.store.artefacts import refuse_unwritable
from pmflib.store.private_files import make_folder, make_root

START_SECONDS = 120.0
"""Longest wait for the server to answer, seconds."""
DRAIN_SECONDS = 15.0
"""Longest wait at the end for the server to store the history of the run, seconds."""
WATCH_SECONDS = 0.2
"""Time between two looks at whether the server is alive, seconds."""
REPLACEMENTS = 2
"""Servers that are started in place of one that was killed, in one run at most."""
CLIENT_RETRIES = 4
"""Times that a request is sent again while the server is being replaced: after 2, 4, 8 and 16 seconds."""
STOP_SECONDS = 5.0
"""Longest wait for the server to end by itself before it is killed, seconds."""

_LAUNCH = "import sys; sys.path.append(sys.argv[1]); from flows.server.process import main; main()"


class PrefectApi:
    """A Prefect API, started in the background at once and awaited on entering the context.

    Where ``PREFECT_API_URL`` is configured, in the environment or in Prefect's own files, that
    server is used and nothing is started. Otherwise a child process serves the API on a free
    loopback port from an SQLite file; it ends with the context, or with this process however that
    ends.

    Attributes
    ----------
    home
        Folder of the database, the server's log and stored results; created if absent.

    Notes
    -----
    Several processes may use one home at a time: each has its own server, and SQLite orders their
    writes. Other users of the machine can connect to the port, but requests need a secret, which is
    drawn for every run and goes to the server in its environment.

    A server that is killed is replaced within seconds, on the same port and with the same secret,
    and the run goes on: all that it has recorded is in the file. Where that does not help either,
    the run is stopped: what its stages have published is in the store.
    """

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self._undo = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._secret = f"pmf:{secrets.token_urlsafe(32)}"
        # one that replaces another must not see the settings of its clients
        self._around = dict(os.environ)
        self._over, self._ready, self._leaving = (threading.Event() for _ in range(3))
        self._is_lost = False
        self._watcher: threading.Thread | None = None
        if not is_server_configured():
            self._start()

    @property
    def pid(self) -> int | None:
        """Process id of the embedded server; None if there is none."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> str:
        """Return the URL of the API once it answers.

        Raises
        ------
        StoreError
            If the server ends, or is not ready in `START_SECONDS`; its log says why.
        """
        if self._process is None:
            return _configured_url()
        try:
            url = self._await_url()
            self._undo.enter_context(_environment({"PREFECT_API_URL": url}))
            _refresh_settings()
            self._undo.enter_context(_embedded_settings(url))
            self._since = datetime.now(UTC)
            port = int(url.rpartition(":")[2].partition("/")[0])
            self._ready.set()
            self._watcher = threading.Thread(target=self._watch, args=(port,), daemon=True)
            self._watcher.start()
        except BaseException:
            self.stop()
            raise
        return url

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._leaving.set()
        if self._is_lost and error_type is not None:
            self.stop()
            raise StoreError(
                f"home={str(self.home)!r}: the Prefect server was killed, or ended, again and again; "
                f"see server.log there, and what kills processes on this machine, then run again: "
                f"what the stages have published is in the store, and is not made again"
            ) from error
        if error_type is not None and error_type.__name__ == "PrefectHTTPStatusError":
            self.stop()
            raise StoreError(
                f"home={str(self.home)!r}: the Prefect server could not record the run "
                f"({str(error).partition(' for url')[0]}); see that its disk has room, then run "
                f"again; server.log there may say more"
            ) from error
        try:
            if not self._is_drained():
                warnings.warn(
                    f"the Prefect history in {self.home} may lack task runs: the server ended or "
                    f"did not store all in {DRAIN_SECONDS:g} s, see server.log there; the results "
                    f"of the run are not affected",
                    RuntimeWarning,
                    stacklevel=2,
                )
        finally:
            self.stop()

    def _is_drained(self) -> bool:
        """Wait until the server has stored all; whether it did in time."""
        # one that replaces another may be on its way
        if not self._ready.wait(START_SECONDS) or self._is_lost:
            return False
        try:
            return wait_until_stored(self._since, DRAIN_SECONDS)
        except Exception:
            # the server died on the way, which Prefect's client reports in many forms
            return False

    def stop(self) -> None:
        """End the server, if it is ours and still running, and restore the environment."""
        self._over.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        process, self._process = self._process, None
        if process is not None:
            _end(process)
        self._undo.close()
        _refresh_settings()

    def _start(self) -> None:
        with refuse_unwritable(self.home.parent):
            make_root(self.home.parent)
            make_folder(self.home)
        self._process = self._launch(0)
        self._undo.enter_context(_environment(_client_environment(self.home, self._secret)))

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[2])
        # -P: a prefect.py in the user's folder must not be taken for Prefect.
        command = [sys.executable, "-P", "-c", _LAUNCH, root, str(port), str(self.home)]
        mode = self.home.stat().st_mode
        (self.home / "server.log").touch(mode & 0o666)
        with refuse_unwritable(self.home.parent), open(self.home / "server.log", "ab") as log:
            return subprocess.Popen(
                command,
                env=self._around | _server_environment(self.home, self._secret),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                umask=0o777 & ~mode,
                # Ctrl-C in the terminal is for the flow, not for the server that is to record it.
                start_new_session=True,
            )

    def _watch(self, port: int) -> None:
        """Replace the server when it ends before the run does; stop the run where that fails."""
        for attempt in range(REPLACEMENTS + 1):
            while self._process is not None and self._process.poll() is None:
                if self._over.wait(WATCH_SECONDS):
                    return
            self._ready.clear()
            if attempt < REPLACEMENTS:
                # one that ends as well is the next attempt
                with suppress(StoreError):
                    self._process = self._launch(port)
                    self._await_url()
                    self._ready.set()
        self._is_lost = True
        self._ready.set()
        # the main thread may be at work for hours, or wait for an answer that will not come
        if not self._leaving.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    def _await_url(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        os.set_blocking(self._process.stdout.fileno(), False)
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._over.is_set():
                break
            line = self._process.stdout.readline()
            if line:
                return f"http://127.0.0.1:{int(line)}/api"
            time.sleep(0.02)
        state = "is not ready" if self._process.poll() is None else "ended"
        raise StoreError(
            f"home={str(self.home)!r}: the Prefect server {state} after at most "
            f"{START_SECONDS:g} s; see server.log there, or set PREFECT_API_URL to a running server"
        )


def prefect_api(home: Path) -> PrefectApi:
    """Start, or find, the Prefect API for flow runs in this process.

    Parameters
    ----------
    home
        Folder for the history of an embedded server, such as ``store/.prefect``.

    Returns
    -------
    A context manager that gives the URL. An embedded server starts at this call, so imports
    between the call and ``with`` cost no time. On leaving, the context waits at most
    `DRAIN_SECONDS` until every task run and event is stored.

    Examples
    --------
    >>> api = prefect_api(Path("store/.prefect"))  # doctest: +SKIP
    >>> with api as url:  # doctest: +SKIP
    ...     my_flow()
    """
    return PrefectApi(home)


def is_server_configured() -> bool:
    """Whether Prefect is configured to use a server.

    Notes
    -----
    To import Prefect for its settings takes a second, in which a server could start: this is done
    only where one of its files, or a chosen profile, could configure a server.
    """
    may_be = "PREFECT_API_URL" in os.environ or "prefect" in sys.modules or _has_prefect_files()
    return may_be and bool(_configured_url())


def _has_prefect_files() -> bool:
    if {"PREFECT_PROFILE", "PREFECT_PROFILES_PATH"} & os.environ.keys():
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    if any(path.exists() for path in (home / "profiles.toml", Path("prefect.toml"), Path(".env"))):
        return True
    project = Path("pyproject.toml")
    return project.exists() and b"tool.prefect" in project.read_bytes()


def _configured_url() -> str:
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    from prefect.settings import get_current_settings

    return get_current_settings().api.url or ""


def _server_environment(home: Path, secret: str) -> dict[str, str]:
    return {
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        "DO_NOT_TRACK": "1",
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        # Registering the built-in blocks takes a second; one that is used registers itself.
        "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
        "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "0.2",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    }


def _client_environment(home: Path, secret: str) -> dict[str, str]:
    bypass = [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1"]
    no_proxy = ",".join(part for part in bypass if part)
    return {
        "DO_NOT_TRACK": "1",
        "PREFECT_API_AUTH_STRING": secret,
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
        "PREFECT_CLIENT_MAX_RETRIES": os.environ.get(
            "PREFECT_CLIENT_MAX_RETRIES", str(CLIENT_RETRIES)
        ),
        "PREFECT_LOGGING_LEVEL": os.environ.get("PREFECT_LOGGING_LEVEL", "WARNING"),
        "PREFECT_LOCAL_STORAGE_PATH": str(home / "storage"),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _embedded_settings(url: str) -> Iterator[None]:
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    # The URL again: settings that a caller overrode in this context would hide the environment.
    # Heartbeats: nothing reads them, and their thread delays each flow's end by a second.
    with temporary_settings({PREFECT_API_URL: url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _refresh_settings() -> None:
    """Make a Prefect that is imported already read the environment again."""
    if "prefect" not in sys.modules:
        return
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    refresh_global_settings_context()
    setup_logging()


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
