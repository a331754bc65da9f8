"""`punctual-lab`: one command line for load, comparisons, experiments and benchmarks.

Each sub-command is a module with `NAME`, `HELP`, `add_arguments(parser)` and `run(args) -> exit
code`. Add one by writing the module and naming it in `COMMANDS` under its `NAME`. When a command
is called, its module alone is imported; `--help` imports them all.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING, Protocol, cast

from punctual_lab.processes import ProcessError, exit_on_sigterm

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "demo": "punctual_lab.commands.demo",
    "compare": "punctual_lab.commands.compare",
    "calibrate": "punctual_lab.commands.calibrate",
    "bench": "punctual_lab.commands.bench",
    "load": "punctual_lab.commands.load",
    "theory": "punctual_lab.experiments.theory",
    "sweep": "punctual_lab.experiments.sweep",
    "burst": "punctual_lab.experiments.burst",
    "retries": "punctual_lab.experiments.retries",
    "autoscale": "punctual_lab.experiments.autoscale",
    "bound": "punctual_lab.experiments.bound",
    "fairness": "punctual_lab.experiments.fairness",
    "trace": "punctual_lab.experiments.trace",
    "replay": "punctual_lab.experiments.replay",
    "estimation": "punctual_lab.experiments.estimation",
    "noise": "punctual_lab.experiments.noise",
    "gateways": "punctual_lab.experiments.gateways",
    "offers": "punctual_lab.experiments.offers",
    "quotas": "punctual_lab.experiments.quotas",
    "tiers": "punctual_lab.experiments.tiers",
    "memory": "punctual_lab.experiments.memory",
    "leaving": "punctual_lab.experiments.leaving",
    "observe": "punctual_lab.experiments.observe",
    "report": "punctual_lab.experiments.report",
}

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Command(Protocol):
    """What a sub-command's module offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run(self, args: argparse.Namespace, /) -> int:
        """Do the work and return the exit code."""


def build_parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    """Build the parser with one sub-parser a command."""
    parser = argparse.ArgumentParser(
        prog="punctual-lab",
        description="Load generator, experiments and benchmarks for Punctual.",
    )
    choices = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        sub = choices.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def load_commands(words: Sequence[str]) -> list[Command]:
    """Import the module of the command called, or all of them when the first word is no command."""
    called = words[:1] if words and words[0] in COMMANDS else list(COMMANDS)
    return [cast("Command", importlib.import_module(COMMANDS[name])) for name in called]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command. Returns 2 for wrong use, 1 for a failed run, 130 when interrupted."""
    words = sys.argv[1:] if argv is None else list(argv)
    args = build_parser(load_commands(words)).parse_args(words)
    exit_on_sigterm()
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        print("interrupted; everything that was started is stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ProcessError, ConnectionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
