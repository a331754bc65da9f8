"""Watches one pod: is it there, is it the right model, what does it run, does it make progress.

Every interval the pod is asked for `/v1/capacity`. A server without that route (404) is judged by
`/health`, `/v1/models` and vLLM's metrics, and assumed to be as fast as the policy's
`backend` section says. Whatever is not known for three intervals is unknown: the pod gets no new
work, and what runs there goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import aiohttp
import orjson

from punctual_admission.pool import Foreign
from punctual_gateway.capacity import (
    CapacityError,
    Report,
    profile,
    read_capacity,
    read_load,
    read_memory,
    read_models,
)
from punctual_gateway.connections import Address

if TYPE_CHECKING:
    from collections.abc import Container

    from punctual_admission.pool import Pod
    from punctual_gateway.own_work import OwnWork
    from punctual_gateway.scheduler import Scheduler
    from punctual_gateway.settings import Settings

log = logging.getLogger(__name__)

STALE_INTERVALS = 3
SHORTEST_TIMEOUT = 1.0
UNREAD = 0.01
"""Seconds for reading what has come while this process did something else."""
LONGEST_REPORT = 4_194_304
FIRST_PROBE, LONGEST_PROBE = 1.0, 30.0
"""Seconds until a pod that made no progress is tried again; doubles each time."""


class Monitor:
    """One address; `pod_id` is the ledger's pod while there is one, a new one for each start."""

    def __init__(
        self,
        url: str,
        scheduler: Scheduler,
        session: aiohttp.ClientSession,
        settings: Settings,
        own: OwnWork,
        peers: Container[str] = (),
    ) -> None:
        self.url = url
        self.address = Address.parse(url)
        self.pod_id: str | None = None
        self.report: Report | None = None
        self.asked = False
        """Whether the first question was answered, or failed."""
        self.problem: str | None = "not asked yet"
        self.speaks_capacity = False
        self.context: int | None = None
        self.stuck_count = 0
        self._scheduler = scheduler
        self._session = session
        self._settings = settings
        self._own, self._peers = own, peers
        self._heard: float | None = None
        self._watch: asyncio.TimerHandle
        self._stuck_until = 0.0
        self._probe = FIRST_PROBE

    @property
    def age(self) -> float | None:
        """Seconds since the pod last answered; None before its first answer."""
        return None if self._heard is None else self._scheduler.now - self._heard

    async def run(self) -> None:
        """Ask every interval, for ever."""
        while True:
            began = self._scheduler.now
            try:
                await self.ask()
            except Exception:  # whatever a pod sends, the others and the next question go on
                log.exception("asking pod %s failed", self.url)
                self._lose("its report cannot be understood")
            spent = self._scheduler.now - began
            await asyncio.sleep(max(self._settings.poll_interval - spent, 0.0))

    async def ask(self) -> None:
        """Ask once and tell the ledger; never raises for what a pod may do."""
        interval = self._settings.poll_interval
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(interval * STALE_INTERVALS, self._suspect)
        try:
            async with asyncio.timeout(max(interval * STALE_INTERVALS, SHORTEST_TIMEOUT)):
                report = await self._fetch()
        except (aiohttp.ClientConnectorError, ConnectionRefusedError):
            self._lose("no connection")
            return
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._doubt(str(error) or type(error).__name__)
            return
        except (CapacityError, orjson.JSONDecodeError) as error:
            self._lose(str(error))
            return
        finally:
            self._watch.cancel()
            self.asked = True
        self._heard = self._scheduler.now
        self._apply(report)

    def suspend(self, problem: str) -> None:
        """Give it no new work until it has answered again."""
        self._lose(problem)

    def leave(self) -> None:
        """The address has gone."""
        if self.pod_id is not None:
            self._scheduler.ledger.leave_pod(self.pod_id)
            self._scheduler.last_progress.pop(self.pod_id, None)
            self.pod_id = None

    async def _fetch(self) -> Report:
        async with self._session.get(f"{self.url}/v1/capacity") as response:
            if response.status == 200:
                self.speaks_capacity = True
                return read_capacity(orjson.loads(await _read_whole(response)))
            if response.status not in (404, 405, 501):
                raise CapacityError(f"/v1/capacity answered {response.status}")
        self.speaks_capacity = False
        return await self._fetch_foreign_server()

    async def _fetch_foreign_server(self) -> Report:
        """A report for a server that has no `/v1/capacity`."""
        policy = self._scheduler.ledger.policy
        async with self._session.get(f"{self.url}/v1/models") as response:
            if response.status != 200:
                raise CapacityError(f"/v1/models answered {response.status}")
            models = read_models(orjson.loads(await _read_whole(response)))
        async with self._session.get(f"{self.url}/health") as response:
            healthy = response.status in (200, 404)
        metrics = await self._fetch_metrics()
        return Report(
            model=policy.model if policy.model in models else next(iter(models), ""),
            instance="",
            state="ready" if healthy else "dead",
            service=profile(policy.backend),
            max_context=models.get(policy.model),
            memory_tokens=read_memory(metrics),
            raw={"requests": read_load(metrics)},
        )

    async def _fetch_metrics(self) -> str:
        async with self._session.get(f"{self.url}/metrics") as response:
            if response.status != 200:
                return ""
            return (await _read_whole(response)).decode("utf-8", "replace")

    def _apply(self, report: Report) -> None:
        policy = self._scheduler.ledger.policy
        self.report = report
        if report.model != policy.model:
            self._lose(f"it serves '{report.model[:80]}', the policy wants '{policy.model}'")
        elif report.service is None or report.state != "ready":
            self._lose(f"it is {report.state}")
        elif self._is_stuck(report):
            self._lose("it makes no progress")
        else:
            self._join(report)

    def _join(self, report: Report) -> None:
        ledger, now = self._scheduler.ledger, self._scheduler.now
        pod_id = self._name(report)
        if self.pod_id not in (None, pod_id):
            self.leave()
        if self.problem is not None:
            log.info("pod %s is ready", self.url)
        self.problem, self.pod_id, self.context = None, pod_id, report.max_context
        service = report.service
        known = self._known()
        if service is not None and (known is None or not known.available or known.model != service):
            ledger.join_pod(pod_id, service, now, report.ratio)
        memory = report.memory_tokens or ledger.policy.memory.tokens
        joined = self._known()
        if joined is not None and joined.memory_tokens != memory:
            ledger.observe_memory(pod_id, memory)
        self._observe_foreign(report, pod_id)
        self._scheduler.pump()

    def _name(self, report: Report) -> str:
        address = self.address.authority
        return f"{address}/{report.instance}" if report.instance else address

    def _observe_foreign(self, report: Report, pod_id: str) -> None:
        foreign = [
            r.foreign for r in report.residents if r.id not in self._own and r.id not in self._peers
        ]
        known = self._known()
        load = (report.raw or {}).get("requests")
        if known is not None and not self.speaks_capacity and load is not None:
            expected = self._scheduler.ledger.policy.requests.default_max_tokens
            since = self._scheduler.now - self._settings.poll_interval
            ours = len(known.residents) + self._own.recent(pod_id, since)
            shared = len(known.foreign) - len(known.reported)
            others = max(load - ours - shared, 0)
            foreign = [Foreign(expected)] * others
        if known is not None and tuple(foreign) != known.reported:
            self._scheduler.ledger.observe_foreign(pod_id, foreign)

    def _known(self) -> Pod | None:
        pods = self._scheduler.ledger.all_pods
        return next((pod for pod in pods if pod.id == self.pod_id), None)

    def _is_stuck(self, report: Report) -> bool:
        """Running requests and no token for long, or told to be left alone after that."""
        now, limit = self._scheduler.now, self._settings.stuck_after
        pod = self._known()
        if pod is not None and pod.residents:
            last = self._scheduler.last_progress.get(pod.id, 0.0)
            quiet = now - max(last, *(t.started for t in pod.residents.values()))
            if quiet > limit and now >= self._stuck_until:
                self.stuck_count += 1
                self._stuck_until = now + self._probe
                self._probe = min(self._probe * 2, LONGEST_PROBE)
            elif quiet <= limit and last > self._stuck_until:
                self._probe = FIRST_PROBE
        busy = bool(report.residents)
        return now < self._stuck_until or (busy and report.age > limit)

    def _suspect(self) -> None:
        """It has not answered for three intervals, unless its answer lies unread in a socket."""
        self._watch = asyncio.get_running_loop().call_later(UNREAD, self._stale)

    def _stale(self) -> None:
        """It has not answered, and it is not this process that was too busy to read it."""
        self._doubt("its state is unknown")

    def _doubt(self, problem: str) -> None:
        age = self.age
        limit = self._settings.poll_interval * STALE_INTERVALS
        if age is None or age >= limit:
            self._lose(problem)

    def _lose(self, problem: str) -> None:
        if self.problem != problem:
            log.warning("pod %s gets no new work: %s", self.url, problem)
        self.problem = problem
        if self.pod_id is not None:
            self._scheduler.ledger.suspend_pod(self.pod_id)


async def _read_whole(response: aiohttp.ClientResponse) -> bytes:
    """A body to its end; raises CapacityError when it is longer than any report."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > LONGEST_REPORT:
            raise CapacityError(f"a report must be at most {LONGEST_REPORT} bytes")
    return bytes(body)
