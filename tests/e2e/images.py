"""Which images the tests run: PUNCTUAL_E2E_REGISTRY and PUNCTUAL_E2E_TAG name them."""

from __future__ import annotations

import os
import re

REGISTRY = os.environ.get("PUNCTUAL_E2E_REGISTRY", "punctual")
TAG = os.environ.get("PUNCTUAL_E2E_TAG", "e2e")
NEXT_TAG = os.environ.get("PUNCTUAL_E2E_NEXT_TAG", f"{TAG}-next")
"""The same gateway under another name, which an update rolls out."""
PUBLISHED = re.compile(r"image: punctual/([-a-z]+):\S+")


def image(component: str, tag: str = TAG) -> str:
    """The full name of a component's image."""
    return f"{REGISTRY}/{component}:{tag}"


def with_test_images(manifests: str) -> str:
    """Manifests of the repository, with the images of this run in place of the published ones."""
    return re.sub(
        r"image: punctual/([-a-z]+):\S+", lambda found: f"image: {image(found[1])}", manifests
    )
