"""Starts a console as the process that users start, and stops it.

Invariant: every wait has a deadline; a console that a test started ends with the test, and must end cleanly.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 30.0
STOP_S = 8.0


@dataclass(slots=True)
class Console:
    """A running console."""

    address: str
    process: asyncio.subprocess.Process
    output: Path

    async def stop(self) -> float:
        """SIGTERM; the seconds it took to end.

        Raises:
            AssertionError: it did not end with 0.
        """
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.process.wait(), STOP_S)
        assert code == 0, self.output.read_text()
        return time.monotonic() - begun


@asynccontextmanager
async def console(folder: Path, bootstrap: str, *flags: str) -> AsyncIterator[Console]:
    """A console at a port of the kernel's choice."""
    output = folder / "console.log"
    command = [sys.executable, "-m", "strandline.cli", "console", "--bootstrap", bootstrap, "--bind", "127.0.0.1:0"]
    with output.open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, *flags, stdout=asyncio.subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        running = Console(line.decode().strip(), process, output)
        assert running.address.startswith("http"), output.read_text()
        yield running
        if process.returncode is None:
            await running.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "level=error" not in output.read_text()
    assert "Traceback" not in output.read_text()
