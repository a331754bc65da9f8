"""The operator's metrics, as alerts read them."""

from __future__ import annotations

import urllib.request

from operatorstand.objects import policy, service, wait_reason
from operatorstand.process import OperatorProcess
from support.alerts import missing_series
from testcluster.kubectl import Kubectl


def exported(operator: OperatorProcess) -> str:
    """What Prometheus gets."""
    host, _, port = operator.health.rpartition(":")
    address = f"http://{host}:{int(port) + 1}/metrics"
    with urllib.request.urlopen(address, timeout=5) as answer:  # loopback
        return str(answer.read().decode())


def test_operator_exports_all_that_alerts_name(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(service())
    own_kubectl.apply(policy())
    wait_reason(own_kubectl, "BackendsDiscovered", "NoPods")
    text = exported(operator)
    assert missing_series("operator", text) == []
    head = f'punctual_operator_condition{{namespace="{own_kubectl.namespace}",policy="gpt2"'
    assert f'{head},reason="NoPods",status="False",type="BackendsDiscovered"}} 1.0' in text
