"""A few requests to the API server, many times a second: kubectl would cost a process each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubernetes import client as kube
from kubernetes import config as kube_config

MERGE = "application/merge-patch+json"
SECONDS = 10.0


class Api:
    """The administrator's connection to the API server; safe for several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = kube.Configuration()
        kube_config.load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
        self._server = settings.host
        self._client = kube.ApiClient(settings)

    def get(self, path: str) -> Any:
        """The object or list at a path; raises `kubernetes.client.ApiException`."""
        return self._ask("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object."""
        return self._ask("POST", path, body, "application/json")

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Merge into an object."""
        return self._ask("PATCH", path, body, MERGE)

    def delete(self, path: str) -> None:
        """Delete an object at once; nothing happens where it has gone."""
        try:
            self._ask("DELETE", path, {"gracePeriodSeconds": 0}, "application/json")
        except kube.ApiException as error:
            if error.status != 404:
                raise

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, kind: str = ""
    ) -> Any:
        headers = {"Accept": "application/json"} | ({"Content-Type": kind} if kind else {})
        answer = self._client.rest_client.pool_manager.request(
            method,
            self._server + path,
            body=None if body is None else json.dumps(body),
            headers=headers,
            timeout=SECONDS,
        )
        if not 200 <= answer.status < 300:
            raise kube.ApiException(status=answer.status, reason=answer.data.decode())
        return json.loads(answer.data)
