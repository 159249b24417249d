"""How the workers of a machine are started, stopped and watched by one process.

Invariant: they live and end together: a signal reaches all, the end of one ends the others, and none outlives the
supervisor (on Linux, where the kernel sends SIGTERM to the children of a process that ends in whatever way).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from strandline.replica.workers import Worker

_PR_SET_PDEATHSIG = 1
_GRACE_S = 5.0
"""Beyond a worker's own deadline for its shutdown, before it is killed."""
_OF_SIGNALS = 128
"""Added to a signal's number, as shells do, where a worker was ended by one."""


class Supervisor:
    """The processes of some workers. `run` is called once, from the main thread of a process without others."""

    def __init__(self, workers: Sequence[Worker], arguments: Sequence[str], *, shutdown_deadline_s: float) -> None:
        """Take what is to be run.

        Args:
            arguments: of `strandline replica`, as they were given; what a worker has of its own is added to them.
            shutdown_deadline_s: how long a worker may take for its shutdown, s.
        """
        self._workers = workers
        self._arguments = arguments
        self._grace_s = shutdown_deadline_s + _GRACE_S
        self._running: dict[int, tuple[Worker, subprocess.Popen[bytes]]] = {}
        self._is_ending = False

    def run(self) -> int:
        """Start all, and return when all have ended: with the code of the first that ended by itself, else with the
        first code that is not 0."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, lambda *_: self._send(signal.SIGKILL))
        for worker in self._workers:
            if not self._is_ending:
                self._start(worker)
        return self._wait()

    def _start(self, worker: Worker) -> None:
        own = (part for name, value in worker.settings.items() for part in (f"--{name.replace('_', '-')}", value))
        process = subprocess.Popen(
            [sys.executable, "-m", "strandline.replica", *self._arguments, *own],
            stdin=subprocess.DEVNULL,
            # A Ctrl-C at the terminal reaches the supervisor alone, which hands it on: twice would be no clean stop.
            start_new_session=True,
            preexec_fn=_ends_with(os.getpid()),
        )
        self._running[process.pid] = worker, process
        if self._is_ending:
            # The signal came while it was started.
            os.kill(process.pid, signal.SIGTERM)

    def _wait(self) -> int:
        codes: list[int] = []
        while self._running:
            pid, status = os.wait()
            ended = self._running.pop(pid, None)
            if ended is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            ended[1].returncode = code
            codes.append(code if code >= 0 else _OF_SIGNALS - code)
            if not self._is_ending:
                self._say(f"worker {ended[0].directory.name} (node {ended[0].node_id}) ended with code {codes[-1]}")
                self._end(signal.SIGTERM)
                return self._wait_for_others(codes[0])
        return next((code for code in codes if code), 0)

    def _wait_for_others(self, code: int) -> int:
        self._wait()
        return code

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._end(signal.Signals(number))

    def _end(self, number: signal.Signals) -> None:
        self._is_ending = True
        signal.setitimer(signal.ITIMER_REAL, self._grace_s)
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        for pid in list(self._running):
            # What has ended and was not awaited yet still has its id.
            os.kill(pid, number)

    def _say(self, line: str) -> None:
        print(f"strandline: {line}; the other workers of this machine are stopped", file=sys.stderr, flush=True)  # noqa: T201


def _ends_with(parent: int) -> Callable[[], None]:
    """What a child does before it becomes a worker: have SIGTERM sent to it when its parent ends."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def tie() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            # It ended before it could be tied to.
            os._exit(1)

    return tie
