"""Continuous batching: requests join and leave between two steps.

One turn: take messages, drop what is cancelled or can no longer start in time, prefill waiting
requests first come first served while slots are free (each prefill yields its first token and holds
up everybody else), then one decode step for all rows. Each prefill and each step is one message to
the front.

A running request is cut at its deadline on the first token that comes at or after it, so the end of
an answer is always carried by a token. A waiting one is dropped without having cost a prefill.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from punctual_model_server.engine.protocol import (
    NO_TOKEN,
    Calibration,
    Cancel,
    Event,
    Finish,
    Start,
    Step,
    Submit,
)
from punctual_model_server.engine.runner import Draw, Runner
from punctual_model_server.engine.speed import SpeedRatio

HEARTBEAT_SECONDS: Final = 0.2
UNCALIBRATED: Final = Calibration((0.0,), 0.0, 0.0, 0.0)


class Job:
    """One request inside the engine. `deadline` is on the engine's own monotonic clock."""

    __slots__ = ("arrived", "deadline", "draw", "generated", "request")

    def __init__(self, request: Submit, now: float) -> None:
        self.request = request
        self.arrived = now
        self.deadline = None if request.remaining is None else now + request.remaining
        self.draw = Draw(request.temperature, request.top_p, request.seed)
        self.generated = 0


class EngineLoop:
    """The batching loop over one runner.

    Args:
        runner: computes (or sleeps) prefills and steps.
        receive: returns the messages of the front, waiting at most the given seconds.
        send: takes one message for the front.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        runner: Runner,
        receive: Callable[[float], list[object]],
        send: Callable[[Step], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self.calibration = UNCALIBRATED
        self.speed = SpeedRatio()
        self.running: list[Job] = []
        self.waiting: deque[Job] = deque()
        self._cancelled: set[int] = set()
        self._receive = receive
        self._send = send
        self._clock = clock
        self._seq = 0
        self._busy_until: float | None = None

    def run_forever(self) -> None:
        """Serve until the channel closes (which ends this by its own exception)."""
        while True:
            if not self.turn():
                self._busy_until = None
                messages = self._receive(HEARTBEAT_SECONDS)
                self.take(messages)
                if not messages:
                    self.heartbeat()

    def turn(self) -> bool:
        """Do one turn; say whether there was work."""
        self.take(self._receive(0))
        self._drop()
        while self.waiting and len(self.running) < self.runner.shape.slots:
            self._start(self.waiting.popleft())
            self.take(self._receive(0))
            self._drop()
        if self.running:
            self._step()
        return bool(self.running or self.waiting)

    def take(self, messages: Sequence[object]) -> None:
        """Take requests and cancellations from the front."""
        for message in messages:
            if isinstance(message, Submit):
                self.waiting.append(Job(message, self._clock()))
            elif isinstance(message, Cancel):
                self._cancelled.add(message.rid)

    def heartbeat(self) -> None:
        """Tell the front that the loop is alive."""
        self._tell([], None)

    def _drop(self) -> None:
        """Let go of cancelled requests and of waiting ones whose deadline has passed."""
        now = self._clock()
        ended: list[Event] = []
        if self._cancelled:
            ended += self._drop_cancelled()
        if self.waiting:
            late = [j for j in self.waiting if j.deadline is not None and j.deadline <= now]
            for job in late:
                self.waiting.remove(job)
                ended.append(Event(job.request.rid, NO_TOKEN, "deadline"))
        if ended:
            self._tell(ended, None)

    def _drop_cancelled(self) -> list[Event]:
        gone, self._cancelled = self._cancelled, set()
        ended = [
            Event(j.request.rid, NO_TOKEN, "cancelled")
            for j in (*self.running, *self.waiting)
            if j.request.rid in gone
        ]
        if ended:
            self.waiting = deque(j for j in self.waiting if j.request.rid not in gone)
            for row in reversed(range(len(self.running))):
                if self.running[row].request.rid in gone:
                    self._free(row)
        return ended

    def _start(self, job: Job) -> None:
        began = self._clock()
        request = job.request
        token = self.runner.prefill(
            len(self.running), request.prompt, job.draw, lambda: self._go_on(job)
        )
        now = self._clock()
        if token is None:
            self._busy_until = now
            self._end_unstarted(job)
            return
        self._observe(now, began, self.calibration.prefill(len(request.prompt)))
        self.running.append(job)
        event = self._advance(job, token, now)
        if event.finish is not None:
            self.running.pop()
        self._tell([event], Start(request.rid, began - job.arrived, now - began))

    def _go_on(self, job: Job) -> bool:
        """Between two chunks of a prefill: hear the front, and stop for a request that is gone."""
        self.take(self._receive(0))
        self.heartbeat()
        late = job.deadline is not None and job.deadline <= self._clock()
        return not late and job.request.rid not in self._cancelled

    def _end_unstarted(self, job: Job) -> None:
        rid = job.request.rid
        finish: Finish = "cancelled" if rid in self._cancelled else "deadline"
        self._cancelled.discard(rid)
        self._tell([Event(rid, NO_TOKEN, finish)], None)

    def _step(self) -> None:
        began = self._clock()
        active = len(self.running)
        tokens = self.runner.step(active)
        now = self._clock()
        self._observe(now, began, self.calibration.step(active))
        events = [self._advance(j, t, now) for j, t in zip(self.running, tokens, strict=True)]
        for row in reversed(range(active)):
            if events[row].finish is not None:
                self._free(row)
        self._tell(events, None)

    def _advance(self, job: Job, token: int, now: float) -> Event:
        """Count one token and say whether it is the request's last."""
        request = job.request
        job.generated += 1
        finish: Finish | None = None
        if token == self.runner.shape.eos and not request.ignore_eos:
            finish = "stop"
        elif job.generated >= request.max_tokens:
            finish = "length"
        elif job.deadline is not None and now >= job.deadline:
            finish = "deadline"
        if request.first_token_only:
            job.deadline = None
        return Event(request.rid, token, finish)

    def _free(self, row: int) -> None:
        """Free a row and close the gap with the last one."""
        last = len(self.running) - 1
        if row != last:
            self.running[row] = self.running[last]
            self.runner.move(last, row)
        self.running.pop()

    def _observe(self, now: float, began: float, calibrated: float) -> None:
        """Feed the ratio: while busy, the time since the previous work ended counts as work too."""
        since = began if self._busy_until is None else self._busy_until
        self._busy_until = now
        if calibrated > 0.0:
            self.speed.observe(now - since, calibrated)

    def _tell(self, events: list[Event], start: Start | None) -> None:
        self._seq += 1
        self._send(Step(self._seq, self.speed.value, events, start))
