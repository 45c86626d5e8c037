"""Monitoring: rules and monitors name what a scheduler, its workers and their manifests have."""

import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import dask
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from distributed import Client, LocalCluster

DEPLOY = Path(__file__).parents[2] / "deploy"
VERSION = "1.34"


def read_objects(path: str) -> dict[str, Any]:
    """Objects of a manifest, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / path).read_text("utf-8"))}


GROUPS = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text("utf-8"))["groups"]
MONITORS = read_objects("kubernetes/monitoring.yaml")
CLUSTER = read_objects("kubernetes/dask-cluster.yaml")["DaskCluster"]
DISRUPTIONS = read_objects("kubernetes/disruptions.yaml")["PodDisruptionBudget"]


@pytest.fixture(scope="module")
def metrics():
    """Names and labels of what a scheduler and a worker serve after a task."""
    loopback = "127.0.0.1:0"
    # workers that this library started in this process serve none as long as they last
    pages = {
        f"distributed.{each}.http.routes": [f"distributed.http.{each}.prometheus"]
        for each in ("scheduler", "worker")
    }
    with (
        dask.config.set(pages),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address=loopback,
            worker_dashboard_address=loopback,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.submit(sum, [1, 2]).result()
        with urlopen(cluster.dashboard_link.replace("/status", "/metrics"), timeout=10) as page:
            return page.read().decode()


def test_alerts__are_about_metrics_that_a_scheduler_serves(metrics):
    rules = [rule for group in GROUPS for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) == 5
    for rule in rules:
        for name in re.findall(r"dask_\w+", rule["expr"]):
            assert re.search(rf"^{name}[ {{]", metrics, re.M), name
        for label in re.findall(r'(\w+="paused")', rule["expr"]):
            assert label in metrics


def test_rules_of_kubernetes__are_the_same():
    assert MONITORS["PrometheusRule"]["spec"]["groups"] == GROUPS


def test_monitors__find_the_ports_of_scheduler_and_workers():
    scheduler, worker = CLUSTER["spec"]["scheduler"], CLUSTER["spec"]["worker"]
    service, pods = MONITORS["ServiceMonitor"]["spec"], MONITORS["PodMonitor"]["spec"]
    (endpoint,) = service["endpoints"]
    assert endpoint["port"] in {port["name"] for port in scheduler["service"]["ports"]}
    # the operator gives the service the labels that it selects pods by
    assert service["selector"]["matchLabels"] == scheduler["service"]["selector"]
    (container,) = worker["spec"]["containers"]
    (endpoint,) = pods["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert pods["selector"]["matchLabels"]["dask.org/component"] == "worker"
    opened = {port["port"] for port in MONITORS["NetworkPolicy"]["spec"]["ingress"][0]["ports"]}
    assert opened == {8787, 8788}
    kubernetes_validate.validate(MONITORS["NetworkPolicy"], VERSION, strict=True)


def test_disruptions__one_worker_of_the_cluster_at_a_time():
    budget = DISRUPTIONS["spec"]
    assert (
        budget["selector"]["matchLabels"]
        == MONITORS["PodMonitor"]["spec"]["selector"]["matchLabels"]
    )
    assert budget["maxUnavailable"] < CLUSTER["spec"]["worker"]["replicas"]


def test_scrape_file__has_the_page_that_compose_and_machine_publish():
    scrape = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yaml").read_text("utf-8"))
    (job,) = scrape["scrape_configs"]
    ((target,),) = [each["targets"] for each in job["static_configs"]]
    unit = (DEPLOY / "machine" / "pmf-dask-scheduler.service").read_text("utf-8")
    assert f"--dashboard-address {target}" in unit
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text("utf-8"))
    (port,) = compose["services"]["dask-scheduler"]["ports"]
    assert port == "${PMF_PUBLISH:-127.0.0.1}:8787:8787"
    assert scrape["rule_files"] == ["alerts.yaml"]
    # the rule on a scheduler that is down knows it by its job
    assert f'up{{job="{job["job_name"]}"}}' in str(GROUPS)
