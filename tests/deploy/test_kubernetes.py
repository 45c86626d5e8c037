"""Manifests: validated by the schemas of Kubernetes and of Dask's operator, for there is no cluster here."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from prefect.utilities.templating import apply_values

from pmflib import __version__
from tests.prefect_server import serve_prefect

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = "1.34"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
TEMPLATE = json.loads((FOLDER / "base-job-template.json").read_text("utf-8"))


def list_objects() -> list[dict[str, Any]]:
    return [
        found
        for name in KUSTOMIZATION["resources"]
        for found in yaml.safe_load_all((FOLDER / name).read_text("utf-8"))
    ]


OBJECTS = list_objects()
DASK = next(each for each in OBJECTS if each["kind"] == "DaskCluster")


def name_object(found: dict[str, Any]) -> str:
    return f"{found['kind']}-{found['metadata']['name']}"


def list_pods() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, labels and specification of every pod."""
    pods = []
    for found in OBJECTS:
        if template := found.get("spec", {}).get("template"):
            pods.append((name_object(found), template["metadata"]["labels"], template["spec"]))
    for component in ("scheduler", "worker"):
        labels = {"dask.org/cluster-name": "pmf", "dask.org/component": component}
        pods.append((f"dask-{component}", labels, DASK["spec"][component]["spec"]))
    run = make_run()["spec"]["template"]
    return [*pods, ("run", run["metadata"]["labels"], run["spec"])]


def make_run():
    """The Job of a run, as the Prefect worker makes it of the template's defaults."""
    properties = TEMPLATE["variables"]["properties"]
    values = {name: each["default"] for name, each in properties.items() if "default" in each}
    values |= {"name": "run", "labels": {"prefect.io/flow-run-name": "run"}}
    values |= {"command": ["prefect", "flow-run", "execute"]}
    values |= {"env": [{"name": "PREFECT__FLOW_RUN_ID", "value": "1"}]}
    return apply_values(copy.deepcopy(TEMPLATE["job_configuration"]["job_manifest"]), values)


@pytest.mark.parametrize(
    "found",
    [*(each for each in OBJECTS if each is not DASK), make_run()],
    ids=lambda found: found["kind"],
)
def test_manifest__schema_of_kubernetes(found):
    kubernetes_validate.validate(found, VERSION, strict=True)


def read_definition(name: str):
    """A definition of the operator's, in which those of Kubernetes are the ones of our version."""
    folder = files("dask_kubernetes") / "operator" / "customresources"
    text = (folder / "templates.yaml").read_text("utf-8")
    schemas = files("kubernetes_validate") / f"kubernetes-json-schema/v{VERSION}.0-local-strict"

    def resolve(schema: Any) -> Any:
        if isinstance(schema, list):
            return [resolve(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref", "")
        if not isinstance(reference, str) or not reference.startswith("python://"):
            return {name: resolve(each) for name, each in schema.items()}
        last = reference.rsplit("/", 1)[1]
        if "dask_kubernetes" in reference:
            return resolve(yaml.safe_load(text)["definitions"][last])
        return {"$ref": f"{Path(str(schemas / '_definitions.json')).as_uri()}#/$defs/{last}"}

    return resolve(yaml.safe_load(text)["definitions"][name])


def test_dask_cluster__schema_of_the_operator():
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    def retrieve(address: str) -> Resource:
        path = Path(address.removeprefix("file://"))
        return Resource.from_contents(json.loads(path.read_text("utf-8")), DRAFT202012)

    schema = read_definition("dask.k8s.api.v1.DaskCluster")
    registry = Registry(retrieve=retrieve)  # type: ignore[call-arg]
    validator = jsonschema.Draft202012Validator(schema, registry=registry)
    validator.validate(DASK)
    for key, value in (("replicas", "four"), ("spec", {"containers": [{"nmae": "worker"}]})):
        broken = copy.deepcopy(DASK)
        broken["spec"]["worker"][key] = value
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(broken)


@pytest.mark.parametrize(("name", "labels", "pod"), list_pods(), ids=lambda each: str(each)[:20])
def test_pod__is_confined_limited_and_probed(name, labels, pod):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (
        False,
        {"drop": ["ALL"]},
    )
    assert "memory" in container["resources"]["limits"]
    assert "memory" in container["resources"]["requests"]
    if name not in ("run", "Job-set-up"):
        assert "livenessProbe" in container
    if name != "Deployment-prefect-worker":
        assert pod["automountServiceAccountToken"] is False
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {"data"} if name == "StatefulSet-database" else set()
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    assert not [each for each in container.get("env", []) if "secretKeyRef" in str(each)]


def test_names__of_services_settings_and_claims_exist():
    text = "".join((FOLDER / name).read_text("utf-8") for name in KUSTOMIZATION["resources"])
    text += json.dumps(TEMPLATE)
    there = {name_object(found) for found in OBJECTS}
    made = {f"ConfigMap-{each['name']}" for each in KUSTOMIZATION["configMapGenerator"]}
    hosts = set(re.findall(r"//([\w-]+)\.pmf\.svc", text))
    # the operator names the service of a scheduler after its cluster
    assert hosts == {"prefect-server", f"{DASK['metadata']['name']}-scheduler"}
    assert "Service-prefect-server" in there
    claims = set(re.findall(r"claimName\"?: \"?(\w+)", text))
    assert {f"PersistentVolumeClaim-{name}" for name in claims} <= there
    settings = set(re.findall(r"onfigMap(?:Ref)?\"?: \{\"?name\"?: \"?([\w-]+)", text))
    assert {f"ConfigMap-{name}" for name in settings} <= there | made | {"ConfigMap-object-store"}


def test_policies__name_pods_that_exist():
    pods = [labels for _, labels, _ in list_pods()]
    for policy in (each for each in OBJECTS if each["kind"] == "NetworkPolicy"):
        selector = policy["spec"]["podSelector"].get("matchLabels", {})
        assert any(selector.items() <= labels.items() for labels in pods), policy["metadata"][
            "name"
        ]
        for rule in policy["spec"].get("ingress", []):
            for peer in rule["from"]:
                selector = peer.get("podSelector", {})
                for expression in selector.get("matchExpressions", []):
                    values = {labels.get(expression["key"]) for labels in pods}
                    assert set(expression["values"]) <= values
                labels_of_peer = selector.get("matchLabels", {})
                assert any(labels_of_peer.items() <= labels.items() for labels in pods)


def test_images__are_of_this_version():
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == __version__
    assert TEMPLATE["variables"]["properties"]["image"]["default"].endswith(f":{__version__}")
    prefect = re.search(
        r"^prefect==([\d.]+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M
    )
    assert prefect
    worker = (FOLDER / "prefect-worker.yaml").read_text("utf-8")
    assert f"image: prefecthq/prefect:{prefect[1]}-python3.11-kubernetes" in worker


def test_readme__names_the_secrets_that_pods_mount():
    mounted = {
        volume["secret"]["secretName"]
        for _, _, pod in list_pods()
        for volume in pod["volumes"]
        if "secret" in volume
    }
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert mounted == set(re.findall(r"create secret generic ([\w-]+)", readme))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomization__kubectl_builds_it():
    done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert len(built) == len(OBJECTS) + len(KUSTOMIZATION["configMapGenerator"])
    images = set(re.findall(r"image: (\S+)", done.stdout))
    assert f"registry.example.org/pmf:{__version__}" in images
    assert "pmf" not in images


@pytest.mark.slow
def test_work_pool__a_server_takes_the_template(tmp_path):
    with serve_prefect(tmp_path):
        command = [sys.executable, "-m", "prefect", "--no-prompt", "work-pool"]
        path = FOLDER / "base-job-template.json"
        options = ["--type", "kubernetes", "--base-job-template", str(path)]
        for arguments in (
            ["create", "pmf", "--overwrite", *options],
            ["inspect", "pmf", "--output", "json"],
        ):
            done = subprocess.run(
                [*command, *arguments], env=dict(os.environ), capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
    pool = json.loads(done.stdout)
    assert pool["type"] == "kubernetes"
    assert pool["base_job_template"]["job_configuration"] == TEMPLATE["job_configuration"]
