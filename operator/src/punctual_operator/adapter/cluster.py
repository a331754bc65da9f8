"""What the adapter needs of the API server, in plain objects."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from punctual_operator.adapter.identity import FrontProxy, read_front_proxy
from punctual_operator.adapter.shapes import GROUP, VERSION
from punctual_operator.api import Api, ApiError, Object
from punctual_operator.kinds import API_SERVICE, Kind
from punctual_operator.kinds import EXTERNAL_METRICS as API_SERVICE_NAME

FRONT_PROXY_CONFIG = ("kube-system", "extension-apiserver-authentication")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
SECRET = Kind("", "v1", "secrets", "Secret")
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
FIELD_MANAGER = "punctual-metrics-adapter"

__all__ = ["API_SERVICE_NAME", "FIELD_MANAGER", "Cluster"]


class Cluster(Api):
    """Requests of the adapter; all raise ApiError."""

    async def read_front_proxy(self) -> FrontProxy:
        """How the API server shows itself; raises ValueError when that is not configured."""
        path = CONFIG_MAP.path(*FRONT_PROXY_CONFIG)
        found = await self._request("GET", CONFIG_MAP, path)
        return read_front_proxy(found.get("data") or {})

    async def review_access(self, review: Mapping[str, Any]) -> bool:
        """Whether a SubjectAccessReview is allowed."""
        found = await self._request("POST", ACCESS_REVIEW, ACCESS_REVIEW.path(), body=review)
        return (found.get("status") or {}).get("allowed") is True

    async def read_secret(self, namespace: str, name: str) -> Object | None:
        """A Secret, or None."""
        return await self.get(SECRET, namespace, name)

    async def try_write_secret(self, secret: Object) -> bool:
        """Create a Secret, or replace the one that was read; False when another one was faster."""
        metadata = secret["metadata"]
        known = "resourceVersion" in metadata
        path = SECRET.path(metadata["namespace"], metadata["name"] if known else None)
        try:
            await self._request("PUT" if known else "POST", SECRET, path, body=secret)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def read_api_service(self) -> Object | None:
        """The registration of our API group, whoever made it."""
        return await self.get(API_SERVICE, None, API_SERVICE_NAME)

    async def register(self, service: tuple[str, str, int], bundle: str) -> None:
        """Say that the API server is to ask our Service (namespace, name, port) for the group."""
        namespace, name, port = service
        body = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            # no labels: where Helm made the object, they are Helm's
            "metadata": {"name": API_SERVICE_NAME},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": base64.b64encode(bundle.encode()).decode(),
                "service": {"namespace": namespace, "name": name, "port": port},
            },
        }
        await self._request(
            "PATCH",
            API_SERVICE,
            API_SERVICE.path(name=API_SERVICE_NAME),
            query=[("fieldManager", FIELD_MANAGER), ("force", "true")],
            body=body,
            content="application/apply-patch+yaml",
        )
