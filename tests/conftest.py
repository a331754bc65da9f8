"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# The same examples in every run, however slow the machine is: a change is to fail for what it
# changed. `--hypothesis-profile=explore` looks for others.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

# A shell starts what it puts into the background with SIGINT ignored, and a program that starts so
# keeps ignoring it: tests that press Ctrl-C would wait for nothing. With a handler here, programs
# that tests start have the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
