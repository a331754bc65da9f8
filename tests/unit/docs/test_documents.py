"""What the documents name exists: files, sections, targets, commands, flags, values, metrics."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.generate import CHART, ROOT
from punctual_lab.cli import COMMANDS
from punctual_operator.policies import parse

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
YAML = re.compile(r"^ *```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
METRIC = re.compile(r"\b(punctual_[a-z0-9_]+)")
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - SKIPPED
PACKAGES = {
    "punctual-gateway": "punctual_gateway",
    "punctual-model-server": "punctual_model_server",
    "punctual-operator": "punctual_operator",
    "punctual-metrics-adapter": "punctual_operator",
    "punctual-lab": "punctual_lab",
}

NEEDED = {"model": "gpt2", "backend": {"service": "gpt2"}}
"""What an example that shows a part leaves out."""
IDENTITY = {"name": "example", "namespace": "default", "uid": ""}

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
def flags(package: str) -> frozenset[str]:
    """The flags that a package of ours declares."""
    (folder,) = [*ROOT.glob(f"*/src/{package}"), *ROOT.glob(package)]
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    return frozenset(re.findall(r'"(--[a-z][a-z-]+)"', text))


def package_of(program: str) -> str | None:
    """The package of a program of ours, or of what `python -m` runs."""
    module = program.removeprefix("python -m ")
    if module != program and module.startswith(("punctual_", "charts.")):
        return module.partition(".")[0]
    return PACKAGES.get(program)


@each_document
def test_commands_have_the_flags_that_are_named(path: Path) -> None:
    named = [found for text in code(path) for found in PROGRAM.findall(text)]
    for program, arguments in named:
        package = package_of(program)
        if package is not None:
            unknown = set(FLAG.findall(arguments)) - flags(package) - {"--help"}
            assert unknown == set(), f"{program}{arguments}"


@each_document
def test_commands_of_the_laboratory_exist(path: Path) -> None:
    for text in code(path):
        for program, arguments in PROGRAM.findall(text):
            command = re.match(r" ([a-z]+)", arguments)
            if program == "punctual-lab" and command is not None:
                assert command[1] in COMMANDS, f"punctual-lab has no command {command[1]}"


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


@each_document
def test_examples_of_policies_are_valid(path: Path) -> None:
    for block in YAML.findall(path.read_text()):
        for found in yaml.safe_load_all(block):
            assert found is not None, block
            if isinstance(found, dict) and is_policy(found):
                metadata = IDENTITY | found.get("metadata", {})
                parse({"metadata": metadata, "spec": NEEDED | found["spec"]})


def is_policy(found: dict[str, Any]) -> bool:
    """Whether an example is a policy, or the part of one that begins with `spec`."""
    return found.get("kind") == "AdmissionPolicy" or set(found) == {"spec"}


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
