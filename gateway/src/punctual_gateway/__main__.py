"""`python -m punctual_gateway` is the command `punctual-gateway`."""

from __future__ import annotations

import sys

from punctual_gateway.main import main

sys.exit(main())
