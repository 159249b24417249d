"""Runs processes to their end, and ends them with the caller: by SIGTERM, so that they can end their own processes too.

Invariant: a child has a session of its own, so that a Ctrl-C at the terminal reaches it once, from here.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RUN_GRACE_S = 60
"""How much longer than its measured seconds a process may take."""
_GRACE_S = 15

in_loop = asyncio.Runner().run
"""Runs a coroutine to its end, all of them in one loop: grpc.aio allows one per process."""


def output_of(command: Sequence[str], limit_s: float, variables: Mapping[str, str] | None = None) -> str:
    """What the process printed; ``variables`` are put into its environment.

    Raises:
        RuntimeError: it failed; with the end of its error output.
        subprocess.TimeoutExpired: it did not end within ``limit_s``, and was ended.
    """
    pipe = subprocess.PIPE
    environment = {**os.environ, **(variables or {})}
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=environment)
    try:
        output, errors = process.communicate(timeout=limit_s)
    finally:
        _end(process)
    if process.returncode:
        raise RuntimeError(f"{Path(command[1]).name} failed: {errors.strip()[-2000:]}")
    return output


def run_script(
    script: str, *arguments: object, limit_s: float, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a file of this folder as a process; what it printed last, which must be JSON.

    Raises:
        RuntimeError, subprocess.TimeoutExpired: as `output_of`.
    """
    output = output_of([sys.executable, str(HERE / script), *map(str, arguments)], limit_s, variables)
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


@contextmanager
def helper(
    command: Sequence[object], *, prefix: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is spoken with through its pipes, or not at all; killed at the end."""
    words, pipe = [*prefix, sys.executable, *map(str, command)], subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **(variables or {})})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def in_words(pids: Mapping[str, int]) -> str:
    """`name:pid,...`, as a script takes it."""
    return ",".join(f"{name}:{pid}" for name, pid in pids.items())


def free_port() -> int:
    """A port of loopback that no process listens on: the kernel's choice, free again when this returns."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
