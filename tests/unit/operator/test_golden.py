"""The manifests for each combination of features, word for word.

`PUNCTUAL_WRITE_GOLDEN=1 pytest tests/unit/operator/test_golden.py` writes the files anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from punctual_operator.observed import Observed
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.reconcile import reconcile
from punctual_operator.resources.deployment import GatewayImage
from punctual_operator.yaml_text import yaml_documents

FOLDER = Path(__file__).parent / "golden"
IMAGE = GatewayImage("registry.example/punctual-gateway:1")

COMBINATIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": {
        "mode": "Deadline",
        "deadline": {"defaultMilliseconds": 2000, "maximumMilliseconds": 60_000},
        "gateway": {
            "image": "registry.example/own:2",
            "imagePullPolicy": "Always",
            "imagePullSecrets": ["own-registry", "another"],
            "scaling": {"minimumReplicas": 2, "maximumReplicas": 6, "targetCpuPercent": 60},
            "servicePort": 8080,
            "cpuMillicores": 2000,
            "memoryMebibytes": 1024,
            "acceptSeconds": 10,
            "finishSeconds": 60,
            "networkPolicy": "Enabled",
            "priorityClass": "serving",
        },
        "autoscaling": {
            "targetName": "gpt2",
            "minimumReplicas": 2,
            "maximumReplicas": 8,
            "queueWait": "Enabled",
            "rejections": "Enabled",
        },
    },
    "replicas": {"gateway": {"replicas": 3, "disruptionBudget": "Disabled"}},
    "gateway-scaling": {"gateway": {"scaling": {}}},
    "pool-scaling": {
        "autoscaling": {
            "targetName": "gpt2",
            "targetKind": "StatefulSet",
            "targetUtilisationPercent": 65,
            "scaleDownStabilisationSeconds": 0,
        }
    },
    "network-policy": {"gateway": {"networkPolicy": "Enabled"}},
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_manifests_are_the_recorded_ones(name: str, make_policy: Any) -> None:
    policy: AdmissionPolicy = make_policy(**COMBINATIONS[name])
    text = yaml_documents(reconcile(policy, Observed(), IMAGE).manifests)
    path = FOLDER / f"{name}.yaml"
    if os.environ.get("PUNCTUAL_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_every_golden_file_belongs_to_a_combination() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(COMBINATIONS)
