"""Entry of the engine process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import time
import traceback

from punctual_model_server.engine.channel import ChannelClosedError, EngineChannel
from punctual_model_server.engine.loop import EngineLoop
from punctual_model_server.engine.models import ModelError, read_architecture
from punctual_model_server.engine.protocol import Calibration, Failed, Ready
from punctual_model_server.engine.runner import Shape
from punctual_model_server.engine.sim import SimRunner, SimTruth
from punctual_model_server.settings import Settings

_PR_SET_PDEATHSIG = 1


def run(settings: Settings, sock: socket.socket) -> None:
    """Load, calibrate, say `Ready` and serve until the front is gone."""
    _live_and_die_with_the_front()
    channel = EngineChannel(sock)
    with contextlib.suppress(ChannelClosedError):
        try:
            loop = _build(settings, channel)
        except (ModelError, MemoryError) as error:
            channel.send(Failed(str(error) or repr(error)))
            return
        except Exception:
            channel.send(Failed(traceback.format_exc(limit=-3)))
            raise
        # What is loaded stays: a collection that walks through it would hold a step up.
        gc.collect()
        gc.freeze()
        channel.send(_ready(loop))
        loop.run_forever()


def _live_and_die_with_the_front() -> None:
    """Leave signals to the front (it drains), and never outlive it, even when stuck in a step."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _build(settings: Settings, channel: EngineChannel) -> EngineLoop:
    time.sleep(settings.start_delay_seconds)
    if settings.engine == "sim":
        return _build_sim(settings, channel)
    return _build_torch(settings, channel)


def _build_sim(settings: Settings, channel: EngineChannel) -> EngineLoop:
    architecture = read_architecture(settings.model)
    model = Calibration(
        settings.sim_step_seconds,
        settings.sim_prefill_base_seconds,
        settings.sim_prefill_per_token_seconds,
        time.time(),
    )
    shape = Shape(
        slots=settings.slots,
        max_context=min(settings.max_context or architecture.positions, architecture.positions),
        vocabulary=architecture.vocabulary,
        eos=architecture.eos,
        kv_bytes_per_token=architecture.kv_bytes_per_token(2),
        device="sim",
    )
    truth = SimTruth(
        settings.sim_speed, settings.sim_noise, settings.sim_eos_probability, settings.seed
    )
    loop = EngineLoop(SimRunner(shape, model, truth), channel.receive, channel.send)
    loop.calibration = model
    return loop


def _build_torch(settings: Settings, channel: EngineChannel) -> EngineLoop:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is in the folder
    # A sim pod must not pay 300 MB and seconds for torch.
    from punctual_model_server.engine.calibration import calibrate  # noqa: PLC0415
    from punctual_model_server.engine.devices import build_runner  # noqa: PLC0415

    runner = build_runner(settings)
    loop = EngineLoop(runner, channel.receive, channel.send)
    calibrate(loop, runner, settings.calibration_steps)
    return loop


def _ready(loop: EngineLoop) -> Ready:
    shape = loop.runner.shape
    return Ready(
        calibration=loop.calibration,
        ratio=loop.speed.value,
        max_context=shape.max_context,
        vocabulary=shape.vocabulary,
        eos=shape.eos,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        device=shape.device,
    )
