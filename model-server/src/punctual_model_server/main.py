"""Entry point of `punctual-model-server`.

Kept free of heavy imports: the engine process is spawned and imports this module again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from punctual_model_server.engine.models import ModelError
from punctual_model_server.settings import parse_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; return its exit code (0 drained, 2 cannot serve, 70 engine lost)."""
    settings = parse_settings(arguments)
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # Imported here so that the engine process, which imports this module, stays without aiohttp.
    import uvloop  # noqa: PLC0415

    from punctual_model_server.server import Server  # noqa: PLC0415

    async def serve() -> int:
        return await Server(settings).run()

    try:
        return uvloop.run(serve())
    except (ModelError, OSError) as error:
        print(f"punctual-model-server: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
