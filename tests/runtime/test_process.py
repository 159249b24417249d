"""What the signals of an operator do to a service process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from strandline.runtime.exit_codes import ExitCode

SERVICE = """
import asyncio
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.process import run_service

async def main(stop_asked):
    print("up", flush=True)
    await stop_asked.wait()
    print("stopping", flush=True)
    if {hangs}:
        await asyncio.Event().wait()
    return ExitCode.CLEAN

raise SystemExit(run_service(main))
"""


@pytest.mark.parametrize(
    ("hangs", "signals", "code"),
    [
        (False, (signal.SIGTERM,), ExitCode.CLEAN),
        (False, (signal.SIGINT,), ExitCode.CLEAN),
        (True, (signal.SIGTERM, signal.SIGINT), ExitCode.STOP_TOOK_TOO_LONG),
    ],
    ids=["SIGTERM", "SIGINT", "a second one"],
)
def test_one_signal_asks_for_a_clean_stop_and_a_second_ends_it(
    hangs: bool, signals: tuple[signal.Signals, ...], code: ExitCode
) -> None:
    """The first lets the service stop by itself; the second ends one whose stop hangs, with a code of its own."""
    command = [sys.executable, "-c", SERVICE.format(hangs=hangs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            said = []
            for number in signals:
                said.append(process.stdout.readline())
                process.send_signal(number)
            ended = process.wait(30)
            errors = process.stderr.read()
        finally:
            process.kill()

    assert ended == code, errors
    assert said == ["up\n", "stopping\n"][: len(signals)]
    assert ("again: ended without a clean stop" in errors) == hangs
