"""Asks a model server what it publishes about itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def fetch_capacity(url: str) -> dict[str, Any]:
    """Return what /v1/capacity says; an empty object from a server that has no such route.

    Raises ConnectionError when nothing answers at the URL.
    """
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/v1/capacity", timeout=5) as answer:  # noqa: S310 - the user's own URL
            return dict(json.load(answer))
    except urllib.error.HTTPError:
        return {}
    except (OSError, ValueError) as error:
        msg = f"{url} does not answer: {error}"
        raise ConnectionError(msg) from error
