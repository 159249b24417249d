"""The demo's load as its parent sees it: two processes, the newest report of each, and waiting for a state.

Invariant: a process that ends without its last report ends the wait with its last words; neither outlives
`close`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.demo.ledgers import AckReport, ReadReport
from strandline.cli.failures import CommandFailed
from strandline.cli.local.processes import last_line

if TYPE_CHECKING:
    from strandline.cli.demo.corpus import Corpus

STALLED_S = 60
_LINE_BYTES = 1 << 20


class Load:
    """One producer and one consumer of ``corpus``, as processes of this machine."""

    def __init__(self, corpus: Corpus, topic: str, bootstrap: str, directory: Path, hold_at: int) -> None:
        self.corpus = corpus
        self.directory = directory
        self.acks = AckReport(missing=corpus.lines)
        self.reads = ReadReport(missing=corpus.lines)
        common = [bootstrap, topic, str(corpus.partitions)]
        self._producer = ["-m", "strandline.cli.demo.producing", *common, str(corpus.path), str(hold_at)]
        self._consumer = ["-m", "strandline.cli.demo.consuming", *common, str(corpus.lines), str(directory)]
        self._processes: list[asyncio.subprocess.Process] = []
        self._following: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._failure: CommandFailed | None = None

    async def begin(self) -> None:
        """Starts both."""
        await self._start("consumer", self._consumer, self._read)
        await self._start("producer", self._producer, self._acked)

    def go_on(self) -> None:
        """Lets the producer send the lines it holds back; without effect on one that has ended."""
        for process in self._processes:
            if process.stdin is not None and process.returncode is None:
                process.stdin.write(b"\n")

    async def until(self, reached: Callable[[], bool]) -> None:
        """Waits for a state of the reports.

        Raises:
            CommandFailed: a process ended before (the message has its last words), or nothing moved any more.
        """
        seen, since_s = None, time.monotonic()
        while not reached():
            if self._failure is not None:
                raise self._failure
            state = (self.acks.acked, self.acks.is_held, self.reads.consumed)
            if state != seen:
                seen, since_s = state, time.monotonic()
            elif time.monotonic() - since_s > STALLED_S:
                figures = f"{self.acks.acked:,} acknowledged, {self.reads.consumed:,} consumed"
                raise CommandFailed(f"nothing moved for {STALLED_S} s: {figures} of {self.corpus.lines:,} lines")
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1.0)

    async def close(self) -> None:
        """Ends what still runs."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        for process in self._processes:
            await process.wait()

    def _acked(self, line: bytes) -> bool:
        self.acks = AckReport.parse(line)
        return self.acks.done

    def _read(self, line: bytes) -> bool:
        self.reads = ReadReport.parse(line)
        return self.reads.done

    async def _start(self, name: str, words: Sequence[str], take: Callable[[bytes], bool]) -> None:
        output = self.directory / "logs" / f"{name}.log"
        with output.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LINE_BYTES,
                start_new_session=True,
            )
        self._processes.append(process)
        self._following.append(asyncio.create_task(self._follow(name, process, output, take)))

    async def _follow(
        self, name: str, process: asyncio.subprocess.Process, output: Path, take: Callable[[bytes], bool]
    ) -> None:
        assert process.stdout is not None, "its stdout is a pipe"
        done = False
        while line := await process.stdout.readline():
            done = take(line)
            self._changed.set()
        code = await process.wait()
        if not done or code != 0:
            said = last_line(output) or f"exit code {code}"
            self._failure = CommandFailed(f"the {name} ended before its work was done: {said}; see {output}")
            self._changed.set()
