"""Command line of the model server as one frozen value."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from punctual_model_server.engine.models import ModelError, read_architecture, served_name


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Fields ending in `_seconds` are seconds."""

    model: str
    engine: Literal["torch", "sim"]
    slots: int
    host: str
    port: int
    served_model_name: str
    device: Literal["auto", "cpu", "cuda"]
    tokenizer: str
    max_context: int | None
    threads: int
    seed: int
    prefill_chunk: int
    calibration_steps: int
    max_waiting: int
    max_body_bytes: int
    last_word: bool
    start_delay_seconds: float
    start_timeout_seconds: float
    stuck_seconds: float
    drain_accept_seconds: float
    drain_seconds: float
    body_timeout_seconds: float
    sim_step_seconds: tuple[float, ...]
    sim_prefill_base_seconds: float
    sim_prefill_per_token_seconds: float
    sim_speed: float
    sim_noise: float
    sim_eos_probability: float
    log_level: str


def parse_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Read the command line; a wrong value ends the program with exit code 2."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    try:
        positions = read_architecture(given.model).positions
    except ModelError as error:
        parser.error(str(error))
    if given.max_context is not None and given.max_context > positions:
        parser.error(f"--max-context must be at most {positions}, got {given.max_context}")
    base, per_token = given.sim_prefill_ms
    return Settings(
        **{k: v for k, v in vars(given).items() if k not in {"sim_step_ms", "sim_prefill_ms"}}
        | {"served_model_name": given.served_model_name or served_name(given.model)},
        sim_step_seconds=_extend(given.sim_step_ms, given.slots),
        sim_prefill_base_seconds=base / 1000,
        sim_prefill_per_token_seconds=per_token / 1000,
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="punctual-model-server",
        description="Serve one GPT-2 model with continuous batching and publish its service model.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_model_options(parser)
    _add_server_options(parser)
    _add_sim_options(parser)
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and engine")
    add = group.add_argument
    add("--model", default="random:lab", help="random:lab, random:gpt2, random:tiny or a folder")
    add("--served-model-name", help="name clients use (none: gpt2-lab, ... or the folder's name)")
    add("--engine", choices=("torch", "sim"), default="torch", help="compute, or sleep T(B)")
    add(
        "--slots", type=_integer(1, 1024), default=4, help="requests in one batch; 1: one at a time"
    )
    add(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: cuda where there is one",
    )
    add("--tokenizer", default="auto", help="auto, bytes, gpt2 or a folder with tokenizer files")
    add(
        "--max-context",
        type=_integer(64, 1 << 20),
        help="positions per request (none: the model's)",
    )
    add("--threads", type=_integer(1, 1024), default=_threads(), help="CPU threads of the engine")
    add("--seed", type=int, default=0, help="seed of random weights and of the sim's noise")
    add(
        "--prefill-chunk",
        type=_integer(8, 1 << 20),
        default=128,
        help="prompt tokens per piece (CPU)",
    )
    add(
        "--calibration-steps",
        type=_integer(1, 1000),
        default=4,
        help="timed steps, thrice a size",
    )
    add(
        "--max-waiting", type=_integer(0, 1 << 20), default=1024, help="waiting requests before 503"
    )
    add(
        "--no-last-word",
        dest="last_word",
        action="store_false",
        help="take requests that cannot meet their remaining milliseconds",
    )


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    add = group.add_argument
    add("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod serves its network
    add("--port", type=_integer(0, 65535), default=8000, help="0: any free port, printed at start")
    add(
        "--max-body-bytes", type=_integer(1024, 1 << 30), default=1 << 20, help="larger bodies: 413"
    )
    add("--body-timeout-seconds", type=_seconds, default=10.0, help="a slower body: 408")
    add("--start-delay-seconds", type=_seconds, default=0.0, help="wait before loading (tests)")
    add("--start-timeout-seconds", type=_seconds, default=300.0, help="exit when not ready by then")
    add(
        "--stuck-seconds",
        type=_seconds,
        default=10.0,
        help="exit when the engine is silent so long",
    )
    add("--drain-accept-seconds", type=_seconds, default=1.0, help="keep accepting after SIGTERM")
    add("--drain-seconds", type=_seconds, default=30.0, help="finish running requests, at most")
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="on stderr",
    )


def _add_sim_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated engine (--engine sim)")
    add = group.add_argument
    add(
        "--sim-step-ms",
        type=_table,
        default="8,9,10,11",
        help="T(1),T(2),...; the last rise goes on",
    )
    add("--sim-prefill-ms", type=_pair, default="8,0.05", help="base,per_token")
    add("--sim-speed", type=_positive, default=1.0, help="true time over published time")
    add("--sim-noise", type=_seconds, default=0.0, help="log-normal spread of true times")
    add(
        "--sim-eos-probability",
        type=_share,
        default=0.0,
        help="chance that a token ends the answer",
    )


def _threads() -> int:
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() and int(value) > 0 else 1


class _integer:  # noqa: N801 - reads as a type in the option tables above
    """An argparse type: an integer within bounds."""

    def __init__(self, lowest: int, highest: int) -> None:
        self._lowest, self._highest = lowest, highest

    def __call__(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = self._lowest - 1
        if not self._lowest <= value <= self._highest:
            allowed = f"{self._lowest} to {self._highest}"
            raise argparse.ArgumentTypeError(f"must be an integer from {allowed}, got {text!r}")
        return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a finite number of at least 0, got {text!r}")
    return value


def _seconds(text: str) -> float:
    return _number(text)


def _positive(text: str) -> float:
    if (value := _number(text)) == 0.0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text!r}")
    return value


def _share(text: str) -> float:
    if (value := _number(text)) > 1.0:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, got {text!r}")
    return value


def _table(text: str) -> tuple[float, ...]:
    values = tuple(_positive(part) for part in text.split(","))
    if any(after < before for before, after in itertools.pairwise(values)):
        raise argparse.ArgumentTypeError(
            f"must not fall from one batch size to the next, got {text!r}"
        )
    return values


def _pair(text: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"must be base,per_token, got {text!r}")
    return _number(parts[0]), _number(parts[1])


def _extend(table_ms: tuple[float, ...], slots: int) -> tuple[float, ...]:
    """Return T(1..slots) in seconds; past the table's end the last rise per request goes on."""
    rise = table_ms[-1] - table_ms[-2] if len(table_ms) > 1 else 0.0
    longer = [table_ms[-1] + rise * (i + 1) for i in range(slots - len(table_ms))]
    return tuple(ms / 1000 for ms in (*table_ms, *longer)[:slots])
