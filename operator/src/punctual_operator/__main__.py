"""`punctual-operator`: runs until it is told to stop."""

from __future__ import annotations

import logging
import sys

import kopf

from punctual_operator.handlers import Operator
from punctual_operator.settings import Settings, parse_settings


def main() -> None:
    """Run the operator; kopf ends it at SIGTERM or SIGINT."""
    settings = parse_settings(sys.argv[1:])
    configure_logs(settings)
    kopf.run(
        registry=Operator(settings).registry,
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://{settings.health}/healthz",
    )


def configure_logs(settings: Settings) -> None:
    """One JSON object a line, or plain text for people."""
    style = kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL
    kopf.configure(
        debug=settings.log_level == "DEBUG",
        quiet=settings.log_level == "WARNING",
        log_format=style,
    )
    # kopf says at this level that each raw event was handled
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
