"""The command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from punctual_model_server.engine.models import read_architecture
from punctual_model_server.settings import parse_settings


def test_the_defaults_serve_the_laboratory_model() -> None:
    settings = parse_settings([])
    assert (settings.model, settings.engine, settings.slots) == ("random:lab", "torch", 4)
    assert settings.served_model_name == "gpt2-lab"


def test_the_step_table_goes_on_with_its_last_rise() -> None:
    settings = parse_settings(["--slots", "5", "--sim-step-ms", "8,9,11"])
    assert settings.sim_step_seconds == pytest.approx((0.008, 0.009, 0.011, 0.013, 0.015))


def test_a_longer_table_than_slots_is_cut() -> None:
    settings = parse_settings(["--slots", "1", "--sim-step-ms", "8,9,11"])
    assert settings.sim_step_seconds == (0.008,)


def test_a_single_value_holds_for_every_batch() -> None:
    settings = parse_settings(["--slots", "3", "--sim-step-ms", "5", "--sim-prefill-ms", "2,0.5"])
    assert settings.sim_step_seconds == (0.005, 0.005, 0.005)
    assert settings.sim_prefill_base_seconds == 0.002
    assert settings.sim_prefill_per_token_seconds == 0.0005


def test_threads_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert parse_settings([]).threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert parse_settings([]).threads == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slots", "0"], "--slots: must be an integer from 1 to 1024, got '0'"),
        (["--slots", "x"], "got 'x'"),
        (["--port", "70000"], "0 to 65535"),
        (["--stuck-seconds", "-1"], "must be a finite number of at least 0"),
        (["--stuck-seconds", "nan"], "must be a finite number of at least 0"),
        (["--sim-step-ms", "9,8"], "must not fall"),
        (["--sim-step-ms", "0"], "must be above 0"),
        (["--sim-step-ms", ""], "must be a number"),
        (["--sim-prefill-ms", "1"], "must be base,per_token"),
        (["--sim-speed", "0"], "must be above 0"),
        (["--sim-eos-probability", "1.5"], "must be from 0 to 1"),
        (["--model", "random:huge"], "random:gpt2, random:lab, random:tiny or a folder"),
        (["--max-context", "2000"], "at most 1024"),
        (["--engine", "gpu"], "invalid choice"),
    ],
)
def test_a_wrong_value_exits_2_and_says_what_is_allowed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_settings(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_is_read_by_its_configuration_and_named_after_itself(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {"model_type": "gpt2", "n_layer": 3, "n_embd": 96, "n_head": 3, "vocab_size": 257}
    (folder / "config.json").write_text(json.dumps(config | {"n_positions": 256}))
    assert parse_settings(["--model", str(folder)]).served_model_name == "mine"
    architecture = read_architecture(str(folder))
    assert (architecture.layers, architecture.positions) == (3, 256)
    assert architecture.eos == 256
    assert architecture.kv_bytes_per_token(4) == 2 * 3 * 96 * 4


@pytest.mark.parametrize(("named", "eos"), [(50256, 50256), ([7, 8], 7), (None, 50303)])
def test_the_end_token_is_the_one_the_configuration_names(
    named: object, eos: int, tmp_path: Path
) -> None:
    config = {"model_type": "gpt2", "vocab_size": 50304, "eos_token_id": named}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_architecture(str(tmp_path)).eos == eos


@pytest.mark.parametrize(
    "config", ['{"model_type": "llama"}', "{", '{"model_type": "gpt2", "n_layer": "many"}', "[]"]
)
def test_a_folder_that_is_no_gpt2_is_refused(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(SystemExit):
        parse_settings(["--model", str(tmp_path)])
    assert "must be" in capsys.readouterr().err
