"""`strandline analytics stream`: what is reported before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--input", "absent"], "absent is no directory"),
        (["--input", ".", "--step", "often"], "'often' is no duration"),
        (["--input", ".", "--delay", "5ms"], "5ms is too short; give 1s or more"),
        (["--input", ".", "--trigger", "0s"], "0s is too short; give 1s or more"),
        (["--input", ".", "--format", "iceberg"], "--format iceberg: live rows become final one by one"),
        (["--input", ".", "--format", "delta"], "run `strandline analytics run --format delta` every hour"),
    ],
)
def test_a_wrong_option_is_refused_at_once(
    arguments: list[str], reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong option ends with exit code 2 and a line that names it, without Spark."""
    monkeypatch.setattr("strandline_analytics.commands.stream.spark_session", _never)
    command = ["analytics", "stream", *arguments, "--out", str(tmp_path / "o"), "--checkpoint", str(tmp_path / "c")]
    found = RUNNER.invoke(app, command, env={"COLUMNS": "400", "TERM": "dumb"})

    assert found.exit_code == 2
    assert reported in found.output


def _never(*_: object, **__: object) -> None:
    raise AssertionError("Spark was started")
