"""Services of one machine: units as systemd reads them, and their commands as processes on loopback."""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.deploy.test_deployment import (
    FINISHED,
    ROOT,
    WAIT_SECONDS,
    Site,
    find_free_port,
    read_live,
    write_pipeline,
)
from tests.faults.fault_runs import list_kinds

MACHINE = ROOT / "deploy" / "machine"
UNITS = sorted(MACHINE.glob("*.service"))
BIN = Path(sys.executable).parent
EXPOSURE = 35
"""Tenths of a point: above it `systemd-analyze security` fails a unit."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
AS_PMF = ("sh", "deploy/machine/run.sh", "prefect")
PING = "from distributed import Client; Client({address!r}, timeout=8)"


def list_values(path: Path, option: str, section: str = "Service") -> list[str]:
    """Values of an option, which may come more than once."""
    text = path.read_text("utf-8").split(f"[{section}]")[1].split("\n[")[0]
    return re.findall(rf"^{option}=(.*)$", text, re.M)


def read_variables(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_unit__systemd_finds_nothing_wrong(unit, tmp_path):
    text = unit.read_text("utf-8").replace("/opt/pmf/.venv/bin/", f"{BIN}/")
    (tmp_path / unit.name).write_text(text, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=one", tmp_path / unit.name],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_unit__is_confined(unit):
    options = ("--no-pager", "--offline=true", f"--threshold={EXPOSURE}")
    done = subprocess.run(
        ["systemd-analyze", "security", *options, unit], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_unit__restarts_and_stops_by_itself(unit):
    service = {name: list_values(unit, name) for name in ("User", "Restart", "KillMode")}
    assert service == {"User": ["pmf"], "Restart": ["always"], "KillMode": ["mixed"]}
    assert 30 <= int(list_values(unit, "TimeoutStopSec")[0]) <= 300
    assert list_values(unit, "EnvironmentFile") == ["/etc/pmf/environment", "/etc/pmf/secrets"]


@pytest.mark.parametrize(
    "path", [*UNITS, ROOT / "deploy" / "README.md"], ids=lambda path: path.name
)
def test_dask__pages_too_are_for_this_machine_alone(path):
    # without a dashboard, its server listens all the same
    commands = re.findall(r".*dask (?:scheduler|worker) .*--host .*", path.read_text("utf-8"))
    assert bool(commands) == ("dask" in path.name or path.suffix == ".md")
    for command in commands:
        assert re.search(r"--host 127\.0\.0\.1 .*--dashboard-address 127\.0\.0\.1:", command)


def test_environment__has_the_variables_of_the_other_one():
    ours = read_variables((MACHINE / "environment").read_text("utf-8"))
    shell = (ROOT / "deploy" / "environment.sh").read_text("utf-8")
    exported = set(re.findall(r"^export (\w+)=", shell, re.M)) - {"PATH"}
    assert exported <= set(ours)
    fixed = dict(re.findall(r"^export (\w+)=([^\"$\n]+)$", shell, re.M))
    assert fixed
    assert fixed.items() <= ours.items()
    assert not {name for name in ours if "AUTH" in name or "PASSWORD" in name}


@dataclass
class Machine:
    """What `install.sh` has put into a folder, and the processes of its services."""

    prefix: Path
    site: Site

    def read_command(self, unit: str, option: str = "ExecStart") -> list[str]:
        """Command of a unit, with the paths and ports of this machine."""
        name, _, instance = unit.partition("@")
        path = self.prefix / f"etc/systemd/system/{name}{'@' if instance else ''}.service"
        (command,) = list_values(path, option)
        command = self.translate(command.replace("%i", instance))
        found = re.sub(r"\$\{(\w+)\}", lambda m: self.site.environment[m[1]], command)
        return shlex.split(found)

    def translate(self, text: str) -> str:
        for path in ("/opt/pmf", "/var/lib/pmf", "/var/cache/pmf", "/etc/pmf"):
            text = re.sub(rf"(?<![\w/]){path}", f"{self.prefix}{path}", text)
        for port, ours in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|=|--port ){port}\b", rf"\g<1>{ours}", text)
        return text

    @property
    def ports(self) -> dict[str, str]:
        return dict(zip(("4200", "8786", "8787"), self._ports, strict=True))

    def __post_init__(self) -> None:
        self._ports = [str(find_free_port()) for _ in range(3)]

    def start(self, unit: str) -> "subprocess.Popen[bytes]":
        self.site.start(f"{unit}-{len(self.site.processes)}", *self.read_command(unit))
        return self.site.processes[-1]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the services of a nightly job."""
    prefix = tmp_path_factory.mktemp("machine")
    ours = ("PREFECT", "PMF_", "DASK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    (prefix / "opt/pmf").mkdir(parents=True)
    (prefix / "opt/pmf/.venv").symlink_to(sys.prefix)
    subprocess.run(
        ["sh", MACHINE / "install.sh"],
        env=kept | {"PREFIX": str(prefix), "MAKE": "true", "PYTHONPATH": ""},
        check=True,
        capture_output=True,
    )
    machine = Machine(prefix, Site(prefix, kept))
    settings = prefix / "etc/pmf"
    for name in ("environment", "secrets"):
        text = machine.translate((settings / name).read_text("utf-8"))
        (settings / name).write_text(text, "utf-8")
        machine.site.environment |= read_variables(text)
    code = prefix / "opt/pmf"
    path = os.pathsep.join(map(str, (code, code / "tasks", code / "flows")))
    own = {"HOME": str(prefix), "NO_PROXY": "127.0.0.1", "PYTHONPATH": path}
    machine.site.environment |= own
    machine.site.working_folder = prefix / "opt/pmf"
    nightly = prefix / "var/lib/pmf/nightly"
    shutil.rmtree(nightly)
    write_pipeline(nightly)
    machine.site.environment["PREFIX"] = str(prefix)
    try:
        machine.start("pmf-server")
        machine.site.run(*machine.read_command("pmf-worker", "ExecStartPre"))
        machine.site.run(*AS_PMF, "--no-prompt", "work-pool", "create", "pmf", "--type", "process")
        machine.site.run(
            *AS_PMF, "--no-prompt", "deploy", "--prefect-file", "deploy/prefect.yaml", "--all"
        )
        machine.start("pmf-dask-scheduler")
        for instance in "12":
            machine.start(f"pmf-dask-worker@{instance}")
        yield machine
    finally:
        machine.site.stop()


def ask(machine: Machine, path: str, user: str = ""):
    url = machine.site.environment["PREFECT_API_URL"] + path
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    request = urllib.request.Request(url, b"{}", headers | {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_services__a_stopped_run_goes_on_and_makes_a_live_model(machine):
    config = Path(machine.site.environment["PMF_CONFIG"])
    store = config.parent / "store"
    worker = machine.start("pmf-worker")
    machine.site.start("first-run", *AS_PMF, "deployment", "run", "etl/nightly")
    started = machine.site.processes[-1]
    # the run goes on while the command that asked for it ends, which takes as long as the run does
    # a folder without its entry in the manifest is not published yet, and would be built again
    machine.site.wait_for(lambda: "dataset" in list_kinds(store), seconds=0.01)
    (signal_name,) = list_values(MACHINE / "pmf-worker.service", "KillSignal")
    worker.send_signal(signal.Signals[signal_name])
    assert worker.wait(120) == 0, machine.site.read_logs()
    assert started.wait(120) == 0, machine.site.read_logs()
    runs = json.loads(machine.site.run(*AS_PMF, "flow-run", "ls", "--output", "json"))
    stopped = [run["state_name"] for run in runs if run["state_type"] != "SCHEDULED"]
    # a run that had no time to say so would keep its place, and the next one would wait
    assert stopped == ["Crashed"], machine.site.read_logs()
    made = {path.name: path.stat().st_mtime_ns for path in store.glob("dataset/*")}
    machine.start("pmf-worker")
    address = machine.site.environment["PMF_DASK_SCHEDULER"]
    said = machine.site.run(
        *(*AS_PMF, "deployment", "run", "etl/nightly"),
        *("--watch", "--watch-timeout", str(WAIT_SECONDS - 50)),
        *("--job-variable", f"env={json.dumps({'PMF_DASK_ADDRESS': address})}"),
    )
    assert "Completed" in said, machine.site.read_logs()
    assert {path.name: path.stat().st_mtime_ns for path in store.glob("dataset/*")} == made
    assert read_live(config).kind == "model"
    finished = set(json.loads(machine.site.run(sys.executable, "-c", FINISHED, address)))
    assert "count-fold" in finished


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_services__listen_to_this_machine_alone(machine):
    def list_listening():
        parents = [
            psutil.Process(each.pid) for each in machine.site.processes if each.poll() is None
        ]
        found = [own for each in parents for own in (each, *each.children(recursive=True))]
        return {
            (" ".join(each.cmdline())[-80:], *connection.laddr)
            for each in found
            for connection in each.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }

    # the server; the scheduler and its page; two nannies; two workers and their pages
    machine.site.wait_for(lambda: len(list_listening()) >= 9)
    assert {address for _, address, _ in list_listening()} == {"127.0.0.1"}, list_listening()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_services__who_has_no_password_or_certificate_is_refused(machine):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(machine, "/flows/filter")
    assert ask(machine, "/flows/filter", machine.site.environment["PREFECT_API_AUTH_STRING"])
    address = machine.site.environment["PMF_DASK_SCHEDULER"]
    machine.site.run(sys.executable, "-c", PING.format(address=address))
    bare = {
        name: value
        for name, value in machine.site.environment.items()
        if not name.startswith("DASK_")
    }
    for other in (address, address.replace("tls:", "tcp:")):
        done = subprocess.run(
            [sys.executable, "-c", PING.format(address=other)], env=bare, capture_output=True
        )
        assert done.returncode != 0
