"""The aggregated API over HTTP: who asks, may they, and the value from memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from punctual_operator.adapter import shapes
from punctual_operator.adapter.access import Access
from punctual_operator.adapter.identity import FrontProxy, User
from punctual_operator.adapter.metrics import AdapterMetrics
from punctual_operator.adapter.selector import SelectorError, parse_selector
from punctual_operator.adapter.series import SERIES
from punctual_operator.adapter.sources import Sources, value_of
from punctual_operator.api import ApiError

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/metrics"})
"""What a kubelet and Prometheus ask without a certificate."""


class Answer(Exception):  # noqa: N818  # an answer, not always an error
    """An error to answer with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """Routes; `proxy` returns the front proxy's present settings."""

    def __init__(
        self,
        sources: Sources,
        access: Access,
        metrics: AdapterMetrics,
        proxy: Callable[[], FrontProxy],
    ) -> None:
        self._sources, self._access = sources, access
        self._metrics, self._proxy = metrics, proxy

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(middlewares=[self._guard])
        add = application.router.add_get
        for path in ("/healthz", "/livez"):
            add(path, self._healthz)
        add("/readyz", self._readyz)
        add("/metrics", self._render)
        add("/apis", self._groups)
        add(f"/apis/{shapes.GROUP}", self._group)
        add(shapes.ROOT, self._resources)
        add(f"{shapes.ROOT}/namespaces/{{namespace}}/{{metric}}", self._read)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Identify who asks, and turn every error into a Status."""
        try:
            if request.path not in OPEN_PATHS:
                request["user"] = self._identify(request)
            response: web.StreamResponse = await handler(request)
        except Answer as answer:
            response = _json(shapes.status(answer.code, str(answer)), answer.code)
        except web.HTTPException as error:
            code = error.status if error.status in shapes.REASONS else 404
            response = _json(shapes.status(code, f"there is no {request.path[:200]}"), code)
        except Exception:
            log.exception("request for %s failed", request.path[:200])
            response = _json(shapes.status(500, "the adapter failed"), 500)
        self._metrics.answers.labels(response.status).inc()
        return response

    def _identify(self, request: web.Request) -> User:
        transport = request.transport
        connection = None if transport is None else transport.get_extra_info("ssl_object")
        peer = None if connection is None else connection.getpeercert()
        user = self._proxy().identify(peer, request.headers)
        if user is None:
            raise Answer(401, "requests must come from the API server's front proxy")
        return user

    async def _read(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        await self._authorize(request["user"], namespace, metric)
        series = SERIES.get(metric)
        if series is None:
            raise Answer(
                404,
                f"the server could not find the metric {metric[:200]} for namespace {namespace}",
            )
        try:
            matches = parse_selector(request.query.get("labelSelector", ""))
        except SelectorError as error:
            raise Answer(400, str(error)) from error
        items = []
        for entry in self._sources.of_namespace(namespace):
            if not matches(entry.labels):
                continue
            value = value_of(entry, series)
            if value is None:
                raise Answer(503, f"{metric} of policy {entry.labels['policy']} is not known now")
            at = time.time() - value.age
            window = round(entry.book.window)
            items.append(shapes.item(metric, entry.labels, value.value, at, window))
        self._metrics.seconds.observe(time.monotonic() - began)
        return _json(shapes.value_list(items))

    async def _authorize(self, user: User, namespace: str, metric: str) -> None:
        try:
            allowed = await self._access.allows(user, namespace, metric)
        except ApiError as error:
            raise Answer(503, f"access could not be reviewed: {error.message}") from error
        if not allowed:
            raise Answer(
                403,
                f'{metric[:200]}.{shapes.GROUP} is forbidden: User "{user.name}" cannot list '
                f'resource "{metric[:200]}" in API group "{shapes.GROUP}" in the namespace '
                f'"{namespace}"',
            )
        if not self._sources.asked:
            raise Answer(503, "the gateways have not been asked yet")

    async def _groups(self, request: web.Request) -> web.Response:
        accepted = request.headers.get("Accept", "")
        if "g=apidiscovery.k8s.io" in accepted and "v=v2;" in accepted.replace(",", ";") + ";":
            return _json(shapes.group_discovery(), content_type=shapes.DISCOVERY_TYPE)
        return _json(shapes.group_list())

    async def _group(self, _: web.Request) -> web.Response:
        return _json(shapes.group())

    async def _resources(self, _: web.Request) -> web.Response:
        return _json(shapes.resource_list())

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        if not self._sources.asked:
            return web.Response(status=503, text="the gateways have not been asked yet")
        return web.Response(text="ok")

    async def _render(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def _json(
    shape: dict[str, Any], status: int = 200, content_type: str = "application/json"
) -> web.Response:
    response = web.json_response(shape, status=status)
    response.headers["Content-Type"] = content_type
    return response
