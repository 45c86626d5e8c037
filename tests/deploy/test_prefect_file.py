import os
import re
import stat
import subprocess
import zoneinfo
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prefect import Flow
from prefect.client.schemas.schedules import CronSchedule
from typer.main import get_command

from pmflib_flows.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "deploy" / "README.md").read_text("utf-8")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")
PREFECT_FILE = (ROOT / "deploy" / "prefect.yaml").read_text("utf-8")
ENVIRONMENT = (ROOT / "deploy" / "environment.sh").read_text("utf-8")
SUFFIX = "{{ $PMF_SUFFIX }}"
"""Empty for the only pipeline of a server."""
DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(PREFECT_FILE.replace(SUFFIX, ""))["deployments"]


def read_flow(entrypoint: str) -> tuple[str, list[str]]:
    """Name of the flow at an entrypoint, and of its parameters."""
    module, _, name = entrypoint.rpartition(".")
    flow = getattr(import_module(module), name)
    assert isinstance(flow, Flow)
    return flow.name, list(flow.parameters.properties)


def list_deployments() -> list[str]:
    return [f"{read_flow(each['entrypoint'])[0]}/{each['name']}" for each in DEPLOYMENTS]


def list_commands(page: str) -> list[str]:
    """Lines of a page's blocks, and what its sentences quote."""
    blocks = re.findall(r"^```(?:bash|console)\n(.*?)^```", page, re.S | re.M)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line]
    rest = re.sub(r"^```\w+\n.*?^```", "", page, flags=re.S | re.M)
    return lines + re.findall(r"`([^`\n]+)`", rest)


def test_deployments__names_end_with_that_of_the_pipeline() -> None:
    names = [each["name"] for each in yaml.safe_load(PREFECT_FILE)["deployments"]]
    assert all(name.endswith(SUFFIX) for name in names)


def test_deployments__names() -> None:
    assert list_deployments() == ["etl/nightly", "gc/weekly", "score/on-demand"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda each: each["name"])
def test_deployments__parameters_are_the_flows(deployment: dict[str, Any]) -> None:
    _, parameters = read_flow(deployment["entrypoint"])
    assert deployment["parameters"].keys() <= set(parameters)
    assert deployment["parameters"]["config"] == "{{ $PMF_CONFIG }}"


def test_nightly__schedule() -> None:
    nightly = DEPLOYMENTS[0]
    (schedule,) = nightly["schedules"]
    checked = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
    minute, hour, *days = checked.cron.split()
    assert 0 <= int(minute) < 60
    assert 0 <= int(hour) < 6
    assert days == ["*", "*", "*"]
    assert schedule["timezone"] in zoneinfo.available_timezones()
    assert nightly["concurrency_limit"]["limit"] == 1


def test_prefect_file__names_no_machine() -> None:
    assert not re.search(r"""(^|[\s"'=])(/\w|~/|[A-Z]:\\)""", PREFECT_FILE + ENVIRONMENT)


def test_readme__mentions_verbs_that_exist() -> None:
    verbs = set(get_command(app).commands)  # type: ignore[attr-defined]
    mentioned = {m for line in list_commands(README) for m in re.findall(r"^pmf ([a-z]+)", line)}
    assert {"demo", "infer", "status", "query", "log"} <= mentioned <= verbs


def test_runbook__mentions_verbs_that_exist() -> None:
    verbs = set(get_command(app).commands)  # type: ignore[attr-defined]
    mentioned = {m for line in list_commands(RUNBOOK) for m in re.findall(r"^pmf ([a-z]+)", line)}
    assert {"rollback", "gc", "erase", "verify", "doctor", "plan"} <= mentioned <= verbs


def test_runbook__mentions_deployments_and_services_that_exist() -> None:
    mentioned = set(re.findall(r"\b(?:etl|gc|score)/[a-z-]+", RUNBOOK))
    assert mentioned <= set(list_deployments())
    units = {path.stem for path in (ROOT / "deploy" / "machine").glob("*.service")}
    assert set(re.findall(r"pmf-(?:server|worker|dask-[a-z]+@?)", RUNBOOK)) <= units


def test_readme__mentions_deployments_that_exist() -> None:
    mentioned = set(re.findall(r"prefect deployment (?:run|schedule ls) ([\w/-]+)", README))
    assert mentioned == set(list_deployments())


def test_readme__mentions_the_pool_of_the_deployments() -> None:
    pools = {deployment["work_pool"]["name"] for deployment in DEPLOYMENTS}
    mentioned = re.findall(r"(?:--pool|work-pool create) (\S+) --type process", README)
    assert (pools, mentioned) == ({"pmf"}, ["pmf", "pmf"])


def test_readme__mentions_files_that_exist() -> None:
    mentioned = set(re.findall(r"\bdeploy/[\w-]+\.\w+", README)) | {"requirements.lock"}
    assert {"deploy/prefect.yaml", "deploy/environment.sh"} <= mentioned
    assert all((ROOT / path).is_file() for path in mentioned)


def test_readme__mentions_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
    targets = set(re.findall(r"^([\w./-]+):", makefile, re.M))
    mentioned = {m for line in list_commands(README) for m in re.findall(r"^make ([\w./-]+)", line)}
    assert mentioned
    assert mentioned <= targets


def test_readme__explains_the_variables_of_the_environment() -> None:
    exported = set(re.findall(r"^export (\w+)=", ENVIRONMENT, re.M))
    assert "PREFECT_API_URL" in exported
    # how long writers of the database wait explains itself where it is set
    unexplained = {name for name in exported - {"PATH"} if f"`{name}" not in README}
    assert unexplained == {"PREFECT_SERVER_DATABASE_TIMEOUT"}


def test_environment__draws_a_password_once_that_this_user_alone_can_read(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    kept |= {"PREFECT_HOME": str(tmp_path / "prefect")}

    def source(**given):
        print_both = 'echo "$PREFECT_SERVER_API_AUTH_STRING"; echo "$PREFECT_API_AUTH_STRING"'
        done = subprocess.run(
            ["sh", "-c", f". deploy/environment.sh; {print_both}"],
            cwd=ROOT,
            env=kept | given,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    of_server, of_client = source()
    assert re.fullmatch(r"pmf:[0-9a-f]{48}", of_server)
    assert of_client == of_server
    assert source() == [of_server, of_client]
    assert stat.S_IMODE((tmp_path / "prefect").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "prefect" / "secrets").stat().st_mode) == 0o600
    assert source(PREFECT_API_AUTH_STRING="a:b") == ["a:b"]
