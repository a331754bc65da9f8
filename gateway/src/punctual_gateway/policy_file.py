"""The policy file: read, validated as a whole, and followed when it changes.

The file may be a ConfigMap mount, where the path is a symbolic link into a folder that is swapped
as one. So the target behind all links is what counts: its inode, time and size say whether to
read again, and its bytes whether anything changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from punctual_admission.fields import PolicyError
from punctual_admission.policy import Policy, policy_from_object

log = logging.getLogger(__name__)

_YAML_FAULTS = (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)
"""What PyYAML raises: its constructors pass on what a date of month 99 or a wrong tag ends in."""


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A valid policy and the object that it came from."""

    policy: Policy
    name: str
    namespace: str
    generation: int


class _StrictLoader(yaml.SafeLoader):
    """Plain YAML in which a key may occur once in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build one mapping; raises ConstructorError at a duplicate key."""
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # the base class says what is wrong with it
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key_node.value}' must occur once", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def parse_policy(text: bytes) -> LoadedPolicy:
    """Build the policy from a file's bytes; raises PolicyError that names every fault."""
    try:
        given = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  # a SafeLoader
    except _YAML_FAULTS as error:
        raise PolicyError([f"the policy must be YAML: {' '.join(str(error).split())}"]) from error
    policy = policy_from_object(given)
    metadata = given.get("metadata")
    if not isinstance(metadata, Mapping):
        metadata = {}
    generation = metadata.get("generation", 0)
    return LoadedPolicy(
        policy,
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        generation=generation if isinstance(generation, int) else 0,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyError(
            [f"the policy file {path} must be readable: {error.strerror or error}"]
        ) from error


class PolicyFile:
    """Follows a policy file: calls `changed` with each valid new version.

    `problems` holds what is wrong with the newest version of the file; the policy in force is then
    still the last valid one.
    """

    def __init__(self, path: Path, changed: Callable[[LoadedPolicy], None]) -> None:
        self._path = path
        self._changed = changed
        self._mark: tuple[int, int, int, int] | None = None
        self._content: bytes | None = None
        self.problems: tuple[str, ...] = ()
        self.failures = 0

    def load(self) -> LoadedPolicy:
        """Read the file for the first time; raises PolicyError."""
        self._mark = self._stat()
        self._content = _read(self._path)
        return parse_policy(self._content)

    def try_reload(self) -> bool:
        """Take the file's newest version if it is new and valid; never raises for its content."""
        try:
            mark = self._stat()
            if mark == self._mark and not self.problems:
                return False
            content = _read(self._path)
            # A swap between the two would be missed without the older mark: read again next time.
            self._mark = mark
            if content == self._content:
                self.problems = ()
                return False
            loaded = parse_policy(content)
        except PolicyError as error:
            self._fail(error)
            return False
        self._content, self.problems = content, ()
        self._changed(loaded)
        return True

    async def watch(self, interval: float) -> None:
        """Look at the file every `interval` seconds, for ever."""
        while True:
            await asyncio.sleep(interval)
            try:
                self.try_reload()
            except Exception:  # a version that cannot be applied must not end the following
                log.exception("the policy file cannot be applied")

    def _fail(self, error: PolicyError) -> None:
        if error.problems != self.problems:
            self.failures += 1
            log.error("the policy file is invalid, the policy in force stays: %s", error)
        self.problems = error.problems

    def _stat(self) -> tuple[int, int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise PolicyError(
                [f"the policy file {self._path} must be readable: {error.strerror or error}"]
            ) from error
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size
