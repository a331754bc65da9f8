"""Keeps certificate, trust in the front proxy, and registration up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from cryptography import x509

from punctual_operator.adapter.certificates import Identity, read_identity, renewed, utc_now
from punctual_operator.adapter.cluster import Cluster
from punctual_operator.adapter.identity import FrontProxy
from punctual_operator.adapter.metrics import AdapterMetrics
from punctual_operator.adapter.registration import Owner, read_registration
from punctual_operator.adapter.settings import Settings
from punctual_operator.adapter.tls import Tls
from punctual_operator.api import ApiError

log = logging.getLogger(__name__)

SECRET_TRIES = 5


class UpkeepError(Exception):
    """Something that the adapter needs is not there."""


class Upkeep:
    """Reads and renews; `prepare` has to succeed once before anything can be served."""

    def __init__(self, cluster: Cluster, settings: Settings, metrics: AdapterMetrics) -> None:
        self._cluster, self._settings, self._metrics = cluster, settings, metrics
        self._proxy: FrontProxy | None = None
        self._identity: Identity | None = None
        self._tls: Tls | None = None
        self._owner: Owner | None = None

    @property
    def proxy(self) -> FrontProxy:
        """The front proxy's settings; raises UpkeepError before `prepare`."""
        if self._proxy is None:
            raise UpkeepError("the front proxy's settings have not been read yet")
        return self._proxy

    @property
    def tls(self) -> Tls:
        """What to listen with; raises UpkeepError before `prepare`."""
        if self._tls is None:
            raise UpkeepError("there is no certificate yet")
        return self._tls

    async def prepare(self) -> None:
        """Read everything that serving needs; raises ApiError, ValueError, OSError, UpkeepError."""
        await self._read_proxy()
        await self._read_identity()
        self._apply()

    async def run(self) -> None:
        """Look again for ever. What fails is counted, logged and tried again."""
        while True:
            await self._try("registration", self._register)
            await asyncio.sleep(self._settings.upkeep)
            await self._try("front proxy", self._read_proxy)
            await self._try("certificate", self._read_identity)
            self._apply()

    async def _try(self, work: str, do: Callable[[], Awaitable[None]]) -> None:
        try:
            await do()
        except (ApiError, ValueError, OSError, UpkeepError) as error:
            self._metrics.upkeep_failures.labels(work).inc()
            log.warning("%s: %s", work, error)

    async def _read_proxy(self) -> None:
        self._proxy = await self._cluster.read_front_proxy()

    async def _read_identity(self) -> None:
        folder = self._settings.tls_folder
        if folder is not None:
            texts = {
                name: (folder / name).read_text(encoding="utf-8")
                for name in ("ca.crt", "tls.crt", "tls.key")
            }
            self._identity = Identity(texts["ca.crt"], "", texts["tls.crt"], texts["tls.key"])
            return
        self._identity = await self._shared_identity(utc_now())

    async def _shared_identity(self, now: datetime) -> Identity:
        """The one in the Secret, renewed where it is due; several replicas agree on one."""
        namespace, name = self._settings.namespace, f"{self._settings.service}-tls"
        for _ in range(SECRET_TRIES):
            found = await self._cluster.read_secret(namespace, name)
            known = None if found is None else read_identity(found.get("data") or {})
            wanted = renewed(known, self._settings.host_names, now)
            if wanted is known:
                return wanted
            secret = found or {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": {"namespace": namespace, "name": name},
            }
            secret["data"] = wanted.as_secret_data()
            if await self._cluster.try_write_secret(secret):
                log.info("a new certificate is in Secret %s/%s", namespace, name)
                return wanted
        raise UpkeepError(f"Secret {namespace}/{name} changes faster than it can be read")

    def _apply(self) -> None:
        identity, proxy = self._identity, self._proxy
        if identity is None or proxy is None:
            return
        texts = identity.certificate, identity.key, proxy.authorities
        if self._tls is None:
            self._tls = Tls(*texts)
        elif self._tls.update(*texts):
            log.info("certificate or trusted authorities have changed")
        leaf = x509.load_pem_x509_certificate(identity.certificate.encode())
        self._metrics.certificate_ends.set(leaf.not_valid_after_utc.timestamp())

    async def _register(self) -> None:
        settings, identity = self._settings, self._identity
        if identity is None:
            return
        service = settings.namespace, settings.service, settings.service_port
        found = await self._cluster.read_api_service()
        known = read_registration(found, service, identity.bundle)
        stale = known.owner is Owner.US and not known.current
        if settings.register and (stale or self._is_free(known.owner)):
            await self._cluster.register(service, identity.bundle)
            known = read_registration(
                await self._cluster.read_api_service(), service, identity.bundle
            )
        self._report(known.owner, known.holder)

    def _is_free(self, owner: Owner) -> bool:
        """Whether nobody has it, and not only since the last look.

        Whoever removes the adapter takes its registration first. One that came back then would stay
        behind, lead nowhere, and keep every namespace of the cluster from being deleted.
        """
        return owner is Owner.NOBODY and self._owner is not Owner.US

    def _report(self, owner: Owner, holder: str) -> None:
        for one in Owner:
            self._metrics.owner.labels(one.value).set(one is owner)
        if owner is self._owner:
            return
        self._owner = owner
        if owner is Owner.OTHER:
            log.warning(
                "external.metrics.k8s.io belongs to Service %s and is left alone: autoscalers "
                "cannot read Punctual's metrics here; see docs/autoscaling.md for other ways",
                holder,
            )
        else:
            log.info("external.metrics.k8s.io belongs to %s", owner.value)
