"""The command line: every sub-command is there, wrong use and failures have their exit codes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from punctual_lab import cli
from punctual_lab.processes import ProcessError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Failing:
    """A command that fails as a test says."""

    NAME = "fail"
    HELP = "fails"

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare nothing."""

    def run(self, _: argparse.Namespace) -> int:
        """Raise, or return 0."""
        if self.error is not None:
            raise self.error
        return 0


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_each_command_is_named_as_its_module_says(name: str) -> None:
    """The table's name is the module's NAME, and its arguments parse."""
    (command,) = cli.load_commands([name])
    assert name == command.NAME
    assert command.HELP
    cli.build_parser([command])


def test_only_the_command_called_is_loaded() -> None:
    """Help loads every command, a call loads one."""
    assert len(cli.load_commands(["demo", "--quick"])) == 1
    assert len(cli.load_commands(["--help"])) == len(cli.COMMANDS)
    assert len(cli.load_commands([])) == len(cli.COMMANDS)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (None, 0, ""),
        (ProcessError("gateway ended"), 1, "error: gateway ended"),
        (ConnectionError("no answer"), 1, "error: no answer"),
        (ValueError("load is 0: must be above 0"), 2, "error: load is 0"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_are_told_in_one_line_and_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    code: int,
    message: str,
) -> None:
    """An expected failure is a message, not a traceback."""

    def load(_: Sequence[str]) -> list[cli.Command]:
        return [Failing(error)]

    monkeypatch.setattr(cli, "load_commands", load)
    monkeypatch.setattr(cli, "exit_on_sigterm", lambda: None)
    assert cli.main(["fail"]) == code
    assert message in capsys.readouterr().err


def test_a_wrong_word_is_refused_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command ends with code 2 and names the ones there are."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["nonsense"])
    assert ended.value.code == 2
    assert "demo" in capsys.readouterr().err
