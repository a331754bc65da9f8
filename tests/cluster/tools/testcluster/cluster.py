"""The cluster that tests run on: one of the user's, or a control plane of our own."""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path
from typing import Any

from testcluster.control_plane import ControlPlane
from testcluster.kubeconfig import write_kubeconfig
from testcluster.kubectl import Kubectl, KubectlError
from testcluster.waiting import wait_until

NAMESPACE_LABEL = "punctual.dev/test"


class Cluster:
    """Access to one cluster as its administrator.

    `folder` takes the kubeconfigs that are made; `control_plane` is set when the cluster is ours.
    """

    def __init__(
        self, kubeconfig: Path, folder: Path, control_plane: ControlPlane | None = None
    ) -> None:
        self.kubeconfig = kubeconfig
        self.control_plane = control_plane
        self._folder = folder

    def kubectl(self, namespace: str = "default") -> Kubectl:
        """Return kubectl as the administrator in a namespace."""
        return Kubectl(self.kubeconfig, namespace)

    def account_kubeconfig(self, namespace: str, account: str, *, server: str = "") -> Path:
        """Return a kubeconfig of a ServiceAccount, with a token that is valid for an hour.

        `server` is another way to the API server, such as the address of a `Wire`.
        """
        token = self.kubectl(namespace)("create", "token", account, "--duration=1h").strip()
        return self._derive(f"{namespace}-{account}", {"token": token}, server, namespace)

    def admin_kubeconfig(self, *, server: str = "", namespace: str = "default") -> Path:
        """Return a kubeconfig of the administrator by another way to the API server."""
        user = self._config()["users"][0]["user"]
        return self._derive("admin", user, server, namespace)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._config()["clusters"][0]["cluster"]["server"])

    def ready_nodes(self) -> list[str]:
        """Return the names of the nodes that run pods."""
        nodes = self.kubectl().json("get", "nodes")["items"]
        return [node["metadata"]["name"] for node in nodes if _is_ready(node)]

    def create_namespace(self, purpose: str, labels: dict[str, str] | None = None) -> str:
        """Create a namespace with a name of its own, and return it once pods can be made in it."""
        slug = re.sub(r"[^a-z0-9]+", "-", purpose.lower()).strip("-")[:40].strip("-")
        name = f"{slug or 'test'}-{uuid.uuid4().hex[:6]}"
        metadata = {"name": name, "labels": {NAMESPACE_LABEL: "true", **(labels or {})}}
        kubectl = self.kubectl(name)
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        # Controllers take up to 45 s to notice that an API server they watch was frozen before.
        ready = f"namespace {name} has its default account"
        wait_until(lambda: _has_account(kubectl), ready, seconds=90)
        return name

    def delete_namespace(self, name: str) -> None:
        """Begin the deletion of a namespace; all that is in it goes with it."""
        self.kubectl(name)("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def _derive(self, name: str, user: dict[str, str], server: str, namespace: str) -> Path:
        cluster = dict(self._config()["clusters"][0]["cluster"])
        cluster["server"] = server or cluster["server"]
        path = self._folder / f"{name}-{uuid.uuid4().hex[:6]}.kubeconfig"
        return write_kubeconfig(path, cluster, user, namespace=namespace)

    def _config(self) -> dict[str, list[dict[str, dict[str, str]]]]:
        config: dict[str, list[dict[str, dict[str, str]]]] = json.loads(self.kubeconfig.read_text())
        return config


def user_cluster(folder: Path) -> Cluster | None:
    """Return the cluster that `KUBECONFIG` names, if it is set; its current context is kept.

    Raises `RuntimeError` when that cluster does not answer or does not let us create namespaces.
    """
    named = os.environ.get("KUBECONFIG")
    if not named:
        return None
    path = folder / "user.kubeconfig"
    path.touch(mode=0o600)
    try:
        # one file of the current context alone: the variable may name several files
        source = Kubectl(Path(named), "default")
        path.write_text(source("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
        cluster = Cluster(path, folder)
        cluster.kubectl()("auth", "can-i", "create", "namespaces", "--request-timeout=10s")
    except KubectlError as error:
        raise RuntimeError(
            f"KUBECONFIG={named} must lead to a cluster in which you are an administrator: "
            f"{error.message or 'you may not create namespaces there'}. "
            "Without KUBECONFIG the tests start a control plane of their own."
        ) from error
    return cluster


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _has_account(kubectl: Kubectl) -> bool:
    try:
        return bool(kubectl("get", "serviceaccount", "default", "-o", "name"))
    except KubectlError:
        return False
