"""What the shell and programs see of a command: its answer in every form, or why it failed."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from functools import partial

import pytest
import yaml

from strandline.cli.failures import EXIT_UNREACHABLE, explain
from strandline.cli.output import Column, Format, flat_row, print_document, show
from strandline.client import NotAController

ROWS = [
    {"topic": "tides", "partition": 0, "isr": [1, 2], "leader": None, "clean": True},
    {"topic": 'a,"b"\nc', "partition": 1, "isr": [], "leader": 3, "clean": False, "why": "late"},
]


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML])
def test_documents_are_as_they_were(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and YAML give every field back, whatever the columns are."""
    show(ROWS, [Column("topic", "topic")], form)
    text = capsys.readouterr().out

    assert (json.loads if form is Format.JSON else yaml.safe_load)(text) == ROWS


def test_csv_has_every_field_of_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    """The header names all fields once; a field that a row lacks, and null, are empty; text survives quoting."""
    show(ROWS, [Column("topic", "topic")], Format.CSV)
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert read == [
        {"topic": "tides", "partition": "0", "isr": "1,2", "leader": "", "clean": "true", "why": ""},
        {"topic": 'a,"b"\nc', "partition": "1", "isr": "", "leader": "3", "clean": "false", "why": "late"},
    ]


def test_a_document_is_one_row_of_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """Inner fields are named with a dot, lists of documents stay json."""
    print_document({"latency_ms": {"p50": 1.5}, "parts": [{"id": 1}], "none": {}}, Format.CSV)

    assert capsys.readouterr().out == 'latency_ms.p50,parts,none\n1.5,"[{""id"": 1}]",{}\n'
    assert flat_row({"a": {"b": {"c": 1}}}) == {"a.b.c": 1}


def test_no_row_is_no_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """Without rows the fields are not known, and nothing is printed."""
    show([], [], Format.CSV)

    assert capsys.readouterr().out == ""


_PROGRAM = """
import asyncio, sys, time, typer
from strandline.cli import __main__, app
from strandline.cli.failures import perform
app.app = typer.Typer()

async def work():
    try:
        print("ready", flush=True)
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        print("tidied up", file=sys.stderr)

@app.app.command()
def with_a_loop():
    perform(work())

@app.app.command()
def without():
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

    assert failure is not None and failure.exit_code == EXIT_UNREACHABLE
    assert failure.message.startswith("--bootstrap: 127.0.0.1:9093 is not a controller")
    assert "no answer" not in failure.message


@pytest.mark.parametrize("command", ["with-a-loop", "without"])
@pytest.mark.parametrize(
    ("number", "ignored", "code"),
    [(signal.SIGINT, False, 130), (signal.SIGTERM, False, 143), (signal.SIGTERM, True, 143)],
)
def test_a_signal_ends_a_command_in_good_order(command: str, number: signal.Signals, ignored: bool, code: int) -> None:
    """SIGTERM ends a command as Ctrl-C does, also where that is ignored, as by a script's jobs in the background:
    after what it does at its end and without a traceback. The exit code says which signal it was."""
    running = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.send_signal(number)
        said = running.stderr.read()

    assert (running.returncode, said) == (code, "tidied up\n")


@pytest.mark.parametrize(("number", "ignored", "code"), [("SIGINT", False, 130), ("SIGTERM", True, 143)])
def test_a_signal_ends_a_command_that_is_not_ready(number: str, ignored: bool, code: int) -> None:
    """While Typer still puts the commands together, a signal ends the program without a traceback."""
    program = f"""
import signal
from strandline.cli import __main__, app
app.app = lambda **_: signal.raise_signal(signal.{number})
__main__.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )

    assert (ended.returncode, ended.stderr) == (code, b"")
