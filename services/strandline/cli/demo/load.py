"""The demo's load as its parent sees it: two processes, the newest report of each, and waiting for a state.

Invariant: a process that ends without its last report ends the wait with its last words; neither outlives
`close`.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from strandline.cli.demo.ledgers import AckReport, ReadReport
from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed
from strandline.cli.local.processes import last_line

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
        self._producer = ["produce", *common, str(corpus.path), str(hold_at)]
        self._consumer = ["consume", *common, str(corpus.lines), str(directory)]
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
        command = [sys.executable, "-m", "strandline.cli.demo.children", *words]
        output = self.directory / "logs" / f"{name}.log"
        with output.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
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


# ---- corpus
# What the demo writes: the lines of one file, or by default those of Python's standard library.
#
# Invariant: the same machine gives the same lines in the same order every time, so that line number, partition
# and content of every record can be worked out again from the file alone.

MAX_LINE_BYTES = 1_000_000
"""A record must fit into one batch of 1,048,588 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A text file as the demo sees it. Line i (from 0) goes to partition i mod ``partitions``."""

    path: Path
    title: str
    lines: int
    size_bytes: int
    sha256: str
    partitions: int

    def partition_of(self, line_number: int) -> int:
        """The partition that a line belongs to."""
        return line_number % self.partitions

    def lines_of(self, partition: int) -> int:
        """How many lines a partition gets."""
        return len(range(partition, self.lines, self.partitions))

    def read(self) -> Iterator[bytes]:
        """The lines in order, each with its line feed."""
        with self.path.open("rb") as source:
            yield from source


def open_corpus(path: Path, partitions: int, title: str | None = None) -> Corpus:
    """Reads ``path`` once, to count and to hash it.

    Raises:
        CommandFailed: when the file has no line, or one that no batch can hold.
    """
    digest, lines, size_bytes = hashlib.sha256(), 0, 0
    with path.open("rb") as source:
        for line in source:
            if len(line) > MAX_LINE_BYTES:
                raise CommandFailed(
                    f"{path}: line {lines + 1} has {len(line):,} bytes; a record holds at most {MAX_LINE_BYTES:,}",
                    EXIT_UNREACHABLE,
                )
            digest.update(line)
            lines += 1
            size_bytes += len(line)
    if lines == 0:
        raise CommandFailed(f"{path}: the file is empty; give one with at least one line", EXIT_UNREACHABLE)
    return Corpus(
        path=path,
        title=title or path.name,
        lines=lines,
        size_bytes=size_bytes,
        sha256=digest.hexdigest(),
        partitions=partitions,
    )


def write_standard_library(target: Path) -> None:
    """Joins all sources of the standard library into ``target``, in order of their paths."""
    root = Path(sysconfig.get_path("stdlib"))
    with target.open("wb") as joined:
        for source in library_sources(root):
            text = source.read_bytes()
            joined.write(text if text.endswith(b"\n") or not text else text + b"\n")


def library_sources(root: Path) -> list[Path]:
    """The .py files below ``root``, without what was installed later."""
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts and path.is_file())
