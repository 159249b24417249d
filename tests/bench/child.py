"""Runs a process to its end, and ends it with the caller: by SIGTERM, so that it can end its own processes too.

Invariant: the child has a session of its own, so that a Ctrl-C at the terminal reaches it once, from here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_GRACE_S = 15


def output_of(command: Sequence[str], limit_s: float) -> str:
    """What the process printed.

    Raises:
        RuntimeError: it failed; with the end of its error output.
        subprocess.TimeoutExpired: it did not end within ``limit_s``, and was ended.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=limit_s)
    finally:
        _end(process)
    if process.returncode:
        raise RuntimeError(f"{Path(command[1]).name} failed: {errors.strip()[-2000:]}")
    return output


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
