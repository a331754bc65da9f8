"""A gateway in the pod network: `python -m loopstand.gateway_program ARGUMENTS`.

It is the product's own program; what its discovery yields is made reachable on the loopback.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from loopstand.network import reachable
from punctual_gateway import endpoint_slices
from punctual_gateway.main import main


class Mapped(endpoint_slices.EndpointSliceDiscovery):
    """The product's own discovery, with addresses of the pod network made reachable."""

    async def watch(self) -> AsyncGenerator[frozenset[str]]:
        """The URLs of the pods that there are, whenever they change."""
        async with aclosing(super().watch()) as following:
            async for urls in following:
                yield frozenset(map(reachable, urls))


def run() -> int:
    """Run the gateway."""
    endpoint_slices.EndpointSliceDiscovery = Mapped  # type: ignore[misc]
    return main()


if __name__ == "__main__":
    sys.exit(run())
