"""The scrape configuration for a Prometheus without prometheus-operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.generate import ROOT
from charts.tools.prometheus import promtool
from punctual_operator.adapter.manifests import build_manifests
from punctual_operator.adapter.settings import SERVICE
from punctual_operator.names import POLICY_LABEL, child_labels
from punctual_operator.policies import parse
from punctual_operator.resources.deployment import GatewayImage, build_deployment

MONITORING = ROOT / "manifests" / "monitoring"
CONFIGURATION: dict[str, Any] = yaml.safe_load((MONITORING / "scrape.yaml").read_text())
JOBS = {job["job_name"]: job for job in CONFIGURATION["scrape_configs"]}
NAME = "app.kubernetes.io/name"
META = "__meta_kubernetes_pod_label_"


def kept(job: dict[str, Any]) -> dict[str, str]:
    """The values by which a job keeps pods and ports, by their source."""
    rules = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    return {rule["source_labels"][0]: rule["regex"] for rule in rules}


def meta(label: str) -> str:
    """What Prometheus calls a pod's label."""
    return META + re.sub(r"[^a-zA-Z0-9]", "_", label)


def deployments(render_objects: Callable[..., list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The Deployment that each job is about."""
    spec = {"model": "gpt2", "backend": {"service": "gpt2"}}
    policy = parse({"metadata": {"name": "gpt2", "namespace": "prod", "uid": "1"}, "spec": spec})
    (operator,) = (one for one in render_objects() if one["kind"] == "Deployment")
    (adapter,) = (one for one in build_manifests() if one["kind"] == "Deployment")
    gateway = build_deployment(policy, GatewayImage("punctual/gateway:0.1.0"))
    return {"punctual-gateway": gateway, "punctual-operator": operator, SERVICE: adapter}


@pytest.mark.parametrize("job", JOBS)
def test_job_keeps_the_pods_and_the_port_that_it_is_about(
    job: str, render_objects: Callable[..., list[dict[str, Any]]]
) -> None:
    template = deployments(render_objects)[job]["spec"]["template"]
    wanted = kept(JOBS[job])
    assert wanted[meta(NAME)] == template["metadata"]["labels"][NAME]
    ports = [port["name"] for one in template["spec"]["containers"] for port in one["ports"]]
    assert wanted["__meta_kubernetes_pod_container_port_name"] in ports


def test_series_of_gateways_are_labelled_with_their_policy() -> None:
    assert POLICY_LABEL in child_labels("gpt2")
    rules = JOBS["punctual-gateway"]["relabel_configs"]
    made = {
        rule["target_label"]: rule["source_labels"][0] for rule in rules if "target_label" in rule
    }
    assert made["punctual_dev_policy"] == meta(POLICY_LABEL)
    assert set(made) == {"namespace", "pod", "punctual_dev_policy"}


def test_prometheus_accepts_it_together_with_the_rules(tmp_path: Path) -> None:
    jobs = []
    for job in CONFIGURATION["scrape_configs"]:
        # Debian's Prometheus is built without discovery in Kubernetes
        assert job["kubernetes_sd_configs"] == [{"role": "pod"}]
        jobs.append({name: job[name] for name in job if name != "kubernetes_sd_configs"})
    path = tmp_path / "prometheus.yml"
    rules = [str(MONITORING / "alerts.yaml")]
    path.write_text(yaml.safe_dump({"scrape_configs": jobs, "rule_files": rules}))
    promtool("check", "config", str(path))
