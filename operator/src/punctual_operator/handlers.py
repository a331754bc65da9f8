"""What kopf calls. Each handler hands on to the controller and decides nothing.

Only raw watch events are handled: they write no annotations and no finalizers, so an absent
operator never keeps an object from being deleted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import kopf
from aiohttp import web

from punctual_operator.api import ApiError, connect, in_cluster
from punctual_operator.controller import Controller
from punctual_operator.kinds import WATCHED, Kind
from punctual_operator.metrics import Metrics
from punctual_operator.names import FIELD_MANAGER, GROUP
from punctual_operator.settings import Settings

log = logging.getLogger(__name__)

START_SECONDS = 60.0
"""How long the API server and the custom resource definition may take to be there."""


class Operator:
    """One process: kopf's watches, the controller, and a port for metrics."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.registry = kopf.OperatorRegistry()
        self._metrics = Metrics()
        self._controller: Controller | None = None
        self._server: web.AppRunner | None = None
        self._register()

    def _register(self) -> None:
        registry = self.registry
        kopf.on.startup(registry=registry)(self.start)
        kopf.on.cleanup(registry=registry)(self.stop)
        kopf.on.login(registry=registry)(login)
        # a failed probe is an answer, to be given at once and not after retries
        permanent = kopf.ErrorsMode.PERMANENT
        kopf.on.probe(id="silent_seconds", errors=permanent, registry=registry)(self.probe)
        for kind in WATCHED:
            kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(
                self._watcher(kind)
            )

    def _watcher(self, kind: Kind) -> Any:
        async def seen(event: Any, **_: object) -> None:
            if self._controller is not None:
                self._controller.saw(kind, event["type"] == "DELETED", event["object"])

        return seen

    async def start(self, settings: kopf.OperatorSettings, **_: object) -> None:
        """Configure kopf and begin to work."""
        configure(settings, self.settings)
        controller = Controller(self.settings, await connect(self._metrics), self._metrics)
        await start_controller(controller)
        self._controller = controller
        self._server = await serve_metrics(self.settings, self._metrics)

    async def stop(self, **_: object) -> None:
        """End all work."""
        if self._controller is not None:
            await self._controller.stop()
        if self._server is not None:
            await self._server.cleanup()

    async def probe(self, **_: object) -> float:
        """How long nothing was heard from the API server; raises when that is too long."""
        silent = self._controller.silent_seconds() if self._controller else 0.0
        if silent > self.settings.silence:
            raise RuntimeError(f"nothing was heard from the API server for {silent:.0f} s")
        return round(silent, 1)


async def login(
    logger: Any, settings: kopf.OperatorSettings, **_: object
) -> kopf.ConnectionInfo | None:
    """The pod's ServiceAccount, else the kubeconfig."""
    if in_cluster():
        return kopf.login_with_service_account(logger=logger, settings=settings)
    return kopf.login_with_kubeconfig(logger=logger, settings=settings)


def configure(settings: kopf.OperatorSettings, given: Settings) -> None:
    """Set kopf up: bounded watches, one process, nothing stored in objects, no cluster scan."""
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 30
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    settings.watching.inactivity_timeout = given.inactivity
    settings.watching.chunk_size = 500
    settings.execution.default_backoff = 10
    settings.process.ultimate_exiting_timeout = 30
    # in use by no handler here, but never to be shared with another operator
    settings.persistence.finalizer = f"{GROUP}/{FIELD_MANAGER}"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, v1=False)
    for kind in WATCHED:
        if kind.labels:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.labels


async def start_controller(controller: Controller) -> None:
    """Start it, with patience for an API server that is not there yet; raises PermanentError."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            await controller.start()
        except ApiError as error:
            if time.monotonic() > end:
                raise kopf.PermanentError(start_failure(error)) from error
            log.warning("%s", start_failure(error))
            await asyncio.sleep(2)
        else:
            return


def start_failure(error: ApiError) -> str:
    if error.status == 404:
        return "the custom resource definition must be installed: apply manifests/crd.yaml"
    if error.status == 403:
        return f"the operator's rights must be those of manifests/rbac.yaml: {error.message}"
    return f"the API server must be reachable: {error.message}"


async def serve_metrics(settings: Settings, metrics: Metrics) -> web.AppRunner:
    """Serve `/metrics`."""
    host, _, port = settings.health.rpartition(":")
    application = web.Application()
    application.router.add_get("/metrics", metrics.handler)
    runner = web.AppRunner(application, handle_signals=False, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, int(port) + 1).start()
    return runner
