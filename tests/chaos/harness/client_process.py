"""A process of a client in a namespace: commands go to its stdin as lines of JSON, what it says comes from its stdout.

Invariant: it dies with the driver, and every wait for its words has a deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from harness.namespaces import Namespaces

_FOLDER = Path(__file__).resolve().parent


class ClientProcess:
    """One process; `start` runs it."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, namespaces: Namespaces, place: str, script: str, wanted: dict[str, Any]) -> None:
        """Runs a script of this folder in a namespace, with ``wanted`` as its one argument."""
        with self._log.open("wb") as sink:
            self._process = await asyncio.create_subprocess_exec(
                *namespaces.inside(place),
                *(sys.executable, str(_FOLDER / script), json.dumps(wanted)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env=worker_environment(),
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def death(self) -> str:
        """How it ended, if it failed; empty while it runs and after a good end."""
        code = self._process.returncode if self._process is not None else None
        return f"the clients in {self.name} ended with {code}: {self.last_words()}" if code else ""

    async def hear(self, word: str, timeout_s: float) -> None:
        """Waits for a line with ``word``.

        Raises:
            AssertionError: it did not come, or the client ended; its last words are in the message.
        """
        assert self._process is not None and self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                while line := await self._process.stdout.readline():
                    if word in json.loads(line):
                        return
        except TimeoutError:
            raise AssertionError(f"the clients in {self.name} did not say '{word}' within {timeout_s:g} s") from None
        raise AssertionError(f"the clients in {self.name} ended: {self.last_words()}")

    async def tell(self, command: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> None:
        assert self._process is not None
        await self._process.wait()

    async def kill(self) -> None:
        """`kill -9`, if it runs."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


def worker_environment() -> dict[str, str]:
    """The environment of a client process: it finds this harness."""
    folders = [str(_FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
