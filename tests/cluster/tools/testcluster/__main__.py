"""`python -m testcluster up|down|status`: a control plane that stays until it is taken down."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testcluster.binaries import MissingProgramsError
from testcluster.control_plane import ControlPlane


def main() -> int:
    """Run one command; the exit status is 1 when it fails or, for `status`, nothing runs."""
    parser = argparse.ArgumentParser(prog="testcluster", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--folder", type=Path, default=Path(".cluster/control-plane"))
    options = parser.parse_args()
    plane = ControlPlane(options.folder, stays=True)
    commands = {"up": _up, "down": _down, "status": _status}
    return commands[options.command](plane)


def _up(plane: ControlPlane) -> int:
    if plane.programs_running:
        print(f"already up: {', '.join(plane.programs_running)}")
    else:
        try:
            plane.start()
        except (MissingProgramsError, RuntimeError) as error:
            print(f"cluster-up: {error}", file=sys.stderr)
            return 1
        print("control plane is up; logs in", plane.folder / "log")
    print(f"export KUBECONFIG={plane.kubeconfig}")
    return 0


def _down(plane: ControlPlane) -> int:
    running = plane.programs_running
    plane.stop()
    print(f"stopped: {', '.join(running)}" if running else "nothing was running")
    return 0


def _status(plane: ControlPlane) -> int:
    running = plane.programs_running
    print(f"running: {', '.join(running)}" if running else "nothing is running")
    return 0 if running else 1


if __name__ == "__main__":
    sys.exit(main())
