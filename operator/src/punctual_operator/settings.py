"""What the command line sets; everything about a gateway is in its policy."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from punctual_operator.names import FIELD_MANAGER
from punctual_operator.resources.deployment import GatewayImage

DEFAULT_IMAGE = "punctual/gateway:0.1.0"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """One process's settings; durations in seconds."""

    gateway_image: str = DEFAULT_IMAGE
    """Image of gateways whose policy names none."""
    gateway_pull_secrets: tuple[str, ...] = ()
    """Secrets to pull it with where a policy names none."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to work in; empty: all."""
    health: str = "0.0.0.0:8080"  # the kubelet asks from outside the pod
    """Where `/healthz` and, one port higher, `/metrics` are served."""
    workers: int = 8
    """Policies worked on at a time."""
    resync: float = 300.0
    """Time between two comparisons of all that is known with all that there is."""
    heartbeat: float = 30.0
    """Time between two small requests that prove the way to the API server."""
    silence: float = 180.0
    """With nothing heard from the API server for so long, the process asks to be restarted."""
    report: float = 60.0
    """Age at which a gateway's report is read anew."""
    attention: float = 10.0
    """The same while something is wrong."""
    inactivity: float = 70.0
    """A watch without any event or bookmark for so long is opened anew."""
    log_level: str = "INFO"
    log_format: str = "json"

    @property
    def image(self) -> GatewayImage:
        """The image of gateways whose policy names none, and how to pull it."""
        return GatewayImage(self.gateway_image, self.gateway_pull_secrets)


def parse_settings(arguments: Sequence[str]) -> Settings:
    """Parse the command line; exits with status 2 and a message when it is wrong."""
    given = vars(_build_parser().parse_args(arguments))
    given["namespaces"] = tuple(dict.fromkeys(given.pop("namespace")))
    given["gateway_pull_secrets"] = tuple(dict.fromkeys(given.pop("gateway_pull_secret")))
    return Settings(**given)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=FIELD_MANAGER,
        description="Turns AdmissionPolicy objects into gateways.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, base = parser.add_argument, Settings()
    add("--gateway-image", default=base.gateway_image, help="image of policies that name none")
    add(
        "--gateway-pull-secret",
        action="append",
        default=[],
        help="Secret to pull the image with, in each policy's namespace; repeatable",
    )
    add("--namespace", action="append", default=[], help="work in it alone; repeatable")
    add("--health", default=base.health, help="HOST:PORT of /healthz; /metrics is one port higher")
    add("--workers", type=_count, default=base.workers, help="policies worked on at a time")
    for name, text in (
        ("resync", "between two full comparisons"),
        ("heartbeat", "between two small requests"),
        ("silence", "without a word from the API server until /healthz fails"),
        ("report", "until a gateway is asked again"),
        ("attention", "the same while something is wrong"),
        ("inactivity", "of silence until a watch is opened anew"),
    ):
        default = getattr(base, name)
        add(f"--{name}-seconds", dest=name, type=_seconds, default=default, help=f"seconds {text}")
    add(
        "--log-level",
        choices=("DEBUG", "INFO", "WARNING"),
        default=base.log_level,
        help="verbosity",
    )
    add("--log-format", choices=("json", "plain"), default=base.log_format, help="of log lines")
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"must be an integer from 1 to 256, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be seconds from 0.05 to 86400, got {text!r}")
    return value
