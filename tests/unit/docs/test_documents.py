"""What the documents name exists: files, sections, targets, commands, flags, values, metrics."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from charts.tools.generate import CHART, ROOT
from punctual_lab.cli import COMMANDS

SKIPPED = {".venv", ".git", "node_modules", "reports"}
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if SKIPPED.isdisjoint(path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TARGET = re.compile(r"\bmake ([a-z][a-z0-9-]*)")
PROGRAM = re.compile(r"\b(punctual-[a-z-]+|python -m [\w.]+)((?: [^|;&#\n]*)?)")
SET = re.compile(r"--set '?([\w.]+)=")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
METRIC = re.compile(r"\b(punctual_[a-z0-9_]+)")
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - SKIPPED
MODULES = {
    "punctual-gateway": "punctual_gateway",
    "punctual-model-server": "punctual_model_server.main",
    "punctual-operator": "punctual_operator",
    "punctual-metrics-adapter": "punctual_operator.adapter",
}

each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def code(path: Path) -> list[str]:
    """All that stands in code marks: lines of blocks, and words in lines."""
    text = path.read_text().replace("\\\n", " ")
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()[1:-1]]
    return lines + CODE.findall(FENCE.sub("", text))


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a document."""
    return frozenset(slug(heading) for heading in HEADING.findall(FENCE.sub("", path.read_text())))


@each_document
def test_links_lead_to_files_and_sections(path: Path) -> None:
    for link in LINK.findall(CODE.sub("", FENCE.sub("", path.read_text()))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such section"


@each_document
def test_files_that_are_named_exist(path: Path) -> None:
    for text in code(path):
        for part in text.split():
            word = part.strip("`'\",;:()").partition("::")[0]
            is_path = "/" in word and word.partition("/")[0] in FOLDERS
            if is_path and re.fullmatch(r"[\w./-]+", word) and not word.startswith("reports"):
                assert (ROOT / word).exists() or (path.parent / word).exists(), word


@cache
def targets() -> frozenset[str]:
    """The targets of make."""
    makefiles = [ROOT / "Makefile", *ROOT.glob("*/*.mk"), *ROOT.glob("*/*/*.mk")]
    text = "\n".join(path.read_text() for path in makefiles)
    return frozenset(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))


@each_document
def test_targets_of_make_exist(path: Path) -> None:
    named = {target for text in code(path) for target in TARGET.findall(text)}
    assert named - targets() == set()


@cache
def help_text(*command: str) -> str:
    """What a program says of its command line."""
    done = subprocess.run(
        [sys.executable, "-m", *command, "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout


def commands(path: Path) -> Iterator[tuple[str, str]]:
    """Programs of ours with their arguments, and our modules."""
    for text in code(path):
        yield from PROGRAM.findall(text)


def module_of(program: str) -> str | None:
    """What `python -m` runs for a program of ours."""
    if program.startswith("python -m "):
        name = program.removeprefix("python -m ")
        return name if name.startswith(("punctual_", "charts.")) else None
    return MODULES.get(program)


@cache
def lab_flags(command: str) -> str:
    """The help of a command of punctual-lab; raises AssertionError where there is none."""
    assert command in COMMANDS, f"punctual-lab has no command {command}"
    return help_text("punctual_lab.cli", command)


@each_document
def test_commands_have_the_flags_that_are_named(path: Path) -> None:
    for program, arguments in commands(path):
        if program == "punctual-lab":
            words = arguments.split()
            if words and re.fullmatch(r"[a-z]+", words[0]):
                said = lab_flags(words[0])
            else:
                continue
        elif (module := module_of(program)) is None:
            continue
        else:
            said = "" if not FLAG.search(arguments) else help_text(module)
            subcommand = arguments.split()[:1]
            if subcommand and re.fullmatch(r"[a-z][a-z-]*", subcommand[0]) and said:
                said += help_text(module, subcommand[0])
        for flag in FLAG.findall(arguments):
            assert re.search(rf"{flag}\b", said), f"{program}{arguments}: no {flag}"


@each_document
def test_values_that_are_set_are_values_of_the_chart(path: Path) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for text in code(path):
        for name in SET.findall(text):
            found = values
            for key in name.split("."):
                assert isinstance(found, dict), name
                assert key in found, f"--set {name}: the chart has no such value"
                found = found[key]


@cache
def sources() -> str:
    """All our code, alerts and manifests."""
    folders = ("admission", "gateway", "model-server", "operator", "lab")
    files = [path for folder in folders for path in (ROOT / folder / "src").rglob("*.py")]
    return "\n".join(path.read_text() for path in files)


@each_document
def test_metrics_that_are_named_are_exported(path: Path) -> None:
    for name in METRIC.findall(" ".join(code(path))):
        base = re.sub(r"_(total|bucket|sum|count)$", "", name)
        tail = re.sub(r"^punctual_(operator|adapter|model_server)_", "", base)
        known = base in sources() or re.search(rf'["_]{tail}"', sources()) is not None
        assert known or base == "punctual_dev_policy", f"{name} is not exported by any component"
