"""The samples are taken by a real API server, in a namespace that enforces `restricted`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from operatorstand.objects import MANIFESTS, install
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

SAMPLES = sorted((MANIFESTS / "samples").glob("*.yaml"))


@pytest.fixture
def restricted(cluster: Cluster, kubectl: Kubectl) -> Kubectl:
    """kubectl in a namespace that takes only pods of the strictest level."""
    install(cluster)
    level = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", kubectl.namespace, level)
    return kubectl


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_taken_and_its_pods_are_made(path: Path, restricted: Kubectl) -> None:
    restricted("apply", "--server-side", "-f", str(path))
    for given in yaml.safe_load_all(path.read_text()):
        if given["kind"] != "Deployment":
            continue
        selector = ",".join(
            f"{key}={value}" for key, value in given["spec"]["selector"]["matchLabels"].items()
        )
        wait_until(
            lambda selector=selector: restricted("get", "pods", "-l", selector, "-o", "name"),  # type: ignore[misc]
            f"the pods of {given['metadata']['name']} are made",
        )


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_stopping_pod_has_time_to_drain(path: Path) -> None:
    for given in yaml.safe_load_all(path.read_text()):
        if given["kind"] == "Deployment":
            pod = given["spec"]["template"]["spec"]
            budgets = [
                float(argument.split("=")[1])
                for argument in pod["containers"][0]["args"]
                if argument.startswith("--drain")
            ]
            assert len(budgets) == 2
            assert pod["terminationGracePeriodSeconds"] > sum(budgets)
