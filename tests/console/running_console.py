"""Starts a console as users start it, as a process, and stops it.

Invariant: every wait has a deadline; a console that a test started ends with the test, and must end cleanly.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from strandline.console import process
from strandline.console.settings import ConsoleSettings
from strandline.runtime.settings import load_settings

START_S = 30.0
STOP_S = 30.0
HELD_UP = ("--shutdown-deadline-ms", "60000")
"""With these a stream that the stop waits for holds it up for longer than `STOP_S`."""


@dataclass(slots=True)
class Console:
    """A running console."""

    address: str
    ran: asyncio.subprocess.Process
    output: Path

    async def stop(self) -> None:
        """Send SIGTERM and wait for its end.

        Raises:
            AssertionError: it did not end with 0.
            TimeoutError: it did not end within `STOP_S`.
        """
        self.ran.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.ran.wait(), STOP_S)
        assert code == 0, self.output.read_text()


@asynccontextmanager
async def console(folder: Path, bootstrap: str, *flags: str) -> AsyncIterator[Console]:
    """A console at a port of the kernel's choice."""
    output = folder / "console.log"
    command = [sys.executable, "-m", "strandline.console", "--bootstrap", bootstrap, "--bind", "127.0.0.1:0"]
    with output.open("wb") as log:
        ran = await asyncio.create_subprocess_exec(*command, *flags, stdout=asyncio.subprocess.PIPE, stderr=log)
    assert ran.stdout is not None
    try:
        line = await asyncio.wait_for(ran.stdout.readline(), START_S)
        running = Console(line.decode().strip(), ran, output)
        assert running.address.startswith("http"), output.read_text()
        yield running
        if ran.returncode is None:
            await running.stop()
    finally:
        if ran.returncode is None:
            ran.kill()
            await ran.wait()
    said = output.read_text()
    assert [word for word in ('"level": "error"', "level=error", "Traceback", "never retrieved") if word in said] == []


@asynccontextmanager
async def console_here(bootstrap: str, **settings: object) -> AsyncIterator[str]:
    """A console in the test's own loop, without its process: its address."""
    given = {"bootstrap": bootstrap, "bind": "127.0.0.1:0"} | settings
    loaded = load_settings(ConsoleSettings, flags=given, variables={}).settings
    stop = asyncio.Event()
    address = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(process.run(loaded, stop, started=address.set_result))
    try:
        await asyncio.wait([address, running], timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        yield address.result()
    finally:
        stop.set()
        await asyncio.wait_for(running, STOP_S)
