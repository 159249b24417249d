"""What the shell sees when a command cannot do what was requested."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
import typer

from strandline.cli.failures import EXIT_UNREACHABLE, explain, perform
from strandline.client import NotAController

_WITHOUT_A_LOOP = """
import sys, time, typer
from strandline.cli import __main__, app
app.app = typer.Typer()

@app.app.command()
def wait():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("tidied up", file=sys.stderr)

__main__.main()
"""


def test_a_data_node_as_bootstrap_is_a_wrong_option() -> None:
    """An address that is not the controller's ends a command with exit code 2 and names --bootstrap."""
    failure = explain(NotAController(["127.0.0.1:9093"]))

    assert failure is not None
    assert failure.exit_code == EXIT_UNREACHABLE
    assert failure.message.startswith("--bootstrap: 127.0.0.1:9093 is not a controller")
    assert "no answer" not in failure.message


def test_sigterm_ends_a_command_in_good_order() -> None:
    """A coroutine is cancelled, as by Ctrl-C, tidies up, and the command ends with 143; the handler before is back."""
    ended: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("well")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as exit_:
        perform(work())

    assert (exit_.value.exit_code, ended) == (143, ["well"])
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_command_beside_the_main_thread_is_performed() -> None:
    """Signals come to the main thread alone; a command that another one runs has none."""
    assert await asyncio.to_thread(perform, asyncio.sleep(0, "done")) == "done"


def test_sigterm_ends_a_command_without_an_event_loop() -> None:
    """It ends with 143, after what it does at its end, and without a traceback."""
    running = subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_A_LOOP],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        said = running.stderr.read().decode()

    assert (running.returncode, said) == (143, "tidied up\n")
