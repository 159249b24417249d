"""Starts a service as a process on this machine, waits until it serves, and stops it.

Invariant: an endpoint counts only if the process that we started wrote it, and no process that we started
outlives `stop`: one that does not end on SIGTERM within its grace is killed, and that is reported.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENDPOINT_FILE = "endpoint.json"
"""Written by a service into its data directory once it serves: pid, client, internal, node_id."""

_POLL_S = 0.02


class ServiceDied(Exception):
    """A process ended before it served; the message carries its exit code and its last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a running service answers, as it wrote itself. ``internal`` is None where a role has one port."""

    pid: int
    client: str
    internal: str | None = None
    node_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended: ``code`` is negative for a signal; ``forced`` when SIGTERM was not enough."""

    name: str
    code: int
    forced: bool = False

    @property
    def sentence(self) -> str:
        """The end in words, fit for one line."""
        if self.forced:
            return f"{self.name} did not stop in time and was killed"
        if self.code < 0:
            return f"{self.name} was ended by {signal.Signals(-self.code).name}"
        return f"{self.name} ended with exit code {self.code}{_meaning(self.code)}"


def _meaning(code: int) -> str:
    """The name of an exit code of ours in brackets; empty for others."""
    from strandline.runtime.exit_codes import ExitCode

    return f" ({ExitCode(code).name})" if code in set(ExitCode) else ""


@dataclass(slots=True, kw_only=True)
class Service:
    """One child process: the command, its data directory, and the file its output goes to."""

    name: str
    command: Sequence[str]
    directory: Path
    output: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    end_expected: bool = False
    """Whether we asked it to end, so that its end need not be reported."""

    @property
    def pid(self) -> int | None:
        """The running process's id; None when there is none."""
        return self.process.pid if self.process and self.process.poll() is None else None

    @property
    def running(self) -> bool:
        """Whether the process lives now."""
        return self.pid is not None

    def start(self) -> None:
        """Starts the process in a session of its own: a Ctrl-C at the terminal reaches only its parent."""
        assert not self.running, f"{self.name} already runs"
        refuse_second_owner(self)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self.end_expected = False
        with self.output.open("ab") as sink:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    async def serving(self, timeout_ms: int) -> Address:
        """Waits until this process has written its endpoint.

        Raises:
            ServiceDied: when the process ends first.
            TimeoutError: when it neither serves nor ends within ``timeout_ms``.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            address = read_address(self.directory)
            if address is not None and address.pid == self.pid:
                return address
            if not self.running:
                raise ServiceDied(self.epitaph())
            await asyncio.sleep(_POLL_S)
        raise TimeoutError(f"{self.name} did not serve within {timeout_ms} ms; its output is in {self.output}")

    def kill(self) -> None:
        """`kill -9`: the process gets no chance to do anything."""
        self.end_expected = True
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: the process is paused, its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def terminate(self) -> None:
        """Asks the process to end (SIGTERM), without waiting; a paused one is resumed for that."""
        self.end_expected = True
        self.resume()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    async def stop(self, grace_ms: int) -> Exit | None:
        """SIGTERM, then, after ``grace_ms``, SIGKILL; None when there was no process."""
        if self.process is None:
            return None
        self.terminate()
        try:
            code = await asyncio.to_thread(self.process.wait, grace_ms / 1000)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return Exit(name=self.name, code=self.process.wait(), forced=True)
        return Exit(name=self.name, code=code)

    def found_dead(self) -> Exit | None:
        """The end of a process that ended by itself; None while it runs or was stopped on purpose."""
        if self.process is None or self.end_expected or self.process.poll() is None:
            return None
        return Exit(name=self.name, code=self.process.returncode)

    def epitaph(self) -> str:
        """How the process ended; with its last line if it ended by itself and not by a signal."""
        assert self.process is not None, f"{self.name} was never started"
        code = self.process.poll()
        ended = Exit(name=self.name, code=code).sentence if code is not None else f"{self.name} runs"
        last = last_line(self.output) if code is None or code >= 0 else ""
        return f"{ended}: {last}" if last else f"{ended}; its output is in {self.output}"


def read_address(directory: Path) -> Address | None:
    """The endpoint a service wrote; None while there is none (or only half of one)."""
    try:
        written = json.loads((directory / ENDPOINT_FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    node_id = written.get("node_id")
    return Address(
        pid=int(written["pid"]),
        client=str(written["client"]),
        internal=str(written["internal"]) if written.get("internal") else None,
        node_id=None if node_id is None else int(node_id),
    )


def refuse_second_owner(service: Service) -> None:
    """A directory whose last process still lives must not get another one.

    Raises:
        ServiceDied: naming the process that holds the directory.
    """
    address = read_address(service.directory)
    if address is not None and _is_ours(address.pid, service.directory):
        raise ServiceDied(
            f"{service.directory} is in use by process {address.pid} (another `strandline up`?); "
            f"stop that one first, or use another directory"
        )


def _is_ours(pid: int, directory: Path) -> bool:
    """Whether ``pid`` lives and was started for ``directory`` (ids are reused, so the command line decides)."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return str(directory) in "\n".join(words)


def last_line(path: Path, limit_bytes: int = 4096) -> str:
    """The last non-empty line of a text file, at most 300 characters; empty when there is none."""
    try:
        with path.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - limit_bytes))
            lines = [line.strip() for line in source.read().decode("utf-8", "replace").splitlines()]
    except FileNotFoundError:
        return ""
    return next((line[:300] for line in reversed(lines) if line), "")
