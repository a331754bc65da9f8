"""Makes all generated parts of the chart, and the manifests rendered from it.

`make chart` runs it; `python -m charts.tools.generate --check` names what is out of date and
returns 1. One source each: the CRD and the operator's rights are the operator's own, the README's
table and the schema come from values.yaml.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from charts.tools.dashboard import dashboard_text
from charts.tools.helm import helm
from charts.tools.reference import reference_text
from charts.tools.values import build_schema, read_values, values_table
from punctual_operator.adapter.manifests import build_manifests
from punctual_operator.crd import build_crd
from punctual_operator.rbac import NAMESPACE, RULES
from punctual_operator.yaml_text import yaml_documents, yaml_text

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "punctual"
TABLE = ("<!-- values -->\n", "<!-- end -->\n")
ALERTS = ("gateway", "operator", "adapter")
RUNBOOKS = "docs/runbooks.md"
ALERTS_HEAD = """\
# Rules for a Prometheus without prometheus-operator: name this file in `rule_files`.
# Made from charts/punctual/files/alerts by `make chart`.
# Without the metrics adapter leave out its group, punctual-adapter.
"""
INSTALL_HEAD = f"""\
# Punctual's operator for all namespaces, without Helm: kubectl apply --server-side -f install.yaml
# Rendered from charts/punctual by `make chart`.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""


def crd_text() -> str:
    """The CustomResourceDefinition."""
    return yaml_text(build_crd())


def rules_text() -> str:
    """The operator's rights: those that a Role can give, and those that only a ClusterRole can."""
    parts = {
        name: [rule.manifest() for rule in RULES if rule.wide is wide]
        for name, wide in (("rules", False), ("clusterRules", True))
    }
    return yaml_text(parts)


def adapter_text() -> str:
    """The metrics adapter's objects, with words to replace for what the release decides."""
    return yaml_documents(build_manifests(namespace="NAMESPACE", image="IMAGE"))


def schema_text() -> str:
    """The schema of the values."""
    return json.dumps(build_schema(read_values(values_source())), indent=2) + "\n"


def readme_text() -> str:
    """The chart's README with a fresh table of values."""
    text = (CHART / "README.md").read_text()
    before, rest = text.split(TABLE[0])
    after = rest.split(TABLE[1])[1]
    return before + TABLE[0] + values_table(read_values(values_source())) + TABLE[1] + after


def install_text() -> str:
    """The chart with its own values, for those who do not use Helm."""
    rendered = helm("template", "punctual", str(CHART), "--namespace", NAMESPACE)
    # nobody but Helm reads who manages it, and what it manages Helm would want to own
    lines = [line for line in rendered.splitlines() if not _is_of_helm(line)]
    return INSTALL_HEAD + "\n".join(lines) + "\n"


def _is_of_helm(line: str) -> bool:
    heads = ("app.kubernetes.io/managed-by: Helm", "helm.sh/chart:", "# Source: ")
    return line.strip().startswith(heads)


def alerts_text() -> str:
    """The alert rules of all components, for a Prometheus without prometheus-operator."""
    groups = []
    for name in ALERTS:
        text = (CHART / "files" / "alerts" / f"{name}.yaml").read_text()
        groups += yaml.safe_load(text.replace("RUNBOOKS", RUNBOOKS))["groups"]
    return ALERTS_HEAD + yaml_text({"groups": groups})


def values_source() -> str:
    """The text of values.yaml."""
    return (CHART / "values.yaml").read_text()


FILES: dict[Path, Callable[[], str]] = {
    CHART / "files" / "crd.yaml": crd_text,
    ROOT / "manifests" / "crd.yaml": crd_text,
    CHART / "files" / "operator-rules.yaml": rules_text,
    CHART / "files" / "metrics-adapter.yaml": adapter_text,
    CHART / "values.schema.json": schema_text,
    CHART / "README.md": readme_text,
    CHART / "files" / "dashboard.json": dashboard_text,
    ROOT / "manifests" / "monitoring" / "dashboard.json": dashboard_text,
    ROOT / "manifests" / "monitoring" / "alerts.yaml": alerts_text,
    ROOT / "manifests" / "install.yaml": install_text,
    ROOT / "docs" / "api.md": reference_text,
}
"""Each generated file and what makes it, in the order in which they need each other."""


def main() -> int:
    """Write all files, or with `--check` only name those that differ."""
    stale = []
    for path, build in FILES.items():
        text = build()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if "--check" not in sys.argv:
            path.write_text(text)
    if "--check" in sys.argv and stale:
        print(f"out of date, run `make chart`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
