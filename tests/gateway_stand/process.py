"""The real programs as child processes, for tests of starting, serving and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

_LISTENING = re.compile(r"listening on (http://\S+?:\d+)")


@dataclass
class Program:
    """A running program and what it has written."""

    process: asyncio.subprocess.Process
    url: str = ""
    lines: list[str] = field(default_factory=list)

    async def wait(self) -> int:
        """Exit status."""
        return await self.process.wait()

    async def read_until_listening(self) -> None:
        """Read what it writes until it says where it listens."""
        async for line in self._output():
            if (found := _LISTENING.search(line)) is not None:
                self.url = found[1]
                return
        raise AssertionError("the program ended:\n" + "".join(self.lines))

    async def read_rest(self) -> None:
        """Read all that it writes until it ends."""
        async for _ in self._output():
            pass

    async def _output(self) -> AsyncIterator[str]:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode())
            yield self.lines[-1]


@contextlib.asynccontextmanager
async def program(module: str, *arguments: str, listens: bool = True) -> AsyncIterator[Program]:
    """Run `python -m module` until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    running = Program(process)
    reading: asyncio.Task[None] | None = None
    try:
        if listens:
            await running.read_until_listening()
        reading = asyncio.create_task(running.read_rest())
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if reading is not None:
            await reading
