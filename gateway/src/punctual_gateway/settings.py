"""What the command line sets: where the pods are, where to listen, how long to wait."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Settings:
    """One process's settings; durations in seconds. Everything else is in the policy file."""

    policy: Path
    backends: tuple[str, ...] = ()
    """Base URLs of the pods, without a slash at the end."""
    backend_dns: str | None = None
    """`host:port` whose addresses are the pods."""
    backend_slices: str | None = None
    """Namespace of the Service that the policy names; its EndpointSlices are the pods."""
    host: str = "127.0.0.1"
    port: int = 8080
    tokenizer: Path | None = None
    poll_interval: float = 0.2
    peers: tuple[str, ...] = ()
    """Base URLs of other gateways over the same pods; one that is this process is left out."""
    peer_slices: str | None = None
    """`service:port` of the gateways' own Service, in the namespace of `backend_slices`."""
    policy_interval: float = 0.5
    dns_interval: float = 2.0
    body_timeout: float = 10.0
    stuck_after: float = 5.0
    """A pod with running requests that makes no token for so long gets no new work."""
    drain_accept: float = 5.0
    """How long requests are still accepted after SIGTERM."""
    drain_limit: float = 300.0
    """How long admitted requests may take to end after that."""
    load_window: int = 60
    """Over how long the signals for autoscaling are averaged; there are none before that."""
    log_level: str = "INFO"
    decision_log: Path | None = None
    """Where decisions are written; `-` is standard output, None leaves it to the policy."""
    decision_log_bytes: int = 268_435_456
    """A decision log is changed for a new one at this size; the one before it is kept."""


def parse_settings(arguments: Sequence[str]) -> Settings:
    """Parse the command line; exits with status 2 and a message when it is wrong."""
    parser = _build_parser()
    given = parser.parse_args(arguments)
    if sum(map(bool, (given.backend, given.backend_dns, given.backend_slices))) != 1:
        parser.error(
            "one of --backend (once or more), --backend-dns or --backend-slices must be given"
        )
    if given.peer_slices is not None and given.backend_slices is None:
        parser.error("--peer-slices must be given with --backend-slices")
    return Settings(
        policy=given.policy,
        backends=tuple(dict.fromkeys(given.backend)),
        backend_dns=given.backend_dns,
        backend_slices=given.backend_slices,
        host=given.host,
        port=given.port,
        tokenizer=given.tokenizer,
        poll_interval=given.poll_interval_ms / 1000,
        peers=tuple(dict.fromkeys(given.peer)),
        peer_slices=given.peer_slices,
        policy_interval=given.policy_interval_ms / 1000,
        dns_interval=given.dns_interval_ms / 1000,
        body_timeout=given.body_timeout_seconds,
        stuck_after=given.stuck_seconds,
        drain_accept=given.drain_accept_seconds,
        drain_limit=given.drain_limit_seconds,
        load_window=given.load_window_seconds,
        log_level=given.log_level,
        decision_log=given.decision_log,
        decision_log_bytes=given.decision_log_mebibytes * 1_048_576,
    )


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="punctual-gateway",
        description="Admission gateway: answers by the deadline, or refuses at once.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--policy", type=Path, required=True, help="file with an AdmissionPolicy; watched")
    add("--backend", type=base_url, action="append", default=[], help="URL of a pod; repeatable")
    add("--backend-dns", type=host_port, help="HOST:PORT whose addresses are the pods")
    add(
        "--backend-slices",
        type=namespace,
        nargs="?",
        const=os.environ.get("POD_NAMESPACE", ""),
        metavar="NAMESPACE",
        help="follow the EndpointSlices of the policy's `backend.service`; without a value in the "
        "namespace that POD_NAMESPACE names",
    )
    add(
        "--peer",
        type=base_url,
        action="append",
        default=[],
        help="URL of another gateway over the same pods, repeatable: they share one queue",
    )
    add(
        "--peer-slices",
        type=host_port,
        metavar="SERVICE:PORT",
        help="follow the EndpointSlices of the gateways' own Service, with --backend-slices",
    )
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_between(0, 65535), default=8080, help="port to listen on; 0: any")
    add("--tokenizer", type=Path, help="tokenizer.json, or a folder with it or with vocab.json")
    add("--poll-interval-ms", type=_between(10, 60_000), default=200, help="pod state polling")
    add("--policy-interval-ms", type=_between(10, 60_000), default=500, help="policy file check")
    add("--dns-interval-ms", type=_between(100, 600_000), default=2000, help="name look-ups")
    add("--body-timeout-seconds", type=_seconds, default=10.0, help="to send a request's body")
    add("--stuck-seconds", type=_seconds, default=5.0, help="no token for so long: no new work")
    add("--drain-accept-seconds", type=_seconds, default=5.0, help="accept after SIGTERM")
    add("--drain-limit-seconds", type=_seconds, default=300.0, help="finish what was admitted")
    add("--load-window-seconds", type=_between(1, 600), default=60, help="of autoscaling signals")
    add("--decision-log", type=Path, metavar="FILE", help="write every decision; -: to stdout")
    size = _between(1, 1_048_576)
    add("--decision-log-mebibytes", type=size, default=256, help="size of each of two files")
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    add("--log-level", choices=levels, default="INFO", help="least severe message logged")
    return parser


def base_url(text: str) -> str:
    """A pod's base URL, normalised; raises ArgumentTypeError when it is none."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise argparse.ArgumentTypeError(f"must be http://HOST:PORT, got {text!r}")
    return text.rstrip("/")


def namespace(text: str) -> str:
    """A namespace; raises ArgumentTypeError when it is none."""
    if not text or len(text) > 63 or not all(c.isalnum() or c == "-" for c in text):
        raise argparse.ArgumentTypeError(
            f"must be a namespace, here or in POD_NAMESPACE, got {text!r}"
        )
    return text


def host_port(text: str) -> str:
    """A name and a port; raises ArgumentTypeError when it is none."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, got {text!r}")
    return text


class _between:  # noqa: N801  # reads as a type in the parser
    """An integer within bounds."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> int:
        if not text.lstrip("-").isdigit() or not self._low <= int(text) <= self._high:
            raise argparse.ArgumentTypeError(
                f"must be an integer from {self._low} to {self._high}, got {text!r}"
            )
        return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be seconds from 0 to 86400, got {text!r}")
    return value
