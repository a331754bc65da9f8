"""The chart, installed on the cluster under test."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from charts.tools.generate import CHART
from charts.tools.helm import helm
from e2e.images import REGISTRY, TAG
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl, KubectlError
from testcluster.waiting import wait_until

NAME = "punctual"
NAMESPACE = "punctual-system"
CRD = "crd/admissionpolicies.punctual.dev"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """The release `punctual` in its namespace."""

    cluster: Cluster

    @property
    def kubectl(self) -> Kubectl:
        """kubectl in the release's namespace."""
        return self.cluster.kubectl(NAMESPACE)

    def install(self, *options: str, chart: Path = CHART) -> float:
        """Install or upgrade, wait until the operator is ready; returns the seconds it took."""
        started = time.monotonic()
        settings: list[str] = []
        for name in ("operator", "gateway"):
            settings += ["--set-string", f"{name}.image.repository={REGISTRY}/{name}"]
            settings += ["--set-string", f"{name}.image.tag={TAG}"]
        common = ("--namespace", NAMESPACE, "--wait", "--timeout", "180s")
        self._helm("upgrade", "--install", NAME, str(chart), *common, *settings, *options)
        return time.monotonic() - started

    def uninstall(self) -> None:
        """Uninstall, and wait until the operator is gone."""
        self._helm("uninstall", NAME, "--namespace", NAMESPACE, "--wait")

    def packed(self, version: str) -> Path:
        """The chart packed as another version, as a release before this one would be."""
        folder = self.cluster.kubeconfig.parent
        named = ("--version", version, "--app-version", version, "--destination", str(folder))
        helm("package", str(CHART), *named)
        return folder / f"punctual-{version}.tgz"

    def may(self, *what: str) -> bool:
        """Whether the operator's account may do this."""
        account = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}-operator"
        try:
            return self.kubectl("auth", "can-i", *what, account).strip() == "yes"
        except KubectlError:  # its exit status says no
            return False

    def left_behind(self) -> list[str]:
        """What the release's namespace and the cluster still hold of it, but for the CRD."""
        kinds = "deployment,pod,service,serviceaccount,role,rolebinding,networkpolicy,pdb"
        kinds += ",secret,clusterrole,clusterrolebinding,priorityclass,apiservice"
        selector = f"--selector=app.kubernetes.io/instance={NAME}"
        return self.kubectl("get", kinds, selector, "-o", "name").split()

    def scale_operator(self, replicas: int) -> None:
        """Stop the operator, or start it again."""
        deployment = f"deployment/{NAME}-operator"
        self.kubectl("scale", deployment, f"--replicas={replicas}")
        self.kubectl("rollout", "status", deployment, "--timeout=60s")
        if replicas == 0:
            selector = "--selector=app.kubernetes.io/name=punctual-operator"
            self.kubectl("wait", "pod", selector, "--for=delete", "--timeout=60s")

    def prepare(self) -> None:
        """Make the namespace, in which only restricted pods may run.

        That of an earlier run on this cluster has to be gone first.
        """
        phase = ("get", "namespace", NAMESPACE, "--ignore-not-found", "-o=jsonpath={.status.phase}")
        wait_until(
            lambda: self.kubectl(*phase) != "Terminating", "the namespace is free", seconds=120
        )
        metadata = {"name": NAMESPACE, "labels": RESTRICTED}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def remove(self) -> None:
        """Remove all, the CRD and its policies included."""
        self.uninstall()
        self.kubectl("delete", CRD, "--ignore-not-found", "--timeout=60s")
        self.kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    def _helm(self, *arguments: str) -> None:
        helm(*arguments, kubeconfig=self.cluster.kubeconfig)
