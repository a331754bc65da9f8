"""The operator's command line."""

from __future__ import annotations

import pytest

from punctual_operator.settings import Settings, parse_settings


def test_no_arguments_are_the_defaults() -> None:
    assert parse_settings([]) == Settings()


def test_arguments_are_taken() -> None:
    found = parse_settings(["--namespace=a", "--namespace=b", "--resync-seconds=7", "--workers=2"])
    assert (found.namespaces, found.resync, found.workers) == (("a", "b"), 7.0, 2)


@pytest.mark.parametrize(
    "argument", ["--workers=0", "--resync-seconds=no", "--inactivity-seconds=0"]
)
def test_wrong_value_says_what_it_must_be(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings([argument])
    assert ended.value.code == 2
    assert "must be" in capsys.readouterr().err
