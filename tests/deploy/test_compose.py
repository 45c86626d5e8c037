"""Containers: what is validated of their files, without an engine that would run them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
BIN = Path(sys.executable).parent
FILE = yaml.safe_load((COMPOSE / "compose.yaml").read_text("utf-8"))
SERVICES = FILE["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"] == "pmf")
DOCKERFILE = (COMPOSE / "Dockerfile").read_text("utf-8")


def run(*command, **options) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*map(str, command)], capture_output=True, text=True, **options)


def test_dockerfile__hadolint_finds_nothing():
    done = run(BIN / "hadolint", COMPOSE / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_dockerfile__takes_what_is_in_the_lock_file_and_checks_it():
    text = DOCKERFILE.replace("\\\n", "")
    commands = re.findall(r"(?:uv|-m) pip install ([^&\n]*)", text)
    assert len(commands) == 3
    for words in map(str.split, commands):
        assert "--require-hashes" in words or {"--no-deps", "--offline"} <= set(words)
    assert "--constraint requirements.lock" in commands[1]
    (names, script) = re.findall(r"for name in ([^;]*); do(.*?done)", text, re.S)[0]
    said = run("sh", "-c", f"for name in {names}; do{script}", cwd=ROOT).stdout
    assert re.findall(r"^([\w-]+)==", said, re.M) == names.split()
    assert said.count("--hash=") == len(said.splitlines()) - len(names.split())


def test_dockerfile__copies_what_is_there_and_no_secret():
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.M)
        for word in line.split()[:-1]
    ]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    assert not {"deploy", "."} & set(copied)


def test_compose__schema():
    done = run(
        BIN / "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        COMPOSE / "compose.yaml",
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_service__has_limits_a_health_check_and_secrets_that_are_files(name):
    service = SERVICES[name]
    if name not in ("set-up", "bucket"):
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
        assert "PMF_HEALTH_URL" in service["environment"] or "healthcheck" in service
    for variable, value in service.get("environment", {}).items():
        secret = re.search(r"PASSWORD|AUTH_STRING|ROOT_USER|ACCESS_KEY|SECRET", variable)
        if secret or str(value).startswith("/run/secrets/"):
            assert str(value).removeprefix("/run/secrets/") in service["secrets"]
    assert set(service["secrets"]) <= set(FILE["secrets"])
    assert set(service["networks"]) <= set(FILE["networks"])


def test_services__nothing_of_dask_without_tls():
    for name in OURS:
        environment = SERVICES[name]["environment"]
        if "tls_ca" in SERVICES[name]["secrets"]:
            assert environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
    assert {"tls_ca"} <= set.intersection(
        *(
            set(SERVICES[name]["secrets"])
            for name in ("prefect-worker", "dask-scheduler", "dask-worker")
        )
    )


def test_services__ports_are_published_on_this_machine_alone():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("${PMF_PUBLISH:-127.0.0.1}:") for port in ports)


def test_variables__the_example_explains_all():
    text = (COMPOSE / "compose.yaml").read_text("utf-8")
    used = set(re.findall(r"\$\{(\w+)", text))
    example = (COMPOSE / ".env.example").read_text("utf-8")
    assert used == set(re.findall(r"^(\w+)=", example, re.M))


def test_make_secrets__keeps_what_is_there(tmp_path):
    folder = tmp_path / "deploy" / "compose"
    folder.mkdir(parents=True)
    for path in (COMPOSE / "make_secrets.sh", ROOT / "deploy" / "certificates.py"):
        (folder.parent / path.relative_to(ROOT / "deploy")).write_bytes(path.read_bytes())
    made = []
    for _ in range(2):
        done = run(
            "sh",
            folder / "make_secrets.sh",
            env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        files = [path for path in (folder / "secrets").rglob("*") if path.is_file()]
        made.append({str(path.relative_to(folder)): path.read_text() for path in files})
    assert made[0] == made[1]
    assert {secret["file"] for secret in FILE["secrets"].values()} <= set(made[0])
    assert (folder / "secrets").stat().st_mode & 0o777 == 0o700
    assert (folder / "secrets/tls/ca-key.pem").stat().st_mode & 0o777 == 0o600


def test_start__secrets_become_variables_of_the_command_alone(tmp_path):
    (tmp_path / "secret").write_text("pmf:a b$c\n", "utf-8")
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    done = run(
        *(COMPOSE / "start.sh", sys.executable, "-c", show),
        env={"PREFECT_API_AUTH_STRING_FILE": str(tmp_path / "secret"), "PATH": "/usr/bin:/bin"},
    )
    seen = json.loads(done.stdout)
    assert seen["PREFECT_API_AUTH_STRING"] == "pmf:a b$c"
    assert "PREFECT_API_AUTH_STRING_FILE" not in seen
    lost = run(
        *(COMPOSE / "start.sh", "true"),
        env={"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "nothing"), "PATH": "/usr/bin:/bin"},
    )
    assert lost.returncode != 0
