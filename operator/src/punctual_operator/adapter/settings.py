"""What the adapter's command line sets."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from punctual_operator.names import HTTP_PORT

SERVICE = "punctual-metrics-adapter"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """One process's settings; durations in seconds."""

    namespace: str = "punctual-system"
    """Where the adapter runs: its Service and its Secret are there."""
    service: str = SERVICE
    service_port: int = 443
    host: str = "0.0.0.0"  # noqa: S104  # the API server asks from outside the pod
    port: int = 6443
    gateway_port: int = HTTP_PORT
    poll: float = 5.0
    """Between two questions to each gateway."""
    hold: float | None = None
    """How long the last complete value stands in for replicas that do not answer; None: as long
    as two of the gateways' windows."""
    upkeep: float = 30.0
    """Between two looks at certificates, the front proxy's settings and the registration."""
    tls_folder: Path | None = None
    """Folder with tls.crt, tls.key and ca.crt of somebody else's making; read anew on change."""
    register: bool = True
    """Whether to register the API group where nobody has."""
    log_level: str = "INFO"
    log_format: str = "json"

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names that the API server may expect in the certificate."""
        full = f"{self.service}.{self.namespace}.svc"
        return full, f"{full}.cluster.local", f"{self.service}.{self.namespace}"

    @property
    def fresh(self) -> float:
        """Age at which a value is one that a replica does not know any more."""
        return 3 * self.poll


def parse_settings(arguments: Sequence[str]) -> Settings:
    """Parse the command line; exits with status 2 and a message when it is wrong."""
    return Settings(**vars(_build_parser().parse_args(arguments)))


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="punctual-metrics-adapter",
        description="Serves external.metrics.k8s.io from what the gateways measure.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, base = parser.add_argument, Settings()
    add("--namespace", default=own_namespace(), help="namespace of the adapter's own objects")
    add("--service", default=base.service, help="its Service, which the API server asks")
    add("--service-port", type=_port, default=base.service_port, help="port of that Service")
    add("--host", default=base.host, help="address to listen on")
    add("--port", type=_port, default=base.port, help="port to listen on; 0: any")
    add("--gateway-port", type=_port, default=base.gateway_port, help="port of the gateways")
    for name, text in (
        ("poll", "between two questions to each gateway"),
        ("hold", "for which the last complete value stands in; None: two of the gateways' windows"),
        ("upkeep", "between two looks at certificates and registration"),
    ):
        default = getattr(base, name)
        add(f"--{name}-seconds", dest=name, type=_seconds, default=default, help=f"seconds {text}")
    add("--tls-folder", type=Path, help="tls.crt, tls.key and ca.crt; default: made by itself")
    add(
        "--no-register",
        dest="register",
        action="store_false",
        help="leave APIService objects alone",
    )
    add("--log-level", choices=("DEBUG", "INFO", "WARNING"), default=base.log_level, help="least")
    add("--log-format", choices=("json", "plain"), default=base.log_format, help="of log lines")
    return parser


def own_namespace() -> str:
    """The pod's namespace, else the environment's POD_NAMESPACE, else the default."""
    if NAMESPACE_FILE.exists():
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    return os.environ.get("POD_NAMESPACE", "punctual-system")


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be seconds from 0.05 to 86400, got {text!r}")
    return value
