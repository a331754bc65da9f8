"""kubectl on one cluster and namespace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testcluster.binaries import kubectl_program

SECONDS = 60
Manifest = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str


class KubectlError(RuntimeError):
    """kubectl ended with an error; `message` is what it wrote about it."""

    def __init__(self, arguments: Sequence[str], message: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)}: {message}")
        self.message = message


class Kubectl:
    """kubectl with its kubeconfig and namespace set: `kubectl("get", "pods", "-o", "name")`."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.program = str(kubectl_program())

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output, or raise `KubectlError`."""
        try:
            done = subprocess.run(
                [self.program, "--namespace", self.namespace, *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
                env={"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent)},
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(arguments, f"no answer within {SECONDS} s") from error
        if done.returncode:
            raise KubectlError(arguments, done.stderr.strip())
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Return the parsed output of `kubectl ... -o json`."""
        return json.loads(self(*arguments, "-o", "json"))

    def apply(self, manifest: Manifest, *options: str) -> str:
        """Apply one object, a list of objects or YAML text at the server's side."""
        return self("apply", "--server-side", *options, "-f", "-", stdin=text_of(manifest))

    def refusal(self, manifest: Manifest) -> str:
        """Return why the server refuses these objects; raise AssertionError when it takes them."""
        try:
            self("create", "--dry-run=server", "-f", "-", stdin=text_of(manifest))
        except KubectlError as error:
            return error.message
        raise AssertionError(f"the server must refuse {text_of(manifest)}")

    def events(self, reason: str = "") -> list[dict[str, Any]]:
        """Return the namespace's events, of one reason if given, oldest first."""
        found: list[dict[str, Any]] = self.json("get", "events")["items"]
        found.sort(key=lambda event: str(event["metadata"]["creationTimestamp"]))
        return [event for event in found if not reason or event["reason"] == reason]


def text_of(manifest: Manifest) -> str:
    """Return what `kubectl -f -` reads for these objects."""
    if isinstance(manifest, str):
        return manifest
    if isinstance(manifest, Mapping):
        return json.dumps(manifest)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifest)})
