"""The same signals for clusters in which somebody else owns `external.metrics.k8s.io`.

`python -m punctual_operator.adapter.alternatives keda POLICY --prometheus URL` prints KEDA's
ScaledObject for a policy, in place of its `autoscaling` section. `... prometheus-adapter` prints
recording rules and rules for prometheus-adapter under which the operator's own autoscaler works.

Both need a Prometheus that scrapes the gateways with the label of their policy, as the chart's
PodMonitor does. A replica counts for one window after its last scrape, which is as long as its
successor needs to know its own load: so a restart neither halves nor doubles the sum.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from punctual_operator.adapter.series import SERIES, Joining
from punctual_operator.names import pool_scaler_name
from punctual_operator.policies import AdmissionPolicy, parse
from punctual_operator.resources.scaling import OFFERED_LOAD, build_behaviour
from punctual_operator.scale_down import SHORTEST_SECONDS
from punctual_operator.sections import Autoscaling
from punctual_operator.yaml_text import yaml_documents

POLICY_LABEL = "punctual_dev_policy"
"""What Prometheus makes of the pod label `punctual.dev/policy`."""
HOLD = "1m"
GAUGES = {
    "punctual_queue_wait_seconds": "punctual_queue_wait_p95_seconds",
}
"""Where a metric is called otherwise in a gateway's `/metrics`: there a histogram has its name."""
FUNCTIONS = {Joining.SUM: "sum", Joining.WORST: "max", Joining.WEIGHTED: "avg"}

Manifest = dict[str, Any]


def build_scaled_object(policy: AdmissionPolicy, scaling: Autoscaling, server: str) -> Manifest:
    """KEDA's object for a policy; it makes an autoscaler of its own, so remove `autoscaling`."""
    share = scaling.target_utilisation_percent / 100
    selector = f'{{namespace="{policy.namespace}",{POLICY_LABEL}="{policy.name}"}}'
    trigger = {
        "type": "prometheus",
        "name": "offered-load",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": server,
            "query": f"sum(last_over_time({OFFERED_LOAD}{selector}[{HOLD}]))",
            "threshold": f"{share:g}",
            # a hole in the data is an error, not a load of zero
            "ignoreNullValues": "false",
        },
    }
    behaviour = build_behaviour(scaling, SHORTEST_SECONDS)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": pool_scaler_name(policy.name), "namespace": policy.namespace},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": str(scaling.target_kind),
                "name": scaling.target_name,
            },
            "minReplicaCount": scaling.minimum_replicas,
            "maxReplicaCount": scaling.maximum_replicas,
            "pollingInterval": 15,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behaviour}},
            "triggers": [trigger],
        },
    }


def build_recording_rules(namespace: str) -> Manifest:
    """One series for each policy and metric, with the label that the autoscaler selects by."""
    rules = []
    for series in SERIES.values():
        gauge = GAUGES.get(series.name, series.name)
        joined = f"{FUNCTIONS[series.joining]} by (namespace, {POLICY_LABEL}) "
        joined += f"(last_over_time({gauge}[{HOLD}]))"
        expression = f'label_replace({joined}, "policy", "$1", "{POLICY_LABEL}", "(.+)")'
        rules.append({"record": f"policy:{series.name}", "expr": expression})
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "punctual-autoscaling", "namespace": namespace},
        "spec": {"groups": [{"name": "punctual-autoscaling", "interval": "15s", "rules": rules}]},
    }


def build_adapter_rules() -> Manifest:
    """What goes into prometheus-adapter's configuration (in its chart: under `rules`)."""
    rules = [
        {
            "seriesQuery": f'{{__name__="policy:{name}",namespace!="",policy!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
            "name": {"matches": f"^policy:{name}$", "as": name},
            "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (policy)",
        }
        for name in SERIES
    ]
    return {"externalRules": rules}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is asked for; returns 2 for a policy that cannot be used."""
    parser = argparse.ArgumentParser(description="Autoscaling by KEDA or prometheus-adapter.")
    choices = parser.add_subparsers(dest="kind", required=True)
    keda = choices.add_parser("keda", help="a ScaledObject for a policy")
    keda.add_argument("policy", type=Path, help="file with an AdmissionPolicy")
    keda.add_argument("--prometheus", required=True, help="URL of Prometheus")
    rules = choices.add_parser("prometheus-adapter", help="rules for Prometheus and the adapter")
    rules.add_argument("--namespace", default="monitoring", help="of the PrometheusRule")
    given = parser.parse_args(arguments)
    if given.kind == "prometheus-adapter":
        sys.stdout.write(yaml_documents([build_recording_rules(given.namespace)]))
        sys.stdout.write("---\n# prometheus-adapter's configuration\n")
        sys.stdout.write(yaml_documents([build_adapter_rules()]))
        return 0
    return _print_keda(given.policy, given.prometheus)


def _print_keda(path: Path, server: str) -> int:
    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
        written["metadata"].setdefault("namespace", "default")
        written["metadata"].setdefault("uid", "")
        policy = parse(written)
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        print(f"{path} must hold an AdmissionPolicy: {error}", file=sys.stderr)
        return 2
    if policy.autoscaling is None:
        print(f"{path} must have an `autoscaling` section", file=sys.stderr)
        return 2
    sys.stdout.write(yaml_documents([build_scaled_object(policy, policy.autoscaling, server)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
