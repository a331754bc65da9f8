"""The gateway's stand, for its signals."""

from __future__ import annotations

from integration.gateway.conftest import stack, start_gateway, start_pod

__all__ = ["stack", "start_gateway", "start_pod"]
