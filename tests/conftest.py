"""What holds for every test."""

from __future__ import annotations

import signal

# A shell starts what it puts into the background with SIGINT ignored, and a program that starts so
# keeps ignoring it: tests that press Ctrl-C would wait for nothing. With a handler here, programs
# that tests start have the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
