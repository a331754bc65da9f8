"""Independent runs on all cores, with a progress bar, and resumed where they were interrupted.

A task is a JSON object of keyword arguments; its result is JSON too. Each result is appended to
`runs.jsonl` as it comes, with a fingerprint of the code that made it: a second call takes up
those whose task and code are the same and runs the rest.
"""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import punctual_admission
import punctual_lab
from punctual_lab.progress import build_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

Task = dict[str, Any]
Result = dict[str, Any]


def run_tasks(
    work: Callable[..., Result],
    tasks: Sequence[Task],
    runs: Path,
    console: Console,
    *,
    label: str,
    jobs: int | None = None,
) -> list[Result]:
    """Results of `work(**task)` in the order of the tasks; `jobs` processes (None: one a core).

    `work` must be a function at the top level of a module.
    """
    runs.parent.mkdir(parents=True, exist_ok=True)
    keys = [_key(work, task) for task in tasks]
    known = _read_known(runs, set(keys))
    missing = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
    with runs.open("w", encoding="utf-8") as file, build_progress(console) as progress:
        for key, result in known.items():
            file.write(_line(key, result))
        bar = progress.add_task(label, total=len(tasks), completed=len(known))
        for key, result in _results(work, missing, jobs or os.cpu_count() or 1):
            known[key] = result
            file.write(_line(key, result))
            file.flush()
            progress.advance(bar)
    return [known[key] for key in keys]


def _results(
    work: Callable[..., Result], missing: dict[str, Task], jobs: int
) -> Iterator[tuple[str, Result]]:
    if jobs == 1 or len(missing) < 2:
        for key, task in missing.items():
            yield key, _call(work, task)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(missing)), mp_context=context) as pool:
        futures = {pool.submit(_call, work, task): key for key, task in missing.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _call(work: Callable[..., Result], task: Task) -> Result:
    """Run one task without the collector of cycles: a world keeps all its records to its end."""
    gc.disable()
    try:
        return work(**task)
    finally:
        gc.enable()


def _line(key: str, result: Result) -> str:
    return json.dumps({"key": key, "result": result}) + "\n"


def _key(work: Callable[..., Result], task: Task) -> str:
    name = f"{work.__module__}.{work.__qualname__}"
    written = json.dumps([name, task, code_fingerprint()], sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:24]


def _read_known(runs: Path, wanted: set[str]) -> dict[str, Result]:
    """Results of earlier calls; a line that an interruption cut short is left out."""
    if not runs.exists():
        return {}
    known = {}
    for line in runs.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["key"] in wanted:
            known[entry["key"]] = entry["result"]
    return known


@cache
def code_fingerprint() -> str:
    """A hash of the admission package, the simulator and the experiments."""
    digest = hashlib.sha256()
    lab = Path(punctual_lab.__file__).parent
    folders = (Path(punctual_admission.__file__).parent, lab / "simulate", lab / "experiments")
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
