"""Commands of `strandline analytics` look for their input before they start a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app

AT = "2026-11-21T10:00:00Z"
COMMANDS = [
    ["report"],
    ["timeline"],
    ["coverage"],
    ["stats", "s08"],
    ["explain", "-t", "t", "-p", "0"],
    ["explain", "-t", "t", "-p", "0", "--stall"],
    ["explain", "-t", "t", "-p", "0", "--at", AT],
    ["explain", "-t", "t", "-p", "0", "--lso", "--at", AT],
    ["explain", "--group", "g", "--at", AT],
    ["run", "--out", "results"],
    ["stream", "--out", "live", "--checkpoint", "checkpoint"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:1] + words[5:]))
def test_an_input_that_is_not_there_ends_a_command_before_spark_starts(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A usage error that names the directory, and no session was opened."""
    pytest.importorskip("pyspark")

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("strandline_analytics.session.open_session", opened)
    ended = CliRunner().invoke(app, ["analytics", *words, "--input", "absent"])

    assert (ended.exit_code, type(ended.exception)) == (2, SystemExit)
    assert "absent is no directory" in ended.output
