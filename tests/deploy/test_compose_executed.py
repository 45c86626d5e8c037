"""Commands of compose.yaml as processes on loopback: PostgreSQL, a password, TLS, an object store, a nightly run."""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.test_deployment import (
    FINISHED,
    PMF,
    ROOT,
    WAIT_SECONDS,
    Site,
    find_free_port,
    write_pipeline,
)
from tests.deploy.test_machine import PING

COMPOSE = ROOT / "deploy" / "compose"
BIN = Path(sys.executable).parent
STORE = "s3://pmf/store"
POSTGRES = next(iter(Path("/usr/lib").glob("postgresql/*/bin/initdb")), shutil.which("initdb"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(POSTGRES is None, reason="PostgreSQL is not installed"),
]


class Containers:
    """What an engine would make of `compose.yaml`: environments, secrets, volumes, names of hosts; here without one.

    Parameters
    ----------
    folder
        Volumes, secrets and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.file = yaml.safe_load(self.fill((COMPOSE / "compose.yaml").read_text("utf-8")))
        self.ports = {
            port: find_free_port() for port in ("4200", "5432", "8080", "8786", "8787", "9000")
        }
        image = (COMPOSE / "Dockerfile").read_text("utf-8").replace("\\\n", "")
        (line,) = re.findall(r"^ENV (.*)$", image, re.M)
        self.image = dict(pair.split("=", 1) for pair in shlex.split(line))
        own = {"HOME": str(folder), "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        own["PATH"] = f"{BIN}:{kept['PATH']}"
        self.base = kept | {"OMP_NUM_THREADS": "1"} | self.translate(self.image) | own
        self.site = Site(folder, self.base)

    @staticmethod
    def fill(text: str) -> str:
        """Replace variables by their defaults."""
        return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)

    def translate(self, value):
        """Names and ports of the services, files and folders of containers: here."""
        if isinstance(value, dict):
            return {name: self.translate(str(each)) for name, each in value.items()}
        for host in ("database", "prefect-server", "dask-scheduler", "object-store"):
            value = re.sub(rf"(^|//){host}(?=:|$)", r"\g<1>127.0.0.1", value)
        value = value.replace("0.0.0.0", "127.0.0.1")
        for port, ours in self.ports.items():
            value = re.sub(rf"(^|:){port}(?=/|$)", rf"\g<1>{ours}", value)
        value = re.sub(r"127\.0\.0\.1:8788", "127.0.0.1:0", value)
        found = re.fullmatch(r"/run/secrets/(\w+)", value)
        if found:
            return str(self.folder / self.file["secrets"][found[1]]["file"])
        return re.sub(r"^/(var|tmp)/", f"{self.folder}/\\g<1>/", value)

    def make_environment(self, name: str):
        return self.base | self.translate(self.file["services"][name]["environment"])

    def make_command(self, name: str) -> list[str]:
        """The entrypoint of the image, and the command of a service."""
        command = [self.translate(word) for word in self.file["services"][name]["command"]]
        return [str(COMPOSE / "start.sh"), *command]

    def start(self, name: str, **more: str) -> "subprocess.Popen[bytes]":
        self.site.environment = self.make_environment(name) | more
        self.site.start(f"{name}-{len(self.site.processes)}", *self.make_command(name))
        return self.site.processes[-1]

    def run(self, *command: str, service: str = "prefect-worker") -> str:
        """Run a command beside a service, with its environment: `docker compose exec`."""
        self.site.environment = self.make_environment(service)
        return self.site.run(str(COMPOSE / "start.sh"), *command)

    def wait_until_healthy(self, name: str) -> None:
        """Wait for what the health check of the image asks."""
        check = [sys.executable, str(COMPOSE / "check_health.py")]
        environment = self.make_environment(name)
        assert environment["PMF_HEALTH_URL"]
        self.site.wait_for(
            lambda: subprocess.run(check, env=environment, capture_output=True).returncode == 0
        )

    def read_secret(self, name: str):
        return (self.folder / self.file["secrets"][name]["file"]).read_text("utf-8").strip()


def start_database(containers: Containers, folder: Path) -> None:
    """What the entrypoint of PostgreSQL's image does, and then the command of the service."""
    programs = Path(str(POSTGRES)).parent
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        shutil.chown(folder, "nobody", "nogroup")
    password = folder / "password"
    password.write_text(containers.read_secret("database_password"), "utf-8")
    password.chmod(0o644)
    environment = containers.make_environment("database")
    data, user = str(folder / "data"), environment["POSTGRES_USER"]
    made = [*as_user, str(programs / "initdb"), "--pgdata", data, "--username", user, "--no-sync"]
    made += ["--pwfile", str(password), "--auth-local=scram-sha-256"]
    made += shlex.split(environment["POSTGRES_INITDB_ARGS"])
    subprocess.run(made, check=True, capture_output=True, cwd=folder)
    port = str(containers.ports["5432"])
    command = [*as_user, str(programs / "postgres"), *containers.make_command("database")[2:]]
    command += ["-D", data, "-p", port, "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
    containers.site.start("database", *command)
    address = ("--host", "127.0.0.1", "--port", port, "--username", user)
    ready = [str(programs / "pg_isready"), *address, "--dbname", environment["POSTGRES_DB"]]
    containers.site.wait_for(lambda: subprocess.run(ready, capture_output=True).returncode == 0)
    given = os.environ | {"PGPASSWORD": password.read_text("utf-8")}
    subprocess.run(
        [str(programs / "createdb"), *address, environment["POSTGRES_DB"]], env=given, check=True
    )


def start_object_store(containers: Containers) -> None:
    """A server of the same interface, in place of the image's, and the bucket."""
    port = str(containers.ports["9000"])
    containers.site.start(
        "object-store", sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port
    )
    url = f"http://127.0.0.1:{port}/pmf"

    def make_bucket() -> bool:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    containers.site.wait_for(make_bucket)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """All services, and the set-up done."""
    folder = tmp_path_factory.mktemp("compose")
    (folder / "tmp").mkdir()
    shutil.copy(COMPOSE / "make_secrets.sh", folder)
    text = (COMPOSE / "make_secrets.sh").read_text("utf-8")
    script = text.replace("../certificates.py", str(ROOT / "deploy" / "certificates.py"))
    (folder / "make_secrets.sh").write_text(script, "utf-8")
    made = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(["sh", folder / "make_secrets.sh"], env=made, check=True, capture_output=True)
    containers = Containers(folder)
    config = write_pipeline(folder / "var/lib/pmf/nightly")
    text = config.read_text("utf-8")
    assert 'path = "store"' in text
    config.write_text(text.replace('path = "store"', f'path = "{STORE}"'), "utf-8")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as database:
        try:
            start_database(containers, Path(database))
            start_object_store(containers)
            containers.start("dask-scheduler")
            containers.start("prefect-server")
            containers.wait_until_healthy("dask-scheduler")
            for _ in range(2):
                containers.start("dask-worker")
            containers.wait_until_healthy("prefect-server")
            command = containers.make_command("set-up")[1:]
            containers.run(*command, service="set-up")
            yield containers
        finally:
            containers.site.stop()


def read_database(containers: Containers) -> str:
    """All that the server has stored."""
    port = str(containers.ports["5432"])
    programs = Path(str(POSTGRES)).parent
    given = os.environ | {"PGPASSWORD": containers.read_secret("database_password")}
    address = ("--host", "127.0.0.1", "--port", port, "--username", "prefect")
    dump = [str(programs / "pg_dump"), *address, "--data-only", "prefect"]
    return subprocess.run(dump, env=given, check=True, capture_output=True, text=True).stdout


SAVE_SECRET = """
import sys
from prefect.blocks.system import Secret
Secret(value=sys.argv[1]).save(sys.argv[2])
"""


def test_nightly__with_tls_a_password_and_postgresql_promotes_a_model(containers):
    """And a secret of the server reaches the process of the run, and nothing that is stored."""
    secret = secrets.token_hex(20)
    containers.run(sys.executable, "-c", SAVE_SECRET, secret, "session-token")
    command = (
        sys.executable,
        "deploy/secret_variables.py",
        "pmf",
        "AWS_SESSION_TOKEN=session-token",
    )
    assert "AWS_SESSION_TOKEN" in containers.run(*command)
    worker = containers.start("prefect-worker")
    containers.wait_until_healthy("prefect-worker")
    containers.run("prefect", "deployment", "run", "etl/nightly")
    seen = set()

    def is_done() -> bool:
        for process in psutil.Process(worker.pid).children(recursive=True):
            try:
                if "prefect.engine" in process.cmdline():
                    seen.add(process.environ().get("AWS_SESSION_TOKEN"))
            except psutil.Error:
                continue
        states = json.loads(containers.run("prefect", "flow-run", "ls", "--output", "json"))
        done = [each for each in states if each["state_type"] in ("COMPLETED", "FAILED", "CRASHED")]
        time.sleep(1)
        return bool(done)

    containers.site.wait_for(is_done)
    states = json.loads(containers.run("prefect", "flow-run", "ls", "--output", "json"))
    done = [each["state_type"] for each in states if each["state_type"] != "SCHEDULED"]
    assert done == ["COMPLETED"], containers.site.read_logs()
    # a process that has just been made has not its own environment yet
    assert seen - {None} == {secret}
    config = Path(containers.make_environment("prefect-worker")["PMF_CONFIG"])
    assert json.loads(containers.run(*PMF, "status", str(config), "--json"))["current"] is True
    (run,) = json.loads(containers.run(*PMF, "history", str(config), "--json"))["runs"]
    assert run["outcome"] == "promoted"
    address = f"tls://127.0.0.1:{containers.ports['8786']}"
    assert "count-fold" in json.loads(containers.run(sys.executable, "-c", FINISHED, address))
    stored = read_database(containers)
    assert "etl" in stored
    assert secret not in stored
    ours = [path for path in containers.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in ours)
    assert not [path for path in ours if secret.encode() in path.read_bytes()]


def test_dask__who_shows_no_certificate_is_refused(containers):
    address = f"tls://127.0.0.1:{containers.ports['8786']}"
    containers.run(sys.executable, "-c", PING.format(address=address))
    for bare in (address, address.replace("tls:", "tcp:")):
        command = [sys.executable, "-c", PING.format(address=bare)]
        done = subprocess.run(command, env=containers.base, capture_output=True)
        assert done.returncode != 0


@pytest.mark.parametrize("given", [{}, {"PREFECT_API_AUTH_STRING": "pmf:guessed"}])
def test_server__who_has_no_password_is_refused(containers, given):
    url = containers.make_environment("prefect-worker")["PREFECT_API_URL"]
    done = subprocess.run(
        ["prefect", "deployment", "ls"],
        env=containers.base | {"PREFECT_API_URL": url} | given,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode != 0
    assert "401" in done.stdout + done.stderr
    containers.run("prefect", "deployment", "ls")


def test_database__who_has_no_password_is_refused(containers):
    port = str(containers.ports["5432"])
    command = [str(Path(str(POSTGRES)).parent / "psql"), "--host", "127.0.0.1", "--port", port]
    done = subprocess.run(
        [*command, "--username", "prefect", "--no-password", "--command", "SELECT 1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "password" in done.stderr
