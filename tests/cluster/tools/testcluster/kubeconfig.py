"""Kubeconfig files, written as JSON, which every reader of YAML takes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

NAME = "punctual-test"


def write_kubeconfig(
    path: Path, cluster: dict[str, Any], user: dict[str, Any], *, namespace: str = "default"
) -> Path:
    """Write a kubeconfig with one context, readable by its owner only.

    `cluster` and `user` are what stands under these words in a kubeconfig's lists.
    """
    context = {"cluster": NAME, "user": NAME, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": user}],
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1) + "\n")
    return path


def server_cluster(server: str, authority: Path) -> dict[str, Any]:
    """Return the `cluster` entry of an API server whose certificate `authority` signed."""
    return {"server": server, "certificate-authority-data": encode(authority.read_text())}


def certificate_user(folder: Path, name: str) -> dict[str, Any]:
    """Return the `user` entry of the client certificate `name` in a PKI folder."""
    return {
        "client-certificate-data": encode((folder / f"{name}.crt").read_text()),
        "client-key-data": encode((folder / f"{name}.key").read_text()),
    }


def encode(text: str) -> str:
    """Return a text as the base64 of a kubeconfig's `*-data` fields."""
    return base64.b64encode(text.encode()).decode()
