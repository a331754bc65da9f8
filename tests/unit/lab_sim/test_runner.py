"""Runs in processes, resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from punctual_lab.experiments import theory
from punctual_lab.experiments.runner import run_tasks

if TYPE_CHECKING:
    from pathlib import Path

calls: list[int] = []


def square(number: int) -> dict[str, Any]:
    """A task that says that it ran."""
    calls.append(number)
    return {"square": number * number}


def play(path: Path, numbers: list[int], jobs: int = 1) -> list[int]:
    """Run and unwrap."""
    tasks = [{"number": number} for number in numbers]
    results = run_tasks(square, tasks, path, Console(quiet=True), label="t", jobs=jobs)
    return [result["square"] for result in results]


def test_results_come_in_the_order_of_the_tasks_and_are_not_made_twice(tmp_path: Path) -> None:
    """A second call takes up what is there and makes the rest."""
    calls.clear()
    path = tmp_path / "deep" / "runs.jsonl"
    assert play(path, [3, 1]) == [9, 1]
    assert play(path, [1, 2, 3]) == [1, 4, 9]
    assert calls == [3, 1, 2]


def test_a_line_cut_short_is_made_again(tmp_path: Path) -> None:
    """As an interruption leaves it."""
    calls.clear()
    path = tmp_path / "runs.jsonl"
    play(path, [1, 2])
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-5], encoding="utf-8")
    assert play(path, [1, 2]) == [1, 4]
    assert calls == [1, 2, 2]


def test_several_processes_give_the_same_results(tmp_path: Path) -> None:
    """Real processes, a real experiment's task."""
    tasks = [{"case": 0, "seed": seed, "count": 200} for seed in (1, 2)]
    console = Console(quiet=True)
    results = run_tasks(
        theory.replicate, tasks, tmp_path / "runs.jsonl", console, label="t", jobs=2
    )
    assert results == [theory.replicate(**task) for task in tasks]
